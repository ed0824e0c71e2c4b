package sweep

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
	"github.com/whylate/whylate/internal/experiment/guard"
	"github.com/whylate/whylate/internal/experiment/load"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
)

func TestMain(m *testing.M) {
	testchild.Main(m, func(kind, arg string) error {
		switch kind {
		case "guard":
			return guard.Run(os.Stdin, os.Stdout)
		case "serve":
			return serve(arg)
		case "sweep":
			return sweepChild(arg)
		}
		return fmt.Errorf("no child %q", kind)
	})
}

// serve is the service: MODE in its environment selects its defect.
func serve(addr string) error {
	mode, _, _ := strings.Cut(os.Getenv("MODE"), " ")
	switch mode {
	case "die":
		return errors.New("no configuration")
	case "hang":
		time.Sleep(time.Hour)
	case "late":
		time.Sleep(300 * time.Millisecond)
	}
	// A grandchild that has left session and group, and writes down who it is.
	if file := os.Getenv("GRANDCHILD"); file != "" {
		cmd := exec.Command("sh", "-c", `echo $$ >>"$0"; exec sleep 1000`, file)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	requests := 0
	http.HandleFunc("/work", func(w http.ResponseWriter, _ *http.Request) {
		if requests++; mode == "dies-later" && requests > 20 {
			os.Exit(7)
		}
		for begin := time.Now(); time.Since(begin) < time.Millisecond; {
		}
		fmt.Fprint(w, os.Getenv("GOMAXPROCS"))
	})
	return http.ListenAndServe(addr, nil)
}

// needFull skips a test that starts services and takes seconds.
func needFull(t *testing.T) {
	t.Helper()
	if os.Getenv("WHYLATE_FULL") == "" {
		t.Skip("starts services and loads them for some seconds: WHYLATE_FULL=1 runs it")
	}
}

// options returns options for a sweep with this test program as the service.
func options(t *testing.T, axes ...Axis) Options {
	t.Helper()
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Close()
	return optionsAt(l.Addr().String(), axes...)
}

func optionsAt(addr string, axes ...Axis) Options {
	return Options{
		Command: []string{os.Args[0]}, Env: append(os.Environ(), "WHYLATE_TEST_CHILD=serve "+addr), Axes: append(axes, Axis{Rate, []string{"100"}}),
		Runs: 2, Measure: 300 * time.Millisecond, Warmup: 100 * time.Millisecond, Load: load.Options{Targets: []load.Target{{URL: "http://" + addr + "/work"}}},
		Guard: func() *exec.Cmd { c := testchild.Command("guard"); c.Stderr = nil; return c }, ReadyTimeout: 3 * time.Second, Seed: 1,
	}
}

func wantNoGroups(t *testing.T) {
	t.Helper()
	if groups := groupsOf(os.Getpid()); len(groups) > 0 {
		t.Errorf("cgroups were left: %v", groups)
	}
	if groups := guard.Descendants(os.Getpid()); len(groups) > 0 {
		t.Errorf("processes were left: %v", groups)
	}
}

// groupsOf returns the sweep's cgroups that a process has created.
func groupsOf(pid int) []string {
	a, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/*/%s-%d-*", owner, pid))
	b, _ := filepath.Glob(fmt.Sprintf("/sys/fs/cgroup/%s-%d-*", owner, pid))
	return append(a, b...)
}

// TestDo: a service that dies, hangs, opens its port late or dies under load gives a clear error, and
// the runs of the other arms have figures.
func TestDo(t *testing.T) {
	needFull(t)
	o := options(t, Axis{"MODE", []string{"ok", "die", "hang", "late", "dies-later"}})
	o.ReadyTimeout = 1500 * time.Millisecond
	saved := 0
	o.Save = func(r *Result) error { saved = len(r.Measurements); return nil }
	r := must.Have(Do(context.Background(), o))(t)
	want := map[string]string{"die": "the service ended before it was ready (exit status 1); its last output: no configuration", "hang": "was not ready within 1.5s", "dies-later": "the service ended during the run (exit status 7)"}
	for _, a := range r.Arms {
		mode := a.Settings["MODE"]
		switch {
		case want[mode] == "" && (a.Runs != 2 || a.P99 == nil || a.P99.Est < 1e6 || a.CPUPerRequest.Est < 0.5e6 || a.MemoryPeak.Est < 1e6 || a.Threads.Est < 2):
			t.Errorf("%s: %+v", mode, a)
		case want[mode] != "" && (a.Runs != 0 || a.Failed != 2 || len(a.Errors) == 0 || !strings.Contains(strings.Join(a.Errors, "\n"), want[mode])):
			t.Errorf("%s: %d runs, %d failed: %q", mode, a.Runs, a.Failed, a.Errors)
		}
	}
	check.Equal(t, saved, 10, "runs were saved")
	wantNoGroups(t)
}

// TestResume: runs of an earlier result are not repeated, and the figures include them. A file that
// cannot be written loses no run.
func TestResume(t *testing.T) {
	needFull(t)
	o := options(t, Axis{GOMAXPROCS, []string{"1", "2"}})
	o.Runs = 1
	first := must.Have(Do(context.Background(), o))(t)
	o.Runs = 2
	must.Do(t, o.Resume(first))
	full := errors.New("no space left on device")
	o.Save = func(*Result) error { return full }
	made := 0
	o.Progress = func(Progress) { made++ }
	r, err := Do(context.Background(), o)
	check.True(t, errors.Is(err, full), "the error does not report the full disk: %v", err)
	check.True(t, made == 2 && len(r.Measurements) == 4 && r.Arms[0].Runs == 2 && r.Measurements[0].Start.Equal(first.Measurements[0].Start),
		"%d runs were made, there are %d", made, len(r.Measurements))
}

// TestInterrupt: finished runs stay in the result, and no process or cgroup remains.
func TestInterrupt(t *testing.T) {
	needFull(t)
	o := options(t, Axis{GOMAXPROCS, []string{"1"}})
	o.Runs = 50
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o.Progress = func(p Progress) {
		if p.Done == 2 {
			time.AfterFunc(200*time.Millisecond, cancel)
		}
	}
	r, err := Do(ctx, o)
	check.True(t, errors.Is(err, context.Canceled) && r != nil && len(r.Measurements) >= 2 && len(r.Measurements) <= 3, "%+v, %v", r, err)
	wantNoGroups(t)
}

// TestLimits: the throttled time is the kernel's, the memory limit kills, and instances share both
// limits.
func TestLimits(t *testing.T) {
	needFull(t)
	if os.Getuid() != 0 {
		t.Skip("making a cgroup needs root")
	}
	o := options(t, Axis{Quota, []string{"0.05", "2"}}, Axis{Instances, []string{"1", "2"}})
	o.Env = append(os.Environ(), "WHYLATE_TEST_CHILD=serve 127.0.0.1:{port}")
	// The address is in the environment of this test program, not in its arguments.
	o.Command = []string{"sh", "-c", `WHYLATE_TEST_CHILD="serve 127.0.0.1:{port}" exec "$0"`, os.Args[0]}
	o.Load.Targets[0].URL = "http://127.0.0.1:{port}/work"
	o.Measure = time.Second
	r := must.Have(Do(context.Background(), o))(t)
	for _, a := range r.Arms {
		must.True(t, a.Runs == 2 && a.Throttled != nil, "%+v", a)
		if tight := a.Settings["quota"] == "0.05"; tight != (a.Throttled.Est > 200e6) || tight != (a.ThrottledShare.Est > 0.5) {
			t.Errorf("%v: %v ns throttled, in %v of the periods", a.Settings, a.Throttled.Est, a.ThrottledShare.Est)
		}
	}
	wantNoGroups(t)
}

// TestTrace: an arm has causes.
func TestTrace(t *testing.T) {
	needFull(t)
	o := options(t, Axis{GOMAXPROCS, []string{"2"}})
	o.Runs, o.Trace = 1, time.Second
	r := must.Have(Do(context.Background(), o))(t)
	sum := 0.0
	for _, c := range r.Arms[0].Causes {
		sum += c.ShareAll
	}
	check.True(t, len(r.Arms[0].Causes) != 0 && sum >= 0.97 && sum <= 1.001 && r.Arms[0].GCs != nil, "causes %+v, warnings %v", r.Arms[0].Causes, r.Warnings)
}

// TestLoadShare: the service's capacity is measured once for each of its settings, and the rate of a
// run is a share of it.
func TestLoadShare(t *testing.T) {
	needFull(t)
	o := options(t, Axis{LoadShare, []string{"20%", "40%"}})
	o.Axes = o.Axes[:1]
	o.Runs = 1
	o.LoadCPUs = cpugroup.AllowedCPUs()[:1]
	before := cpugroup.AllowedCPUs()
	var reports []Progress
	o.Progress = func(p Progress) { reports = append(reports, p) }
	r := must.Have(Do(context.Background(), o))(t)
	if r.LoadCPUs != 1 || len(r.CPUs) != 0 || !slices.Equal(cpugroup.AllowedCPUs(), before) || slices.ContainsFunc(r.Warnings, func(w Warning) bool { return w.Code == "shared-cpus" }) {
		t.Errorf("%d CPUs for the load, %v for the service, %v after it: %+v", r.LoadCPUs, r.CPUs, cpugroup.AllowedCPUs(), r.Warnings)
	}
	check.True(t, len(reports) == 3 && reports[0].Done == 0 && reports[1].Done == 0 && reports[2].Done == 1 && reports[0].Total == 2,
		"progress %+v", reports)
	capacity := r.Saturation[""]
	must.True(t, len(r.Saturation) == 1 && capacity >= 20, "at most %v", r.Saturation)
	for _, m := range r.Measurements {
		share := must.Have(parseShare(m.Settings[LoadShare]))(t)
		if got := m.Load.RequestedPerS; got < share*capacity*0.9-5 || got > share*capacity*1.1+5 {
			t.Errorf("%s of %v: %v were requested", m.Settings[LoadShare], capacity, got)
		}
	}
	wantNoGroups(t)
}

// TestPortInUse: a process that already listens at the address is an error.
func TestPortInUse(t *testing.T) {
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	if _, err := Do(context.Background(), optionsAt(l.Addr().String())); err == nil || !strings.Contains(err.Error(), "already listens at") {
		t.Errorf("%v", err)
	}
}

// sweepChild sweeps until it is killed.
func sweepChild(addr string) error {
	o := optionsAt(addr, Axis{GOMAXPROCS, []string{"1"}})
	o.Runs, o.Measure = 1, time.Minute
	_, err := Do(context.Background(), o)
	return err
}

// TestKilled: a sweep killed by SIGKILL leaves no cgroup and no process, not even a child of the
// service in another session. If its guard is killed, too, the next sweep removes the cgroup.
func TestKilled(t *testing.T) {
	needFull(t)
	for _, guardToo := range []bool{false, true} {
		t.Run(fmt.Sprintf("guard killed %v", guardToo), func(t *testing.T) {
			l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
			l.Close()
			file := filepath.Join(t.TempDir(), "pids")
			cmd := testchild.Command("sweep " + l.Addr().String())
			cmd.Env = append(cmd.Env, "GRANDCHILD="+file)
			must.Do(t, cmd.Start())
			sweepPID := cmd.Process.Pid
			deadline := time.Now().Add(30 * time.Second)
			for !isListening("http://"+l.Addr().String()) && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			tree := guard.Descendants(sweepPID)
			check.True(t, len(tree) >= 3, "only %v run below the sweep", tree)
			grouped := len(groupsOf(sweepPID)) > 0
			must.Do(t, cmd.Process.Kill())
			if guardToo {
				_ = syscall.Kill(tree[0], syscall.SIGKILL)
			}
			_ = cmd.Wait()
			if guardToo && grouped {
				if n, err := cpugroup.RemoveOrphaned(owner, nil); n < 1 || err != nil {
					t.Errorf("%d cgroups removed, %v", n, err)
				}
			}
			for _, pid := range append(tree, pidsIn(t, file)...) {
				for isGone := false; !isGone; {
					b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
					isGone = err != nil || strings.Contains(string(b), ") Z ")
					if !isGone && time.Now().After(deadline) {
						t.Errorf("process %d is left: %s", pid, b)
						_ = syscall.Kill(pid, syscall.SIGKILL)
						isGone = true
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
			for len(groupsOf(sweepPID)) > 0 && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if groups := groupsOf(sweepPID); len(groups) > 0 {
				t.Errorf("cgroups were left: %v", groups)
			}
		})
	}
}

func pidsIn(t *testing.T, file string) (pids []int) {
	f, err := os.Open(file)
	if err != nil {
		t.Errorf("no grandchild began: %v", err)
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if pid, err := strconv.Atoi(lines.Text()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestParseGC(t *testing.T) {
	for line, want := range map[string]int64{
		"gc 7 @1.234s 2%: 0.018+1.3+0.076 ms clock, 0.15+0.6/1.2/0.3+0.61 ms cpu, 4->5->2 MB, 5 MB goal, 0 MB stacks, 0 MB globals, 8 P": 2560000,
		"gc 8 @2s 2%: 0.018+1.3+0.076 ms clock, 0+0/0/0+0 ms cpu, 4->5->2 MB, 5 MB goal, 0 MB stacks, 0 MB globals, 8 P (forced)":        0,
		"gc collected the rubbish": -1, "2026/11/22 gc 7 @1": -1, "gc 7 ms clock, x ms cpu": -1, "": -1,
	} {
		if got, ok := parseGC(line); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v", line, got, ok)
		}
	}
	var o output
	for _, line := range []string{"a", strings.Repeat("x", 8<<10), "last \x1b[2J words"} {
		o.addLine(line)
	}
	if tail := o.lastLines(); !strings.HasPrefix(tail, "; its last output: a / xxx") || strings.Contains(tail, "\x1b") || len(tail) > 400 {
		t.Errorf("%q", tail)
	}
}
