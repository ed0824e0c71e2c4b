package tune

import (
	"bufio"
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/quotatest"
)

// TestFollowsARealQuota runs a child process under a quota of its parent group, which
// the runtime does not read, and changes the quota.
func TestFollowsARealQuota(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU: GOMAXPROCS cannot differ")
	}
	parent := quotatest.New(t, 0.7)
	leaf := parent.Child(t, 0)
	next, _, end := startChild(t, leaf, "follow")
	if r := next(); r.Procs != 1 || r.Event.Action != ActionSet || r.Event.To != 1 {
		t.Errorf("parent quota of 0.7 CPUs: %+v", r)
	}
	must.Do(t, parent.Limit(1.3))
	if r := next(); r.Procs != 2 || r.Event.To != 2 {
		t.Errorf("parent quota of 1.3 CPUs: %+v", r)
	}
	must.Do(t, parent.Limit(0.2))
	if r := next(); r.Procs != 1 || r.Event.Action != ActionSet {
		t.Errorf("parent quota of 0.2 CPUs: %+v", r)
	}
	wait := end()
	if r := next(); r.Event.Action != ActionRestore {
		t.Errorf("Stop: %+v", r)
	}
	if r := next(); !r.Done || r.Procs != runtime.NumCPU() {
		t.Errorf("after Stop: GOMAXPROCS %d, want %d", r.Procs, runtime.NumCPU())
	}
	wait()
}

// TestLatencyUnderARealQuota tests PolicyLatency under a quota of 1.2 CPUs with two busy
// goroutines: nearly all periods are throttled, so GOMAXPROCS must fall from 2 to 1.
func TestLatencyUnderARealQuota(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU: GOMAXPROCS cannot be 2")
	}
	g := quotatest.New(t, 1.2)
	next, reports, end := startChild(t, g, "latency")
	if r := next(); r.Procs != 2 {
		t.Fatalf("at the start: %+v", r)
	}
	periods, throttled, _ := g.Stat(t)
	select {
	case r := <-reports:
		check.True(t, r.Procs == 1 && r.Event.Action == ActionSet, "%+v", r)
	case <-time.After(20 * time.Second):
		p, th, _ := g.Stat(t)
		if share := float64(th-throttled) / float64(max(1, p-periods)); share < 0.5 {
			t.Skipf("neighbours left so little that only %.0f %% of the periods were throttled", 100*share)
		}
		t.Error("throttled for 20 s, and no step down")
	}
	wait := end()
	for {
		if r := next(); r.Done {
			break
		}
	}
	wait()
}

// TestCrowdedByRealProcesses runs a busy service under a quota of one CPU and two busy
// threads in another group of the same weight: with one P the service gets about two
// thirds of a CPU, so GOMAXPROCS must rise to 2.
func TestCrowdedByRealProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("runs for some seconds")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("one CPU: GOMAXPROCS cannot be 2")
	}
	neighbours, g := quotatest.New(t, 0), quotatest.New(t, 1)
	for _, g := range []*quotatest.Group{neighbours, g} {
		g.Weight(t, 1)
	}
	_, _, endOther := startChild(t, neighbours, "neighbour")
	defer func() { endOther()() }()
	next, reports, end := startChild(t, g, "crowded")
	if r := next(); r.Procs != 1 {
		t.Fatalf("at the start: %+v", r)
	}
	start, before := time.Now(), g.Used(t)
	select {
	case r := <-reports:
		check.Equal(t, r.Procs, 2, "%+v", r)
	case <-time.After(20 * time.Second):
		if used := (g.Used(t) - before).Seconds() / time.Since(start).Seconds(); used > 0.8 {
			t.Skipf("one P got %.2f CPUs: the neighbours did not take their part", used)
		}
		t.Error("kept from its quota for 20 s, and still one P")
	}
	wait := end()
	for {
		if r := next(); r.Done {
			break
		}
	}
	wait()
}

// startChild starts a child in a group. It returns its reports, one at a time or as a
// channel, and a function that ends it.
func startChild(t *testing.T, g *quotatest.Group, mode string) (next func() report, reports <-chan report, end func() (wait func())) {
	t.Helper()
	exe := must.Have(os.Executable())(t)
	cmd := g.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"="+mode)
	cmd.Stderr = os.Stderr
	stdin := must.Have(cmd.StdinPipe())(t)
	stdout := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	waited := false
	t.Cleanup(func() {
		if !waited {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	// The capacity exceeds a child's reports, so that the reader always ends.
	received := make(chan report, 1000)
	go func() {
		defer close(received)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				received <- r
			}
		}
	}()
	next = func() report {
		r, ok := <-received
		if !ok {
			t.Error("the child ended early")
			return report{Done: true}
		}
		t.Log(r.Event)
		return r
	}
	end = func() func() {
		if err := stdin.Close(); err != nil {
			t.Error(err)
		}
		return func() {
			waited = true
			if err := cmd.Wait(); err != nil {
				t.Errorf("child: %v", err)
			}
		}
	}
	return next, received, end
}
