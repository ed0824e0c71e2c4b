package acceptance_test

import (
	"math"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestKernelEvents compares what the kernel's events of recordings give with the kernel's own accounts in them: the time
// that a quota took with cpu.stat, and the parts of the running time with their sum. Causes that they show are marked, and
// requests begin when their first byte arrives.
func TestKernelEvents(t *testing.T) {
	for name, quotaNS := range map[string]float64{"kernel-hogs-quota": 132_344_968, "kernel-mmap": 0} {
		rep := explainFile(t, testprog.Recording(t, "cases/"+name+".whylate"))
		k := rep.Kernel
		must.True(t, k.IsComplete() && k.Lost == 0, "%s: %+v", name, k)
		if got := float64(rep.Runtime.Throttle.LostCPUNS); math.Abs(got-quotaNS) > 0.05*quotaNS || rep.Runtime.Throttle.Verdict.HeldBack() != (quotaNS > 0) || rep.Runtime.Throttle.Confidence != 1 {
			t.Errorf("%s: the quota took %.1f ms, cpu.stat says %.1f: %+v", name, got/1e6, quotaNS/1e6, rep.Runtime.Throttle)
		}
		if sum := k.CPUNS + k.CPUWaitNS + k.ThrottledNS + k.DiskNS + k.AsleepNS + k.StoppedNS; math.Abs(float64(sum-k.RunningNS)) > 0.02*float64(k.RunningNS) {
			t.Errorf("%s: the parts of %d ns are %d", name, k.RunningNS, sum)
		}
		if s := rep.Runtime.Series; s != nil {
			frozen := int64(0)
			for _, x := range s.Freezes {
				frozen += x[1]
			}
			check.True(t, frozen == rep.Runtime.Throttle.LostWallNS,
				"%s: the freezes of the series last %d ns, those of the verdict %d", name, frozen, rep.Runtime.Throttle.LostWallNS)
		}
		requests, disk := int64(0), 0.0
		for i := range rep.Groups {
			g := &rep.Groups[i]
			requests += int64(g.Count)
			for _, c := range g.All().Causes {
				switch c.Cause {
				case report.CauseCPU, report.CauseCPUWait, report.CauseDisk, report.CauseThrottle:
					check.True(t, c.Observed, "%s: %s at %+v is not observed", name, c.Cause, c.Site)
				case report.CauseSleep, report.CauseNetwork:
					check.False(t, c.Observed, "%s: %s is observed", name, c.Cause)
				}
				if c.Cause == report.CauseDisk {
					disk += c.Share
				}
			}
		}
		check.True(t, float64(k.Arrivals) >= 0.95*float64(requests), "%s: %d arrivals of %d requests", name, k.Arrivals, requests)
		check.Equal(t, name == "kernel-mmap", disk > 0.05, "%s: page faults take %.0f %%", name, 100*disk)
	}
}

// Without the kernel's events nothing is marked as observed, and no cause is one that only they show.
func TestNoKernelEvents(t *testing.T) {
	rep := explainFile(t, testprog.Recording(t, "cases/geo.whylate"))
	check.True(t, rep.Kernel == nil, "%+v", rep.Kernel)
	for i := range rep.Groups {
		for _, c := range rep.Groups[i].All().Causes {
			check.True(t, !c.Observed && c.Cause != report.CauseCPUWait && c.Cause != report.CauseDisk && c.Kind != report.Arrived,
				"%+v", c)
		}
	}
}
