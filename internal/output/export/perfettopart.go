package export

import (
	"fmt"
	"math"
	"time"
)

// SmallTrace is the number of events up to which a Perfetto trace shows all
// goroutines and all requests' segments without being asked.
const SmallTrace = 1_000_000

// events is about how many events the written part of the trace has, as if they
// were spread evenly.
func (t *PerfettoTrace) events() int64 {
	in := &t.rep.Input
	if !t.part() || in.DurationNS <= 0 {
		return in.Events
	}
	length := max(0, min(t.to, in.DurationNS)-t.from)
	return int64(float64(in.Events) * float64(length) / float64(in.DurationNS))
}

// part reports whether only a part of the trace's time is written.
func (t *PerfettoTrace) part() bool { return t.from > 0 || t.to != math.MaxInt64 }

// clip cuts an interval to the part that is written. It returns false if nothing is
// left.
func (t *PerfettoTrace) clip(from, to int64) (int64, int64, bool) {
	if from >= t.to || to < t.from || to == t.from && from < to {
		return 0, 0, false
	}
	return max(from, t.from), min(to, t.to), true
}

// choose limits what is shown to the slow requests of the report.
func (t *PerfettoTrace) choose() {
	t.tracked, t.full = make(map[uint64]bool), make(map[string]bool)
	for i := range t.rep.Groups {
		for k := range t.rep.Groups[i].Slowest {
			q := &t.rep.Groups[i].Slowest[k]
			t.full[q.ID], t.tracked[q.Goroutine] = true, true
			for _, s := range q.Segments {
				t.tracked[s.Goroutine] = true
			}
			for _, l := range q.Lanes {
				t.tracked[l.Goroutine] = true
			}
		}
	}
}

// Chosen says in one line what is left out; it is empty if nothing is.
func (t *PerfettoTrace) Chosen() string {
	if t.tracked == nil {
		return ""
	}
	what := fmt.Sprintf("the trace has %d events", t.rep.Input.Events)
	if t.part() {
		what = fmt.Sprintf("this part of the trace has about %d events", t.events())
	}
	return what + fmt.Sprintf(": only the %d goroutines of the %d slow requests of the report have tracks, and only these requests have segments; --all writes everything", len(t.tracked), len(t.full))
}

// about returns a track's description, which says what the file holds.
func (t *PerfettoTrace) about() string {
	if !t.part() {
		return t.Chosen()
	}
	until := "to its end"
	if t.to != math.MaxInt64 {
		until = "to " + time.Duration(t.to).String()
	}
	text := fmt.Sprintf("of the trace from %v %s: what crosses these limits is cut there; requests are those that end between them, whole", time.Duration(t.from), until)
	if c := t.Chosen(); c != "" {
		text += "; " + c
	}
	return text
}
