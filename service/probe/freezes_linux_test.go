package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/quotatest"
)

// A childResult has a child process's measurements.
type childResult struct {
	Snapshot         Snapshot
	FreezesByVerdict map[cgroup.Verdict]uint64 // number of freezes
	Freezes          []timedFreeze
	CPU              time.Duration
	Wall             time.Duration
}

type timedFreeze struct {
	Freeze Freeze
	// CallbackDelay is the time from the freeze's end to the callback.
	CallbackDelay time.Duration
}

const childVariable = "WHYLATE_PROBE_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVariable); mode != "" {
		runChild(mode)
		return
	}
	os.Exit(m.Run())
}

func runChild(mode string) {
	if mode == "spin" {
		if err := quotatest.ExecPinned(2); err != nil {
			panic(err)
		}
	}
	var c childResult
	// The goroutines end with the probe, because a binary with the race detector takes a
	// second to end and must not be throttled then.
	var done atomic.Bool
	freezes := make([]timedFreeze, 0, 1000)
	run := 3 * time.Second
	p := Start(Options{OnFreeze: func(f Freeze) {
		freezes = append(freezes, timedFreeze{f, time.Since(f.End)})
	}})
	if mode == "spin" {
		for range runtime.GOMAXPROCS(0) {
			go func() {
				for !done.Load() {
				}
			}()
		}
	} else {
		time.Sleep(startDuration + 500*time.Millisecond)
		run = 5 * time.Second
	}
	start, cpu := time.Now(), processCPU()
	time.Sleep(run)
	p.Stop()
	done.Store(true)
	p.Snapshot(&c.Snapshot)
	c.FreezesByVerdict = map[cgroup.Verdict]uint64{}
	for _, v := range cgroup.Verdicts() {
		c.FreezesByVerdict[v] = c.Snapshot.FreezesBy(v).Count
	}
	c.Freezes, c.Wall, c.CPU = freezes, time.Since(start), processCPU()-cpu
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		panic(err)
	}
}

func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func runInGroup(t *testing.T, g *quotatest.Group, mode string) (c childResult, othersShare float64) {
	t.Helper()
	exe := must.Have(os.Executable())(t)
	cmd := g.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"="+mode, fmt.Sprint("GOMAXPROCS=", min(2, runtime.NumCPU())))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	busy, start := quotatest.MachineBusyTime(t), time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatalf("child: %v\n%s", err, errs.Bytes())
	}
	busy = quotatest.MachineBusyTime(t) - busy
	if err := json.Unmarshal(out.Bytes(), &c); err != nil {
		t.Fatalf("child said %q: %v", out.Bytes(), err)
	}
	othersShare = float64(busy-c.CPU) / float64(time.Since(start)) / float64(runtime.NumCPU())
	return c, othersShare
}

// disturbed reports whether other processes delayed the child so often that its freezes
// cannot be expected to agree with the quota's counters. Such freezes have the verdict
// none.
func disturbed(c childResult) bool {
	return c.FreezesByVerdict[cgroup.VerdictNone]*10 > c.Snapshot.Freezes.Count
}

// maxOthersForFreezes is the share of the machine above which other processes delay the
// child's threads too often for a comparison.
const maxOthersForFreezes = 0.4

// maxOthersForIdle is the share of the machine above which other processes make wake-ups
// of the child more expensive.
const maxOthersForIdle = 0.15

// TestFreezesAgreeWithTheKernel compares freezes by timer and CPU clock with cpu.stat's
// throttled time. The kernel counts each CPU from the time when its share of the quota
// is used up, so the two agree only roughly.
func TestFreezesAgreeWithTheKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU: the test's own parent would disturb the child")
	}
	for _, quota := range []float64{0.5, 1} {
		t.Run(fmt.Sprint("quota ", quota), func(t *testing.T) {
			var disagreeing []string
			for try := range 3 {
				g := quotatest.New(t, quota)
				c, othersShare := runInGroup(t, g, "spin")
				_, throttled, kernel := g.Stat(t)
				off := float64(c.Snapshot.FreezeCPU-kernel) / float64(kernel)
				line := fmt.Sprintf("try %d: %d freezes of %v in all, %v as CPU time; kernel %v in %d periods: off by %+.1f %%; others used %.0f %% of the machine; verdicts %v; own counter %v",
					try, c.Snapshot.Freezes.Count, c.Snapshot.FreezeTime, c.Snapshot.FreezeCPU, kernel, throttled, 100*off, 100*othersShare, c.FreezesByVerdict, c.Snapshot.Throttled.Own)
				t.Log(line)
				if math.Abs(off) <= 0.2 && freezesMatchPeriods(t, c, throttled) {
					return
				}
				// On a busy machine a disagreement is no evidence.
				if !disturbed(c) && othersShare < maxOthersForFreezes {
					disagreeing = append(disagreeing, line)
				}
			}
			if len(disagreeing) == 0 {
				t.Skip("neighbours kept the machine busy in all three tries")
			}
			if len(disagreeing) < 2 { // two must disagree
				t.Skip("only one try without neighbours, and it did not agree")
			}
			t.Error("freezes by timer do not agree with the kernel's counters within 20 %")
		})
	}
}

