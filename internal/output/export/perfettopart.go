package export

import (
	"fmt"
	"math"
	"time"
)

// MaxFullEvents is the largest number of events with which a Perfetto trace shows all goroutines and all requests' segments
// without Options.All.
const MaxFullEvents = 1_000_000

// writtenEvents estimates the number of events in the written part of the trace, as if events were evenly distributed.
func (t *PerfettoTrace) writtenEvents() int64 {
	in := &t.report.Input
	if !t.isPartial() || in.DurationNS <= 0 {
		return in.Events
	}
	length := max(0, min(t.toNS, in.DurationNS)-t.fromNS)
	return int64(float64(in.Events) * float64(length) / float64(in.DurationNS))
}

// isPartial reports whether only a part of the trace's time is written.
func (t *PerfettoTrace) isPartial() bool { return t.fromNS > 0 || t.toNS != math.MaxInt64 }

// clip cuts an interval (ns from the trace's start) to the written part. An instant stays one; it is false if nothing remains.
func (t *PerfettoTrace) clip(from, to int64) (int64, int64, bool) {
	if from >= t.toNS || to < t.fromNS || to == t.fromNS && from < to {
		return 0, 0, false
	}
	return max(from, t.fromNS), min(to, t.toNS), true
}

// selectSlowRequests limits goroutines with tracks and requests with segments to those of the report's slow requests.
func (t *PerfettoTrace) selectSlowRequests() {
	t.trackedGoroutines, t.fullRequests = make(map[uint64]bool), make(map[string]bool)
	for i := range t.report.Groups {
		for k := range t.report.Groups[i].Slowest {
			q := &t.report.Groups[i].Slowest[k]
			t.fullRequests[q.ID], t.trackedGoroutines[q.Goroutine] = true, true
			for _, s := range q.Segments {
				t.trackedGoroutines[s.Goroutine] = true
			}
			for _, l := range q.Lanes {
				t.trackedGoroutines[l.Goroutine] = true
			}
		}
	}
}

// Omissions describes the omitted goroutines and segments in one line; it is empty if there are none.
func (t *PerfettoTrace) Omissions() string {
	if t.trackedGoroutines == nil {
		return ""
	}
	text := fmt.Sprintf("the trace has %d events", t.report.Input.Events)
	if t.isPartial() {
		text = fmt.Sprintf("this part of the trace has about %d events", t.writtenEvents())
	}
	return text + fmt.Sprintf(": only the %d goroutines of the %d slow requests of the report have tracks, and only these requests have segments; --all writes everything", len(t.trackedGoroutines), len(t.fullRequests))
}

// description returns the description of a track: the part of the trace in the file, and the omissions.
func (t *PerfettoTrace) description() string {
	if !t.isPartial() {
		return t.Omissions()
	}
	end := "to its end"
	if t.toNS != math.MaxInt64 {
		end = "to " + time.Duration(t.toNS).String()
	}
	text := fmt.Sprintf("of the trace from %v %s: what crosses these limits is cut there; requests are those that end between them, whole", time.Duration(t.fromNS), end)
	if c := t.Omissions(); c != "" {
		text += "; " + c
	}
	return text
}
