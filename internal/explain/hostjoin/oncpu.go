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
	of map[uint64][]waited // by thread, in order of time
}

// A waited is a thread's waiting for a CPU between two samples.
type waited struct {
	from, to         int64 // on the trace's clock
	delay, ran, show int64
}

// NewThreads returns what samples say of the threads of a trace; nothing, where they do not.
func NewThreads(s *host.Samples, w Window) (t Threads) {
	if s == nil {
		return t
	}
	offset, _, ok := join(s, w)
	if !ok {
		return t
	}
	t.of = make(map[uint64][]waited)
	last := (*host.Sample)(nil)
	for i := range s.Points {
		p := &s.Points[i]
		if p.RunNS == nil {
			continue
		}
		for _, x := range p.Waited {
			if last != nil {
				t.of[uint64(x[0])] = append(t.of[uint64(x[0])], waited{from: last.MonoNS + offset, to: p.MonoNS + offset, delay: x[1], ran: x[2]})
			}
		}
		last = p
	}
	return t
}

// Add adds a generation.
func (t *Threads) Add(g *timeline.Gen) {
	if len(t.of) == 0 {
		return
	}
	g.EachRun(g.Base, g.End, func(r timeline.Run) {
		list := t.of[r.M]
		i, _ := slices.BinarySearchFunc(list, r.From, func(x waited, t int64) int { return cmp.Compare(x.to, t+1) })
		for ; i < len(list) && list[i].from < r.To; i++ {
			list[i].show += min(r.To, list[i].to) - max(r.From, list[i].from)
		}
	})
}

// off returns for how long goroutines showed as running while their threads had no CPU.
func (t *Threads) off(from, to int64) (off int64) {
	for _, list := range t.of {
		for _, x := range list {
			if x.from >= from && x.to <= to {
				off += max(0, min(x.show-x.ran, x.delay))
			}
		}
	}
	return off
}

// OffCPU has a report say for how long goroutines showed as running without a CPU, where threads tell more of it than all together. Under
// a quota the threads' waiting is that.
func (t *Threads) OffCPU(rep *report.Report, w Window) {
	if rep.Host == nil || rep.Host.Quota.ThrottledPeriods > 0 {
		return
	}
	l := &rep.Host.Lost
	share, known := l.WithoutCPU()
	if !known {
		return
	}
	if off := min(t.off(w.Start, w.End), *l.BusyNS); float64(off) > share*float64(*l.BusyNS) {
		l.OffCPUNS = &off
	}
}