// freezesMatchPeriods reports whether most throttled periods have a freeze with the
// verdict own, and whether callbacks came within a period of the freeze's end.
func freezesMatchPeriods(t *testing.T, c childResult, throttled int64) bool {
	ok := true
	if n := c.Snapshot.Freezes.Count; n < uint64(throttled)*7/10 || n > uint64(throttled)*13/10 {
		t.Logf("%d freezes in %d throttled periods", n, throttled)
		ok = false
	}
	for _, f := range c.Freezes {
		if f.CallbackDelay > 100*time.Millisecond {
			t.Logf("a freeze was reported %v after its end", f.CallbackDelay)
			ok = false
		}
	}
	ownFreezes := c.FreezesByVerdict[cgroup.VerdictOwn]
	if ownFreezes*10 < c.Snapshot.Freezes.Count*9 {
		t.Logf("%d of %d freezes were called the own quota's: %v", ownFreezes, c.Snapshot.Freezes.Count, c.FreezesByVerdict)
		ok = false
	}
	return ok
}

// TestAncestorQuota runs a child in a group without a quota, whose parent has one.
func TestAncestorQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	parent := quotatest.New(t, 0.5)
	leaf := parent.Child(t, 0)
	c, othersShare := runInGroup(t, leaf, "spin")
	_, throttled, kernel := parent.Stat(t)
	if throttled < 15 {
		t.Skipf("neighbours left the parent so little that its quota ran out in %d of 30 periods", throttled)
	}
	s := &c.Snapshot
	t.Logf("%d freezes, verdicts %v; own %v ancestor %v (%s); the parent lost %v in %d periods; others used %.0f %%",
		s.Freezes.Count, c.FreezesByVerdict, s.Throttled.Own, s.Throttled.Ancestor, s.Throttled.Evidence, kernel, throttled, 100*othersShare)
	must.True(t, s.Freezes.Count != 0, "no freeze was seen")
	// All groups up to the root are visible here, so a kernel without cpu.stat.local
	// suffices.
	check.True(t, s.Throttled.Verdict == cgroup.VerdictAncestor, "verdict %q, want ancestor", s.Throttled.Verdict)
	check.Equal(t, c.FreezesByVerdict[cgroup.VerdictOwn], 0, "freezes were blamed on the own group, which has no quota")
	check.True(t, 2*c.FreezesByVerdict[cgroup.VerdictAncestor] >= uint64(throttled),
		"%d freezes were blamed on the ancestor, of %d throttled periods", c.FreezesByVerdict[cgroup.VerdictAncestor], throttled)
}

// TestIdleCost measures the whole process, with every thread the probe wakes.
func TestIdleCost(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	g := quotatest.New(t, 0)
	best := math.Inf(1)
	for range 3 {
		c, othersShare := runInGroup(t, g, "idle")
		share := c.CPU.Seconds() / c.Wall.Seconds()
		t.Logf("%.3f %% of one CPU over %v with %d ticks; others used %.0f %%", 100*share, c.Wall.Round(time.Millisecond), c.Snapshot.Ticks, 100*othersShare)
		if othersShare > maxOthersForIdle {
			continue
		}
		check.Equal(t, c.Snapshot.Interval, 250*time.Millisecond, "an idle process has ticks every")
		if best = min(best, share); best < 0.001 {
			return
		}
	}
	if math.IsInf(best, 1) {
		t.Skip("neighbours kept the machine busy in all three tries")
	}
	// Waking an idle CPU costs several times more in some virtual machines than on
	// hardware. A larger share means that a thread spins.
	check.True(t, best <= 0.005, "an idle process used %.2f %% of one CPU", 100*best)
}
