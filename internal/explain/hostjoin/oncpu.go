package hostjoin

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// Threads compares what threads show in a trace with what they had: a thread that shows as running a goroutine for longer than it
// ran had no CPU for the rest, as far as it waited for one meanwhile. The zero value knows nothing.
type Threads struct {
	waitsByThread map[uint64][]threadWait // by thread, in order of time
}

// A waited is a thread's waiting for a CPU between two samples.
type threadWait struct {
	from, to                int64 // on the trace's clock
	delayNS, ranNS, shownNS int64
}

// NewThreads returns what samples say of the threads of a trace; nothing, where they do not.
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
		for _, x := range p.Waited {
			if last != nil {
				t.waitsByThread[uint64(x[0])] = append(t.waitsByThread[uint64(x[0])], threadWait{from: last.MonoNS + offset, to: p.MonoNS + offset, delayNS: x[1], ranNS: x[2]})
			}
		}
		last = p
	}
	return t
}

// Add adds a generation.
func (t *Threads) Add(g *timeline.Gen) {
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

// offCPUNS returns for how long goroutines showed as running while their threads had no CPU.
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

// SetOffCPU has a report say for how long goroutines showed as running without a CPU, where threads tell more of it than all together. Under
// a quota the threads' waiting is that.
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
