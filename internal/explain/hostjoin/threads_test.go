package hostjoin

import (
	"bytes"
	"testing"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestThreads checks three threads: one shows as running for longer than it ran, because other processes had its CPU;
// another was woken late and then had a CPU for all of its running time; a third waited, and no run of it is in the
// trace. A wait for a CPU before a run does not count.
func TestThreads(t *testing.T) {
	x := &recording{}
	x.begin()
	for i := range int64(11) {
		x.sample(i, func(l *host.Line) {
			l.RunNS, l.RunDelayNS = pointer(i*10*ms), pointer(i*10*ms)
			if i == 5 {
				l.ThreadWaits = []host.ThreadWait{{7, 12 * ms, 5 * ms}, {8, 6 * ms, 9 * ms}, {9, 20 * ms, 0}}
			}
		})
	}
	s := must.Have(host.Read(bytes.NewReader(x.b.Bytes())))(t)
	w := window(0, 10)
	threads := NewThreads(s, w)
	for m, show := range map[uint64]int64{7: 15 * ms, 8: 9 * ms} {
		if list := threads.waitsByThread[m]; len(list) != 1 || list[0].to-list[0].from != 20*ms {
			t.Fatalf("thread %d: %+v", m, list)
		}
		threads.waitsByThread[m][0].shownNS = show
	}
	busy, cpu, delay, noCPU := 40*ms, 40*ms, 100*ms, int64(0)
	rep := &report.Report{Host: &report.Host{Lost: report.Lost{BusyNS: &busy, CPUNS: &cpu, RunDelayNS: &delay}}}
	if threads.SetOffCPU(rep, w); rep.Host.Lost.OffCPUNS == nil || *rep.Host.Lost.OffCPUNS != 10*ms {
		t.Errorf("%v", rep.Host.Lost.OffCPUNS)
	}
	if share, _ := rep.Host.Lost.WithoutCPU(); share != 0.25 {
		t.Errorf("%v of the running time had no CPU", share)
	}
	// The figure of the whole process is larger: it remains.
	rep.Host.Lost = report.Lost{BusyNS: &busy, CPUNS: &noCPU, RunDelayNS: &delay}
	if threads.SetOffCPU(rep, w); rep.Host.Lost.OffCPUNS != nil {
		t.Errorf("%d, where the process had no CPU at all", *rep.Host.Lost.OffCPUNS)
	}
}
