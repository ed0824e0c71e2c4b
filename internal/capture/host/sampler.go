package host

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
)

// Codes of warnings about host samples.
const (
	WarnHost    = "host-samples" // none, or not all, could be taken
	WarnSockets = "host-sockets" // the sockets' retransmissions could not be read
	WarnEnded   = "host-ended"   // the process ended while it was sampled
)

// DefaultInterval is the time between two samples.
const DefaultInterval = 20 * time.Millisecond

// Options says what to sample.
type Options struct {
	// PID is the process.
	PID int
	// Interval is the time between two samples; 0 means DefaultInterval.
	Interval time.Duration
}

// A Recording is what sampling gave.
type Recording struct {
	// Data is host.jsonl; empty if not one sample could be taken.
	Data []byte
	// Facts is nil if nothing is known about the process.
	Facts    *bundle.Host
	Warnings []bundle.Warning
	Samples  int
	// Cost is the CPU time that sampling took.
	Cost time.Duration
}

// Bounds on what is kept of a long recording. Counters only grow, so leaving
// out every second sample loses no sum.
const (
	maxTicks   = 1 << 16 // 22 minutes at 20 ms
	maxSeconds = 1 << 13
	maxSockets = 1 << 17 // over all lines
	maxListed  = 1000    // in one line
)

// absent marks a counter that could not be read.
const Absent = -1

// A tick is one sample, flat, so that taking it allocates nothing.
type Tick struct {
	Mono, Wall                int64
	Group                     int
	Periods, ThrottledPeriods int64
	Throttled, Local          int64
	AncestorPeriods, Ancestor int64
	Complete                  bool
	Usage, User, System       int64
	Run, Delay                int64
	Threads                   int
	Rss, Minor, Major         int64
	Retransmitted             int64
	Unseen                    int64
	Held                      Held
	Waited                    []Waited
}

func newTick() Tick {
	return Tick{Periods: Absent, ThrottledPeriods: Absent, Throttled: Absent, Local: Absent, AncestorPeriods: Absent, Ancestor: Absent,
		Usage: Absent, User: Absent, System: Absent, Run: Absent, Delay: Absent, Rss: Absent, Minor: Absent, Major: Absent, Retransmitted: Absent}
}

func (t *Tick) line() Line {
	opt := func(v int64) *int64 {
		if v == Absent {
			return nil
		}
		return &v
	}
	return Line{
		Kind: KindSample, MonoNS: t.Mono, WallNS: t.Wall, Group: t.Group,
		Periods: opt(t.Periods), ThrottledPeriods: opt(t.ThrottledPeriods), ThrottledNS: opt(t.Throttled), LocalNS: opt(t.Local),
		AncestorPeriods: opt(t.AncestorPeriods), AncestorNS: opt(t.Ancestor), AncestorsComplete: t.Complete,
		UsageNS: opt(t.Usage), UserNS: opt(t.User), SystemNS: opt(t.System), RunNS: opt(t.Run), RunDelayNS: opt(t.Delay), Threads: t.Threads,
		RSSBytes: opt(t.Rss), MinorFaults: opt(t.Minor), MajorFaults: opt(t.Major), Retransmitted: opt(t.Retransmitted), Unseen: t.Unseen,
		Held: t.Held, Waited: t.Waited,
	}
}

// A log keeps what was sampled, in bounded memory.
type log struct {
	ticks []Tick
	every int // one of so many samples is kept
	skip  int

	lines      []Line // all others, in order of time
	seconds    int
	secondsAre int // one of so many is kept
	secondSkip int
	sockets    int
}

// add keeps a sample. The newest one always stays until the next comes.
func (l *log) add(t *Tick) {
	if l.every == 0 {
		l.every = 1
	}
	if l.skip > 0 {
		l.ticks[len(l.ticks)-1] = *t
	} else {
		l.ticks = append(l.ticks, *t)
	}
	l.skip = (l.skip + 1) % l.every
	if len(l.ticks) == maxTicks && l.skip == 0 {
		l.ticks = thin(l.ticks)
		l.every *= 2
	}
}

// thin keeps the first and then every second element.
func thin[T any](s []T) []T {
	n := 0
	for i := 0; i < len(s); i += 2 {
		s[n] = s[i]
		n++
	}
	if len(s)%2 == 0 {
		s[n] = s[len(s)-1]
		n++
	}
	return s[:n]
}

func (l *log) second(line Line) {
	l.secondsAre = max(l.secondsAre, 1)
	l.secondSkip = (l.secondSkip + 1) % l.secondsAre
	if l.secondSkip != 0 {
		return
	}
	l.lines = append(l.lines, line)
	if l.seconds++; l.seconds == maxSeconds {
		odd := false
		l.lines = slices.DeleteFunc(l.lines, func(x Line) bool {
			if x.Kind != KindSecond {
				return false
			}
			odd = !odd
			return !odd
		})
		l.seconds, l.secondsAre = l.seconds/2, l.secondsAre*2
	}
}

// encode writes the recording in order of time.
func (l *log) encode(start, end Line) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	put := func(line *Line) { _ = enc.Encode(line) } // plain data into memory: it cannot fail
	put(&start)
	slices.SortStableFunc(l.lines, func(a, b Line) int { return cmp.Compare(a.MonoNS, b.MonoNS) })
	k := 0
	for i := range l.ticks {
		for ; k < len(l.lines) && l.lines[k].MonoNS <= l.ticks[i].Mono; k++ {
			put(&l.lines[k])
		}
		line := l.ticks[i].line()
		put(&line)
	}
	for ; k < len(l.lines); k++ {
		put(&l.lines[k])
	}
	put(&end)
	return b.Bytes()
}
