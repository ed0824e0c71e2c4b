package hostjoin

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// Threads compares, for each thread and sampling interval, the time in which the trace shows the thread running a goroutine
// with its CPU time. For the difference the thread had no CPU, as far as the kernel counted waiting time. The zero value has no
// threads.
type Threads struct {
	waitsByThread map[uint64][]threadWait // by thread, in order of time
}

// A threadWait is one thread between two samples: its waiting time for a CPU (delayNS), its CPU time (ranNS), and its running
// time in the trace (shownNS).
type threadWait struct {
	from, to                int64 // on the trace's clock
	delayNS, ranNS, shownNS int64
}

// NewThreads returns the threads of host samples, with intervals on the trace's clock. It has none if the samples have no
// counters of threads.
func NewThreads(s *host.Samples, w Window) (t Threads) {
	if s == nil {
		return t
	}
	offset, _, ok := clockOffset(s, w)
	if !ok {
		return t
	}
	t.waitsByThread = make(map[uint64][]threadWait)
	last := (*host.Sample)(nil)
	for i := range s.Points {
		p := &s.Points[i]
		if p.RunNS == nil {
			continue
		}
		for _, x := range p.ThreadWaits {
			if last != nil {
				t.waitsByThread[uint64(x[0])] = append(t.waitsByThread[uint64(x[0])], threadWait{from: last.MonoNS + offset, to: p.MonoNS + offset, delayNS: x[1], ranNS: x[2]})
			}
		}
		last = p
	}
	return t
}

// AddRuns adds the running times of threads in a generation of the trace.
func (t *Threads) AddRuns(g *timeline.Gen) {
	if len(t.waitsByThread) == 0 {
		return
	}
	g.EachRun(g.Base, g.End, func(r timeline.Run) {
		list := t.waitsByThread[r.M]
		i, _ := slices.BinarySearchFunc(list, r.From, func(x threadWait, t int64) int { return cmp.Compare(x.to, t+1) })
		for ; i < len(list) && list[i].from < r.To; i++ {
			list[i].shownNS += min(r.To, list[i].to) - max(r.From, list[i].from)
		}
	})
}

// offCPUNS returns the total time in which goroutines showed as running while their threads had no CPU, of those intervals
// between samples that are inside [from, to).
func (t *Threads) offCPUNS(from, to int64) (total int64) {
	for _, list := range t.waitsByThread {
		for _, x := range list {
			if x.from >= from && x.to <= to {
				total += max(0, min(x.shownNS-x.ranNS, x.delayNS))
			}
		}
	}
	return total
}

// SetOffCPU sets the report's OffCPUNS if the sum over single threads is larger than the process-wide figure. It does nothing
// under a quota, because then threads wait for the quota.
func (t *Threads) SetOffCPU(rep *report.Report, w Window) {
	if rep.Host == nil || rep.Host.Quota.ThrottledPeriods > 0 {
		return
	}
	l := &rep.Host.Lost
	share, ok := l.WithoutCPU()
	if !ok {
		return
	}
	if offNS := min(t.offCPUNS(w.Start, w.End), *l.BusyNS); float64(offNS) > share*float64(*l.BusyNS) {
		l.OffCPUNS = &offNS
	}
}
