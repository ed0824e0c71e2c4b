// Package process adds up what the whole process did, whoever waited for it: what ran on the Ps and for how long, which
// goroutines timers woke together, where CPU samples fell, garbage collection, stops of the world, and how the runtime
// behaved over time. The report shows some of it; rules read the rest beside the requests' causes.
//
// It is collected generation by generation in memory that depends on how many different stacks there are, not on the
// length of the trace. Of a generation with very many events a part is looked at, and the sums are scaled to the whole;
// which part depends on the trace alone.
package process

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// Stats are what was added up over a trace.
type Stats struct {
	SpanNS int64 // length of the trace's whole generations
	Procs  int   // GOMAXPROCS, the largest seen
	Events int64
	// BusyNS is the time in which Ps ran goroutines, over all Ps; at most Procs * SpanNS.
	BusyNS int64
	// Runs is what ran, by start function and place, the most time first.
	Runs []Run
	// ClientCalls are the runs that ended in a call of an HTTP or gRPC client, by the start function of the goroutine that called.
	ClientCalls []ClientCalls
	// Herds are goroutines that timers wake together, by the place where they wait, the most running time first.
	Herds []Herd
	// HerdWakeups are the largest single herds, in order of time.
	HerdWakeups []HerdWakeup
	Samples     Samples
	GC          GC
	// Stops are the stops of the world, the most time first.
	Stops []Stop
}

// A Run is the running time of goroutines with one start function, by where their runs ended.
type Run struct {
	Start string // start function; "" if unknown
	Site  *report.Site
	NS    int64 // in all
	Runs  int64
	// Of runs of at least LongNS without yielding: how many, their time, and the longest.
	Long      int64
	LongNS    int64
	LongestNS int64
}

func (r *Run) add(o *Run) {
	r.NS += o.NS
	r.Runs += o.Runs
	r.Long += o.Long
	r.LongNS += o.LongNS
	r.LongestNS = max(r.LongestNS, o.LongestNS)
}

// An Asking is goroutines with one start function that call others.
type ClientCalls struct {
	Start string
	Runs  int64
}

// LongNS is how long a run is that the runtime's own preemption had to end: after 10 ms sysmon asks it to stop.
const LongNS = 9e6

// A Herd is a place where many goroutines wait for timers that fire together.
type Herd struct {
	Start   string // their start function
	Site    *report.Site
	Times   int64 // how often a herd woke
	Wakes   int64 // goroutines woken in herds
	Largest int   // goroutines of the largest herd
	// Those of the largest herd woke within WithinNS, and the one that ran latest did so LateNS after its wake.
	WithinNS, LateNS int64
	// Empty counts those of Wakes that ran no longer than EmptyNS before they waited at the same place again.
	Empty int64
	RanNS int64 // what all of Wakes ran until they waited again
	// ClearNS is the time from a herd's first wake until its last goroutine had run, over all herds.
	ClearNS int64
}

// add adds other herds; of two that are the largest, the one with the latest run counts.
func (h *Herd) add(o *Herd) {
	h.Times += o.Times
	h.Wakes += o.Wakes
	if o.Largest > h.Largest || o.Largest == h.Largest && o.LateNS > h.LateNS {
		h.Largest, h.WithinNS, h.LateNS = o.Largest, o.WithinNS, o.LateNS
	}
	h.Empty += o.Empty
	h.RanNS += o.RanNS
	h.ClearNS += o.ClearNS
}

// A Flock is one herd: goroutines of one place that timers woke within HerdNS of each other, and until the last of them had run.
// Times are relative to the trace's start.
type HerdWakeup struct {
	Start        string
	Site         *report.Site
	FromNS, ToNS int64
	Goroutines   int
}

// A herd is at least so many goroutines of one place that timers wake within HerdNS, and those that they wake there before the
// last of them has run.
const (
	HerdSize = 50
	HerdNS   = 1e6
)

// Samples counts CPU samples, where the trace has them.
type Samples struct {
	All       int64
	Scheduler int64 // looking for work, switching, waking threads
	GC        int64 // background marking, assists and sweeping
	Tracing   int64 // writing the trace itself
	SpanNS    int64 // from the first to the last
}

// WithoutCPU returns for which part of the time in which goroutines ran on Ps CPU samples saw none of them, where that is the larger
// part: threads that wait for a CPU are not sampled. It is 0 where there is less of it, or too little to tell.
func (s *Stats) WithoutCPU() float64 {
	c := &s.Samples
	if c.All < threshold.Enough || s.BusyNS < threshold.Running || float64(c.SpanNS) < threshold.Most*float64(s.SpanNS) {
		return 0
	}
	share := 1 - float64(c.All-c.Scheduler)*report.SampleNS/float64(s.BusyNS)
	if share < threshold.Half {
		return 0
	}
	return share
}
