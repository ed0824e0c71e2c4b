package host_test

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/hostjoin"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// summarize returns the summary of a whole recording, on the samples' clock.
func summarize(t *testing.T, s *host.Samples) *report.Host {
	t.Helper()
	first, last := &s.Points[0], &s.Points[len(s.Points)-1]
	snapshot := &tracefmt.ClockSnapshot{Mono: uint64(first.MonoNS), UnixSec: uint64(first.WallNS / 1e9), UnixNsec: uint64(first.WallNS % 1e9)}
	return must.Have(hostjoin.Summarize(s, hostjoin.Window{Start: first.MonoNS, End: last.MonoNS, Snapshot: snapshot, SnapshotTime: first.MonoNS}, &report.Report{}))(t)
}

// The process is stopped while the test reads the kernel's counters and while sampling begins and
// ends, so both must agree to the nanosecond.
func TestThrottledTimeIsTheKernels(t *testing.T) {
	for _, throttledGroup := range []string{"own", "ancestor"} {
		t.Run(throttledGroup, func(t *testing.T) {
			limited := testchild.NewGroup(t, nil, 0.5)
			processGroup := limited
			if throttledGroup == "ancestor" {
				processGroup = testchild.NewGroup(t, limited, 0)
			}
			cmd, _ := host.StartChild(t, processGroup, "busy 4")
			fromPeriods, from := host.HaltAndCountChild(t, limited, cmd)
			s := must.Have(host.Start(host.Options{PID: cmd.Process.Pid}))(t)
			cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(1500 * time.Millisecond) // the length of the measurement
			toPeriods, to := host.HaltAndCountChild(t, limited, cmd)
			samples, rec := host.ReadBack(t, s.Stop())
			h := summarize(t, samples)
			got, periods := h.Quota.OwnNS, h.Quota.ThrottledPeriods
			if throttledGroup == "ancestor" {
				got = *samples.Points[len(samples.Points)-1].AncestorThrottledNS - *samples.Points[0].AncestorThrottledNS
				periods = *samples.Points[len(samples.Points)-1].AncestorThrottledPeriods - *samples.Points[0].AncestorThrottledPeriods
			}
			check.True(t, got == to-from && periods == toPeriods-fromPeriods && to != from,
				"throttled %d ns in %d periods by the samples, %d ns in %d by the kernel", got, periods, to-from, toPeriods-fromPeriods)
			check.True(t, string(h.Quota.Verdict) == throttledGroup && strings.Contains(limited.Dir, h.Quota.Group) && h.Quota.Group != "",
				"verdict %q (%s), group %q, want %q and the end of %s", h.Quota.Verdict, h.Quota.Text, h.Quota.Group, throttledGroup, limited.Dir)
			check.True(t, h.Facts.QuotaCPUs == 0.5 && h.Facts.QuotaFrom != "" && (h.Facts.QuotaDepth == 0) == (throttledGroup == "own"),
				"facts %+v", h.Facts)
			// cpu.stat.local has this cgroup's share of the ancestor's throttled time.
			if throttledGroup == "own" && *h.Lost.QuotaNS < got*9/10 {
				t.Errorf("lost %d ns to the quota, throttled %d", *h.Lost.QuotaNS, got)
			}
			// The share of the run queue depends on other processes of the machine, but the parts must cover the whole delay.
			if *h.Lost.QuotaNS == 0 || *h.Lost.QuotaNS+*h.Lost.RunQueueNS+*h.Lost.UnsplitNS < *h.Lost.RunDelayNS {
				t.Errorf("lost time: quota %d, run queue %d, unsplit %d of delay %d", *h.Lost.QuotaNS, *h.Lost.RunQueueNS, *h.Lost.UnsplitNS, *h.Lost.RunDelayNS)
			}
			t.Logf("quota %.3fs, run queue %.3fs, unsplit %.3fs, delay %.3fs, cpu %.3fs; sampling took %v for %d samples",
				sec(*h.Lost.QuotaNS), sec(*h.Lost.RunQueueNS), sec(*h.Lost.UnsplitNS), sec(*h.Lost.RunDelayNS), sec(*h.Lost.CPUNS), rec.Cost, rec.Samples)
		})
	}
}

func sec(ns int64) float64 { return float64(ns) / 1e9 }

// If other processes use up the machine and there is no quota, all the lost time is time in the run
// queue.
func TestRunQueueUnderNeighbours(t *testing.T) {
	testfull.Need(t, "neighbours that use up the machine")
	cmd, _ := host.StartChild(t, nil, "busy 2")
	host.StartChild(t, nil, fmt.Sprintf("busy %d", 2*runtime.NumCPU()))
	samples, _ := host.SampleFor(t, cmd.Process.Pid, 1500*time.Millisecond)
	h := summarize(t, samples)
	if h.Lost.RunDelayNS == nil {
		t.Skip("this kernel has no schedstat of threads")
	}
	check.True(t, h.Quota.Verdict != "own", "verdict %q: %s", h.Quota.Verdict, h.Quota.Text)
	if h.Quota.Verdict == "ancestor" || h.Lost.RunQueueNS == nil {
		t.Skipf("this test runs below a quota, or where that cannot be known: %s", h.Quota.Text)
	}
	// Twice as many busy threads as CPUs use at least a third of the time that two threads want. A wait is counted when it ends,
	// which on a machine that is busier still may be after the last sample: a tenth is enough.
	if want := int64(2*1500*time.Millisecond) / 10; *h.Lost.RunQueueNS < want {
		t.Errorf("waited %.3f s in the run queue, want at least %.3f", sec(*h.Lost.RunQueueNS), sec(want))
	}
	if *h.Lost.QuotaNS != 0 || *h.Lost.UnsplitNS != 0 || *h.Lost.RunQueueNS != *h.Lost.RunDelayNS {
		t.Errorf("quota %d, unsplit %d, run queue %d of delay %d", *h.Lost.QuotaNS, *h.Lost.UnsplitNS, *h.Lost.RunQueueNS, *h.Lost.RunDelayNS)
	}
}
