// Package process adds up what the whole process did, independent of requests: which goroutines ran on the Ps and for
// how long, which goroutines timers woke together (herds), where CPU samples fell, garbage collection, stops of the
// world, and the runtime's behaviour over time. The report shows some of it. The rules of package finding combine the
// rest with the causes of requests.
//
// A Collector adds up generation by generation. Its memory depends on the number of different stacks, not on the
// length of the trace. Of a generation with very many events it examines a part and scales the sums to the whole; the
// choice of the part depends only on the trace.
package process

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// Stats are the sums over a trace.
type Stats struct {
	SpanNS int64 // length of the trace's complete generations
	Procs  int   // the largest GOMAXPROCS
	Events int64
	// Parallelism is, for a trace that does not show Ps, the largest number of goroutines that ran concurrently; a lower bound
	// of Procs. Else 0.
	Parallelism float64
	// BusyNS is the time in which Ps ran goroutines, summed over all Ps; at most Procs * SpanNS.
	BusyNS int64
	// RunningTimes are the running times by start function and site, the longest first.
	RunningTimes []RunningTime
	// ClientCalls are the runs that ended in a call of an HTTP or gRPC client, by the start function of the calling
	// goroutine.
	ClientCalls []ClientCalls
	// Herds are the places where goroutines wait that are woken together, the longest running time first.
	Herds []Herd
	// HerdWakeups are the largest wakeups of herds, in order of time.
	HerdWakeups  []HerdWakeup
	Samples      Samples
	SampledFuncs map[string]*SampledFunc // functions of the service that call the standard library, by name
	GC           GC
	// Stops are the stops of the world, the most time first.
	Stops []Stop
}

// A RunningTime is the running time of goroutines with one start function whose runs ended at one site.
type RunningTime struct {
	Start string // start function; "" if unknown
	Site  *report.Site
	NS    int64 // in total
	Count int64
	// Ends counts those that ended with the goroutine, Yields those that runtime.Gosched ended.
	Ends, Yields int64
	// LongCount is the number of runs of at least LongNS without yielding, LongNS their total time, and LongestNS the longest.
	LongCount int64
	LongNS    int64
	LongestNS int64
}

// Add adds the runs of another site or part.
func (r *RunningTime) Add(o *RunningTime) {
	r.NS += o.NS
	r.Count += o.Count
	r.Ends += o.Ends
	r.Yields += o.Yields
	r.LongCount += o.LongCount
	r.LongNS += o.LongNS
	r.LongestNS = max(r.LongestNS, o.LongestNS)
}

// ClientCalls is the number of client calls by goroutines with one start function.
type ClientCalls struct {
	Start string
	Count int64
}

// LongNS is the length of a run that only preemption ended: sysmon requests preemption after 10 ms.
const LongNS = 9e6

// A Herd is a site at which many goroutines wait for timers that fire at nearly the same time, or for one goroutine's Broadcast.
type Herd struct {
	Start   string // start function of the goroutines
	Site    *report.Site
	Waker   *report.Site // where a goroutine wakes all of them, nearly all in vain; nil: timers do
	Times   int64        // number of wakeups
	Wakes   int64        // goroutines woken in all wakeups
	Largest int          // goroutines of the largest wakeup
	// In the largest wakeup, all goroutines woke within WithinNS, and the last one ran LateNS after its wake.
	WithinNS, LateNS int64
	// Empty is the number of Wakes whose goroutine ran at most threshold.IdleCheckNS before it waited at the same site as
	// before.
	Empty int64
	RanNS int64 // running time of all of Wakes until they waited again
	// ClearNS is the total length of the wakeups, from the first wake until the last goroutine had run.
	ClearNS int64
}

// add adds another herd. If both have the same largest wakeup, the one with the later run counts.
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

// A HerdWakeup is one wakeup of a herd: timers woke goroutines at one place within HerdNS of each other. It lasts
// until the last of them had run. Times are relative to the start of the trace.
type HerdWakeup struct {
	Start        string
	Site         *report.Site
	FromNS, ToNS int64
	Goroutines   int
}

// A herd wakeup has at least HerdSize goroutines that timers wake at one place within HerdNS. It also includes
// goroutines that timers wake there before the last of them has run.
const (
	HerdSize = 50
	HerdNS   = 1e6
)

// Samples are numbers of CPU samples, if the trace has them.
type Samples struct {
	All       int64
	Scheduler int64 // looking for work, switching, waking threads
	GC        int64 // background marking, assists and sweeping
	Tracing   int64 // writing the trace itself
	SpanNS    int64 // from the first sample to the last
}

// WithoutCPU estimates from CPU samples which share of the running time goroutines had no CPU: threads that wait for a CPU are
// not sampled. It returns 0 if the share is below one half or there are too few samples.
func (s *Stats) WithoutCPU() float64 {
	c := &s.Samples
	if c.All < threshold.MedianSample || s.BusyNS < threshold.SampledRunNS || float64(c.SpanNS) < threshold.MostShare*float64(s.SpanNS) {
		return 0
	}
	share := 1 - float64(c.All-c.Scheduler)*report.SampleNS/float64(s.BusyNS)
	if share < threshold.HalfShare {
		return 0
	}
	return share
}
