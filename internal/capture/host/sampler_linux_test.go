package host

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
)

// taken samples a process for a while and reads the samples back.
func taken(t *testing.T, pid int, d time.Duration) (*Samples, *Recording) {
	t.Helper()
	s, err := Start(Options{PID: pid})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(d) // the length of the measurement
	return readBack(t, s.Stop())
}

func readBack(t *testing.T, rec *Recording) (*Samples, *Recording) {
	t.Helper()
	samples, err := Read(bytes.NewReader(rec.Data))
	if err != nil {
		t.Fatalf("%v\n%s", err, rec.Data[:min(len(rec.Data), 2000)])
	}
	return samples, rec
}

// whole is the view of all of a recording, on the samples' own clock.
func (s *Samples) whole() view {
	return view{s: s, start: s.points[0].mono, from: s.points[0].mono, to: s.points[len(s.points)-1].mono}
}

func (s *Samples) hostOf(t *testing.T) *report.Host {
	t.Helper()
	v := s.whole()
	h, err := s.Summarize(Window{Start: v.from, End: v.to, Snapshot: snapshotOf(s), At: v.from}, &report.Report{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The process stands still while the kernel's counters are read and sampling
// begins and ends, so the two must agree to the nanosecond.
func TestThrottledTimeIsTheKernels(t *testing.T) {
	for _, where := range []string{"own", "ancestor"} {
		t.Run(where, func(t *testing.T) {
			limited := testchild.NewGroup(t, nil, 0.5)
			in := limited
			if where == "ancestor" {
				in = testchild.NewGroup(t, limited, 0)
			}
			cmd, _ := start(t, in, "busy 4")
			fromPeriods, from := halt(t, limited, cmd)
			s, err := Start(Options{PID: cmd.Process.Pid})
			if err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(1500 * time.Millisecond) // the length of the measurement
			toPeriods, to := halt(t, limited, cmd)
			samples, rec := readBack(t, s.Stop())
			h := samples.hostOf(t)
			got, periods := h.Quota.OwnNS, h.Quota.ThrottledPeriods
			if where == "ancestor" {
				got = samples.points[len(samples.points)-1].ancestor - samples.points[0].ancestor
				periods = samples.points[len(samples.points)-1].ancestorPeriods - samples.points[0].ancestorPeriods
			}
			if got != to-from || periods != toPeriods-fromPeriods || to == from {
				t.Errorf("throttled %d ns in %d periods by the samples, %d ns in %d by the kernel", got, periods, to-from, toPeriods-fromPeriods)
			}
			if string(h.Quota.Verdict) != where || !strings.Contains(limited.Dir, h.Quota.Group) || h.Quota.Group == "" {
				t.Errorf("verdict %q (%s), group %q, want %q and the end of %s", h.Quota.Verdict, h.Quota.How, h.Quota.Group, where, limited.Dir)
			}
			if h.Facts.QuotaCPUs != 0.5 || h.Facts.QuotaFrom == "" || (h.Facts.QuotaDepth == 0) != (where == "own") {
				t.Errorf("facts %+v", h.Facts)
			}
			// Of the ancestor's throttled time this group's part is what cpu.stat.local says.
			if where == "own" && *h.Lost.QuotaNS < got*9/10 {
				t.Errorf("lost %d ns to the quota, throttled %d", *h.Lost.QuotaNS, got)
			}
			// How much of the rest is the run queue's depends on the machine's neighbours; but nothing is left out.
			if *h.Lost.QuotaNS == 0 || *h.Lost.QuotaNS+*h.Lost.RunQueueNS+*h.Lost.UnsplitNS < *h.Lost.RunDelayNS {
				t.Errorf("lost time: quota %d, run queue %d, unsplit %d of delay %d", *h.Lost.QuotaNS, *h.Lost.RunQueueNS, *h.Lost.UnsplitNS, *h.Lost.RunDelayNS)
			}
			t.Logf("quota %.3fs, run queue %.3fs, unsplit %.3fs, delay %.3fs, cpu %.3fs; sampling took %v for %d samples",
				sec(*h.Lost.QuotaNS), sec(*h.Lost.RunQueueNS), sec(*h.Lost.UnsplitNS), sec(*h.Lost.RunDelayNS), sec(*h.Lost.CPUNS), rec.Cost, rec.Samples)
		})
	}
}

func sec(ns int64) float64 { return float64(ns) / 1e9 }

// Neighbours without any quota: all the lost time is the run queue's.
func TestRunQueueUnderNeighbours(t *testing.T) {
	testfull.Need(t, "neighbours that use up the machine")
	cmd, _ := start(t, nil, "busy 2")
	start(t, nil, fmt.Sprintf("busy %d", 2*runtime.NumCPU()))
	samples, _ := taken(t, cmd.Process.Pid, 1500*time.Millisecond)
	h := samples.hostOf(t)
	if h.Lost.RunDelayNS == nil {
		t.Skip("this kernel has no schedstat of threads")
	}
	if h.Quota.Verdict == "own" {
		t.Errorf("verdict %q: %s", h.Quota.Verdict, h.Quota.How)
	}
	if h.Quota.Verdict == "ancestor" || h.Lost.RunQueueNS == nil {
		t.Skipf("this test runs below a quota, or where that cannot be known: %s", h.Quota.How)
	}
	// Twice as many neighbours as CPUs take at least a third of what two threads want. A wait is counted when it ends,
	// which on a machine that is busier still may be after the last sample: a tenth is enough.
	if want := int64(2*1500*time.Millisecond) / 10; *h.Lost.RunQueueNS < want {
		t.Errorf("waited %.3f s in the run queue, want at least %.3f", sec(*h.Lost.RunQueueNS), sec(want))
	}
	if *h.Lost.QuotaNS != 0 || *h.Lost.UnsplitNS != 0 || *h.Lost.RunQueueNS != *h.Lost.RunDelayNS {
		t.Errorf("quota %d, unsplit %d, run queue %d of delay %d", *h.Lost.QuotaNS, *h.Lost.UnsplitNS, *h.Lost.RunQueueNS, *h.Lost.RunDelayNS)
	}
}

// CPU time by the threads' schedstat is the process's, as the kernel gives it
// when it has ended.
func TestCPUTimeIsTheProcesss(t *testing.T) {
	cmd, _ := start(t, nil, "busy 1")
	s, err := Start(Options{PID: cmd.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(700 * time.Millisecond) // the length of the measurement
	stopAll(t, cmd)
	samples, _ := readBack(t, s.Stop()) // the last sample is taken now
	cmd.Process.Kill()
	cmd.Wait()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	last := samples.points[len(samples.points)-1]
	// Starting and ending the process is the kernel's part alone.
	if got := time.Duration(last.run); last.run == absent || got > used+20*time.Millisecond || got < used-20*time.Millisecond {
		t.Errorf("%v of CPU time by the threads, %v by the kernel", got, used)
	}
	if len(samples.points) < 3 {
		t.Errorf("%d samples of 0.7 s", len(samples.points))
	}
}

// A process that ends meanwhile is told as such, with what there was until then.
func TestEndedMeanwhile(t *testing.T) {
	cmd, _ := start(t, nil, "busy 1")
	s, err := Start(Options{PID: cmd.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	samples, rec := readBack(t, s.Stop())
	if !slices.ContainsFunc(rec.Warnings, func(w bundle.Warning) bool { return w.Code == WarnEnded }) {
		t.Errorf("no warning that the process has ended: %v", rec.Warnings)
	}
	if len(samples.points) == 0 {
		t.Error("the first sample is lost")
	}
}

func TestNoSuchProcess(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Skip(err)
	}
	if _, err := Start(Options{PID: cmd.Process.Pid}); err == nil || !strings.Contains(err.Error(), "no process") {
		t.Errorf("error %v", err)
	}
}

// Another user may read CPU time and limits, but not whose the sockets are.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	cmd, _ := start(t, nil, "busy 1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread's identity is spoilt: it ends with this goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Errorf("becoming nobody: %v", errno)
			return
		}
		warnings := []bundle.Warning{}
		f := facts(cmd.Process.Pid, func(code, text string) { warnings = append(warnings, bundle.Warning{Code: code, Text: text}) })
		if f.Kernel == "" || f.CPUs == 0 {
			t.Errorf("facts %+v, warnings %v", f, warnings)
		}
		if _, err := openSockets(cmd.Process.Pid, false); err == nil || !strings.Contains(why(err), "run as the service's user, or as root") {
			t.Errorf("sockets of another user's process: %v", err)
		}
		th, err := openThreads(cmd.Process.Pid)
		if err != nil {
			t.Errorf("threads of another user's process: %v", err)
			return
		}
		defer th.close()
		if run, _, err := th.read(-1); err != nil || run == 0 {
			t.Errorf("run %d, %v", run, err)
		}
	}()
	<-done
}

// Sockets of a process in another network namespace are asked for there.
func TestOtherNetworkNamespace(t *testing.T) {
	cmd, addr := start(t, nil, "pair")
	samples, rec := taken(t, cmd.Process.Pid, 50*time.Millisecond)
	if rec.Facts == nil || !rec.Facts.OtherNetwork || len(rec.Warnings) != 0 {
		t.Errorf("facts %+v, warnings %v", rec.Facts, rec.Warnings)
	}
	found := false
	for k, c := range samples.conns {
		found = found || k.local.String() == addr && c.state == "ESTABLISHED" && !c.peer
	}
	if !found || samples.count != 2 {
		t.Errorf("%d connections %v, want two, one from %s", samples.count, samples.conns, addr)
	}
}
