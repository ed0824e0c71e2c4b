package host

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// sampleFor samples a process for a duration and reads the samples back.
func sampleFor(t *testing.T, pid int, d time.Duration) (*Samples, *Recording) {
	t.Helper()
	s := must.Have(Start(Options{PID: pid}))(t)
	time.Sleep(d) // the length of the measurement
	return readBack(t, s.Stop())
}

func readBack(t *testing.T, rec *Recording) (*Samples, *Recording) {
	t.Helper()
	samples, err := Read(bytes.NewReader(rec.Data))
	must.True(t, err == nil, "%v\n%s", err, rec.Data[:min(len(rec.Data), 2000)])
	return samples, rec
}

// The CPU time of the threads, by schedstat, agrees with the CPU time that the kernel reports when the
// process ends.
func TestCPUTimeIsTheProcesss(t *testing.T) {
	cmd, _ := start(t, nil, "busy 1")
	s := must.Have(Start(Options{PID: cmd.Process.Pid}))(t)
	time.Sleep(700 * time.Millisecond) // the length of the measurement
	stopAll(t, cmd)
	samples, _ := readBack(t, s.Stop()) // takes the last sample
	cmd.Process.Kill()
	cmd.Wait()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	last := samples.Points[len(samples.Points)-1]
	// Only the kernel's time includes the start and the end of the process.
	must.True(t, last.RunNS != nil, "no CPU time by the threads")
	if got := time.Duration(*last.RunNS); got > used+20*time.Millisecond || got < used-20*time.Millisecond {
		t.Errorf("%v of CPU time by the threads, %v by the kernel", got, used)
	}
	check.True(t, len(samples.Points) >= 3, "%d samples of 0.7 s", len(samples.Points))
}

// A recording of a process that ends during sampling has a warning and the samples until then.
func TestEndedMeanwhile(t *testing.T) {
	cmd, _ := start(t, nil, "busy 1")
	s := must.Have(Start(Options{PID: cmd.Process.Pid}))(t)
	cmd.Process.Kill()
	cmd.Wait()
	samples, rec := readBack(t, s.Stop())
	check.True(t, slices.ContainsFunc(rec.Warnings, func(w bundle.Warning) bool { return w.Code == WarnEnded }),
		"no warning that the process has ended: %v", rec.Warnings)
	check.True(t, len(samples.Points) != 0, "the first sample is lost")
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

// Another user may read CPU time and limits of a process, but not which sockets it has.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	cmd, _ := start(t, nil, "busy 1")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread has another user now, so it must end with this goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Errorf("becoming nobody: %v", errno)
			return
		}
		warnings := []bundle.Warning{}
		f := facts(cmd.Process.Pid, func(code, text string) { warnings = append(warnings, bundle.Warning{Code: code, Text: text}) })
		check.True(t, f.Kernel != "" && f.CPUs != 0, "facts %+v, warnings %v", f, warnings)
		if _, err := openSockets(cmd.Process.Pid, ""); err == nil || !strings.Contains(errorWithHint(err), "run as the service's user, or as root") {
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

// If the process's network namespace cannot be entered, openSockets returns an error and no
// socketPoller.
func TestNamespaceOutOfReach(t *testing.T) {
	if s, err := openSockets(os.Getpid(), "/proc/self/ns/none"); s != nil || err == nil {
		t.Errorf("%v, %v", s, err)
	}
}

// The sockets of a process in another network namespace are read in that namespace.
func TestOtherNetworkNamespace(t *testing.T) {
	cmd, addr := start(t, nil, "pair")
	samples, rec := sampleFor(t, cmd.Process.Pid, 50*time.Millisecond)
	check.True(t, rec.Facts != nil && rec.Facts.OtherNetwork && len(rec.Warnings) == 0, "facts %+v, warnings %v", rec.Facts, rec.Warnings)
	found := false
	for k, c := range samples.Connections {
		found = found || k.Local.String() == addr && c.Last.State == "ESTABLISHED" && !c.Peer
	}
	check.True(t, found && samples.MaxConnections == 2,
		"%d connections %v, want two, one from %s", samples.MaxConnections, samples.Connections, addr)
}
