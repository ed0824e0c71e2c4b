package systemtest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

func TestMain(m *testing.M) { testchild.Main(m, runChild) }

// runChild runs a service, or a whole scenario in its own network namespace, in a child process.
func runChild(kind, arg string) error {
	switch kind {
	case "calls":
		if err := serveCalls(arg); err != nil {
			return err
		}
	case "asker":
		if err := serveAsker(arg); err != nil {
			return err
		}
	case "backend":
		var percent, delayMS int
		if _, err := fmt.Sscan(arg, &percent, &delayMS); err != nil {
			return err
		}
		addr, err := lossyBackend(percent, time.Duration(delayMS)*time.Millisecond)
		if err != nil {
			return err
		}
		fmt.Println(addr)
	case "scenario":
		var percent, delayMS int
		if _, err := fmt.Sscan(arg, &percent, &delayMS); err != nil {
			return err
		}
		return runLossScenario(percent, time.Duration(delayMS)*time.Millisecond)
	case "shop":
		if err := serveShop(arg); err != nil {
			return err
		}
	default:
		return fmt.Errorf("no such child: %q", kind)
	}
	return testchild.Wait()
}

// recordAndExplain saves a recording of a service and explains it.
func recordAndExplain(dir, target string, d time.Duration) (*report.Report, *bundle.File, error) {
	name := filepath.Join(dir, "x"+record.BundleExt)
	if _, err := record.Save(context.Background(), target, record.Options{Duration: d, NoAllocs: true, Proxy: "none"}, name, "test", nil); err != nil {
		return nil, nil, err
	}
	b, err := bundle.Open(name)
	if err != nil {
		return nil, nil, err
	}
	samples, err := b.HostSamples()
	if err != nil {
		return nil, nil, errors.Join(err, fmt.Errorf("warnings: %v", b.Meta().Warnings))
	}
	trace, _, err := b.Trace()
	if err != nil {
		return nil, nil, err
	}
	defer trace.Close()
	rep, err := whylate.Explain(context.Background(), trace, whylate.Options{Name: "x", Host: bytes.NewReader(samples)})
	return rep, b, err
}

// scenarioResult is the output of a scenario.
type scenarioResult struct {
	Report        *report.Report
	Retransmitted int // segments that the service's sockets retransmitted during the recording
	BackendAddr   string
}

// runLossScenario records a service that calls a backend whose kernel drops a share of the incoming segments.
func runLossScenario(percent int, delay time.Duration) error {
	if err := testchild.LoopbackUp(); err != nil {
		return err
	}
	// The backend needs its own process, because a recording leaves out the connections of the recording process.
	remote, stopBackend, err := testchild.Start(testchild.Command(fmt.Sprintf("backend %d %d", percent, delay.Milliseconds())))
	if err != nil {
		return err
	}
	defer stopBackend()
	addr, stop, err := testchild.Start(testchild.Command("calls " + remote))
	if err != nil {
		return err
	}
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		requestUntilDone(ctx, "http://"+addr+"/ask", 4)
	}()
	defer func() { cancel(); <-done }()
	before, err := getNumber("http://" + addr + "/again")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "whylate-scenario-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rep, b, err := recordAndExplain(dir, addr, 3*time.Second)
	if err != nil {
		return err
	}
	b.Close()
	after, err := getNumber("http://" + addr + "/again")
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(scenarioResult{Report: rep, Retransmitted: after - before, BackendAddr: remote})
}

func startScenario(t *testing.T, percent int, delay time.Duration) scenarioResult {
	t.Helper()
	testfull.Need(t, "a network that loses packets, for seconds")
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	cmd := testchild.Command(fmt.Sprintf("scenario %d %d", percent, delay.Milliseconds()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.Output()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) {
		t.Skipf("making a network namespace: %v", err)
	}
	must.Do(t, err)
	var got scenarioResult
	must.Do(t, json.Unmarshal(out, &got))
	must.True(t, got.Report.Host != nil, "no host samples in the report: %v", got.Report.Input.Warnings)
	return got
}

func hostText(t *testing.T, rep *report.Report) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, text.Write(&b, rep, text.Options{Width: 100, Full: true}))
	_, host, _ := strings.Cut(b.String(), "\nhost ")
	return "host " + host
}

// TestLossyNetworkIsNamed: a backend's kernel drops a tenth of the segments with requests, so the service's kernel retransmits
// them. The report finds the lossy network, with socket and time.
func TestLossyNetworkIsNamed(t *testing.T) {
	// On a busy machine, the kernel may retransmit segments that were not lost, and requests may also wait for a P: one of
	// three runs must be right.
	var err error
	for range 3 {
		got := startScenario(t, 10, 2*time.Millisecond)
		if err = lossError(got); err == nil {
			n := got.Report.Host.Network
			t.Logf("%d of %d segments retransmitted: %s", n.Retransmitted, got.Retransmitted, hostText(t, got.Report))
			return
		}
		t.Log(err)
	}
	t.Error(err)
}

func lossError(got scenarioResult) error {
	var wrong []error
	addError := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	n := got.Report.Host.Network
	if got.Retransmitted == 0 {
		return errors.New("no segment was lost")
	}
	if n.Verdict != report.NetworkLost {
		addError("verdict %q: %s", n.Verdict, n.Text)
	}
	// The service counts a little longer at both ends.
	if n.Retransmitted == 0 || n.Retransmitted > int64(got.Retransmitted) || n.Retransmitted < int64(got.Retransmitted)/3 {
		addError("%d segments retransmitted by the samples, %d by the service's own count", n.Retransmitted, got.Retransmitted)
	}
	for _, s := range n.Sockets {
		// Lost acknowledgements make the backend retransmit, too.
		if to := map[bool]string{false: s.Remote, true: s.Local}[s.Peer]; s.Retransmitted > 0 && (to != got.BackendAddr || len(s.WhenNS) == 0) {
			addError("socket %+v, want one to %s", s, got.BackendAddr)
		}
	}
	if len(n.Requests) == 0 {
		return errors.Join(append(wrong, errors.New("no slow request waited during the loss"))...)
	}
	w := n.Requests[0]
	if w.DurationNS < 150e6 || len(w.Sockets) == 0 || !strings.HasSuffix(w.Sockets[0], " -> "+got.BackendAddr) || w.Site == nil {
		addError("wait %+v", w)
	}
	f := findingOf(got.Report, "WL2008")
	if f == nil || f.Severity != report.SeverityHigh || f.Cause != "network" || f.Site == nil || !strings.Contains(f.Title, got.BackendAddr) {
		addError("finding %+v", f)
	}
	return errors.Join(wrong...)
}

// TestSoundNetworkIsCleared: with a slow backend and no loss, the report says that the network is not the cause.
func TestSoundNetworkIsCleared(t *testing.T) {
	got := startScenario(t, 0, 20*time.Millisecond)
	n := got.Report.Host.Network
	if got.Retransmitted > 0 || n.OutOfOrder > 0 {
		t.Skipf("the machine is so busy that its kernel retransmitted %d segments without any loss", got.Retransmitted)
	}
	if n.Verdict == report.NetworkUnknown && strings.Contains(n.Text, "poll gaps") {
		t.Skip("the machine is so busy that no P polled the network for long: the verdict is rightly unknown")
	}
	check.True(t, n.Verdict == report.NetworkCleared && got.Retransmitted == 0 && n.Retransmitted == 0 && len(n.Requests) == 0,
		"verdict %q: %s; %+v", n.Verdict, n.Text, n)
	check.True(t, strings.Contains(n.Text, "the other side's answer"), "text %q does not name the other side's answer", n.Text)
	if f := findingOf(got.Report, "WL2008"); f != nil {
		t.Errorf("finding %+v", f)
	}
	peer := findingOf(got.Report, "WL2005")
	check.True(t, peer != nil && strings.Contains(fmt.Sprint(peer.Evidence), "the network is cleared"),
		"the finding about the peer does not say that the network is cleared: %+v", peer)
	t.Log(hostText(t, got.Report))
	check.True(t, n.Connections != 0 && len(n.Sockets) != 0 && n.Sockets[0].RTTNS != 0, "connections %d, %+v", n.Connections, n.Sockets)
}

// TestRecordingUnderAQuota: for a service of lab/truth under a real quota, the recording's host samples show whose quota it
// was and how much of the trace's time it took.
func TestRecordingUnderAQuota(t *testing.T) {
	group := testchild.NewGroup(t, nil, 0.5)
	cmd := exec.Command(testprog.Build(t, "lab/truth"), "serve", "-hogs=3", "-procs=4", "cpu-handler")
	group.Attach(cmd)
	in := must.Have(cmd.StdinPipe())(t)
	out := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	defer func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	addr := ""
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "ready"; {
		if a, ok := strings.CutPrefix(lines.Text(), "pprof on "); ok {
			addr = a
		}
	}
	_, from := testchild.Throttled(t, group)
	began := time.Now()
	rep, b, err := recordAndExplain(t.TempDir(), addr, 3*time.Second)
	must.Do(t, err)
	defer b.Close()
	_, to := testchild.Throttled(t, group)
	took := time.Since(began)
	h, th := rep.Host, rep.Runtime.Throttle
	must.True(t, h != nil, "no host samples: %v", rep.Input.Warnings)
	check.True(t, h.PID == cmd.Process.Pid && h.Facts.QuotaCPUs == 0.5 && b.Meta().Host != nil && b.Meta().Host.QuotaCPUs == 0.5,
		"process %d, facts %+v, metadata %+v", h.PID, h.Facts, b.Meta().Host)
	check.True(t, th.Verdict == "own" && th.Text == "host samples" && th.PeriodNS == 100e6, "throttling %+v (%s)", th, h.Quota.Text)
	// The kernel's counter was read before and after the recording, so it is an upper bound. The quota holds the process back
	// all the time, if other processes do not take the CPU instead. So the loss in the trace is about its share of that time.
	want := float64(to-from) * float64(h.ToNS-h.FromNS) / float64(took)
	if got := float64(th.LostCPUNS); got < want/2 || got > float64(to-from) {
		t.Errorf("lost %.3f s of CPU time in the trace's time, the kernel's counter makes %.3f s", got/1e9, want/1e9)
	}
	check.True(t, h.Clock == "monotonic" && h.Coverage >= 0.95, "clock %q, coverage %.2f", h.Clock, h.Coverage)
	l := h.Lost
	must.True(t, l.BusyNS != nil && l.CPUNS != nil && l.QuotaNS != nil && l.RunQueueNS != nil && l.UnexplainedNS != nil, "lost time %+v", l)
	// Half a CPU, while the runtime has running goroutines on four Ps.
	if cpus := float64(*l.CPUNS) / float64(h.ToNS-h.FromNS); cpus < 0.02 || cpus > 0.7 {
		t.Errorf("used %.2f CPUs", cpus)
	}
	if *l.BusyNS < 2*(h.ToNS-h.FromNS) {
		t.Errorf("busy %.3f s by the trace", float64(*l.BusyNS)/1e9)
	}
	if *l.UnexplainedNS > *l.BusyNS/4 {
		t.Errorf("%.3f s of %.3f s are not explained", float64(*l.UnexplainedNS)/1e9, float64(*l.BusyNS)/1e9)
	}
	t.Log(hostText(t, rep))
	t.Logf("busy %.3f s, cpu %.3f s, quota %.3f s (kernel %.3f), run queue %.3f s, unsplit %.3f s, unexplained %.3f s; cost %.1f ms",
		float64(*l.BusyNS)/1e9, float64(*l.CPUNS)/1e9, float64(*l.QuotaNS)/1e9, want/1e9, float64(*l.RunQueueNS)/1e9, float64(*l.UnsplitNS)/1e9, float64(*l.UnexplainedNS)/1e9, float64(h.CostNS)/1e6)
}

// findingOf returns the report's finding with the code, or nil.
func findingOf(rep *report.Report, code report.RuleCode) *report.Finding {
	for i := range rep.Findings {
		if rep.Findings[i].Code == code {
			return &rep.Findings[i]
		}
	}
	return nil
}
