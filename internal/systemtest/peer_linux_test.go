package systemtest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/capture/kernelprobe"
	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testchild"
	"github.com/whylate/whylate/internal/testing/testfull"
	"github.com/whylate/whylate/report"
)

// serveAsker serves requests, each of which asks a peer over one of four connections.
func serveAsker(peer string) error {
	conns := make(chan net.Conn, 4)
	for range cap(conns) {
		c, err := net.Dial("tcp", peer)
		if err != nil {
			return err
		}
		conns <- c
	}
	http.HandleFunc("/ask", func(w http.ResponseWriter, _ *http.Request) {
		c := <-conns
		defer func() { conns <- c }()
		_, _ = io.WriteString(c, "question\n")
		answer, _ := bufio.NewReader(c).ReadString('\n')
		_, _ = io.WriteString(w, answer)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, nil)
	fmt.Println(l.Addr())
	return nil
}

// startPeer starts peer.py and returns its address and process.
func startPeer(t *testing.T, kind, log string, isPinned bool) (addr string, pid int) {
	t.Helper()
	cmd := exec.Command("python3", "testdata/peer.py", kind, log)
	must.Have(cmd.StdinPipe())(t)
	out := must.Have(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line := must.Have(bufio.NewReader(out).ReadString('\n'))(t)
	if isPinned {
		pin(t, cmd.Process.Pid)
	}
	return "127.0.0.1:" + strings.TrimSpace(line), cmd.Process.Pid
}

// pin lets a process, and the threads that it starts, use the first CPU only.
func pin(t *testing.T, pid int) {
	t.Helper()
	var first unix.CPUSet
	first.Set(0)
	must.Do(t, unix.SchedSetaffinity(pid, &first))
}

// peerTruth is what peer.py logged: means of one answer in ns.
type peerTruth struct {
	answers                int
	wallNS, cpuNS, stateNS float64
}

func truthOf(t *testing.T, log string, from, to int64) (out peerTruth) {
	t.Helper()
	for line := range strings.Lines(string(must.Have(os.ReadFile(log))(t))) {
		var begin, end int64
		var cpu, state float64
		if n, _ := fmt.Sscan(line, &begin, &end, &cpu, &state); n != 4 || begin < from || end > to {
			continue
		}
		out.answers++
		out.wallNS, out.cpuNS, out.stateNS = out.wallNS+float64(end-begin), out.cpuNS+cpu, out.stateNS+state
	}
	must.True(t, out.answers >= 10, "%d answers", out.answers)
	n := float64(out.answers)
	out.wallNS, out.cpuNS, out.stateNS = out.wallNS/n, out.cpuNS/n, out.stateNS/n
	return out
}

// TestPeer: the wait for a peer in Python is divided as the peer's own clocks say, and the sentence names its longest state.
func TestPeer(t *testing.T) {
	testfull.Need(t, "the kernel's events of another process")
	if os.Getuid() != 0 {
		t.Skip("kernel events need root")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	texts := map[report.PeerStateName]string{
		report.PeerRunning: "computing", report.PeerTimer: "asleep until a timer", report.PeerDisk: "waiting for a disk", report.PeerCPUWait: "waiting for a CPU",
		report.PeerLock: "waiting for a lock", report.PeerNetwork: "waiting for its own network",
	}
	for _, c := range []struct {
		kind    string
		clients int
		state   report.PeerStateName // that takes most of the time
	}{
		{"compute", 1, report.PeerRunning},
		{"sleep", 1, report.PeerTimer},
		{"fsync", 1, report.PeerDisk},
		{"hogs", 1, report.PeerCPUWait},
		{"lock", 4, report.PeerLock},
		{"proxy", 1, report.PeerNetwork}, // what the process behind it does is not known
	} {
		t.Run(c.kind, func(t *testing.T) {
			if c.kind == "hogs" && runtime.NumCPU() < 2 {
				t.Skip("the service needs another CPU than the peer")
			}
			dir := t.TempDir()
			log := filepath.Join(dir, "log")
			peer, pid := startPeer(t, c.kind, log, c.kind == "hogs")
			if c.kind == "hogs" {
				for range 3 {
					_, hog := startHog(t)
					pin(t, hog)
				}
			}
			addr, stop, err := testchild.Start(testchild.Command("asker " + peer))
			must.Do(t, err)
			defer stop()
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				requestUntilDone(ctx, "http://"+addr+"/ask", c.clients)
			}()
			defer func() { cancel(); <-done }()
			rep, from, to := explainWithKernel(t, dir, addr, 4*time.Second)
			truth := truthOf(t, log, from+100e6, to-100e6)

			// In the slowest requests the service itself may wait longer for a CPU, and the peer too, where other processes have them all: the
			// sentence must name what the report has there. That this is right in sum is compared with the peer's clock.
			must.True(t, len(rep.Verdict) > 0, "no verdict")
			verdict := &rep.Verdict[0]
			i := slices.IndexFunc(verdict.Causes, func(x report.VerdictCause) bool { return x.Cause == report.CauseNetwork && x.Observed })
			must.True(t, i >= 0 && len(verdict.Causes[i].PeerStates) > 0, "no wait for the peer: %s", verdict.Text)
			for _, x := range verdict.Causes[:i] {
				check.True(t, slices.Contains([]report.CauseName{report.CauseCPUWait, report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll}, x.Cause), "more time goes to %s: %s", x.Cause, verdict.Text)
			}
			wait := &verdict.Causes[i]
			longest := names.MergePeerDetails(wait.PeerStates)[0].State
			check.True(t, strings.Contains(wait.Words, fmt.Sprintf("python3 (pid %d;", pid)) && strings.Contains(wait.Words, texts[longest]) && wait.InSentence == strings.Contains(verdict.Text, wait.Words),
				"the sentence does not name what the peer did (%+v): %s", wait.PeerStates, verdict.Text)
			sums, peerNS := peerSums(rep)
			compareShare := func(state string, got, want float64) {
				if got, want = got/peerNS, want/truth.wallNS; math.Abs(got-want) > 0.02 {
					t.Errorf("%s: %.1f %% by the kernel's events, %.1f %% by the peer's clock; %+v, states %v", state, 100*got, 100*want, truth, sums)
				}
			}
			compareShare("computing", sums[report.PeerRunning], truth.cpuNS)
			switch c.state {
			case report.PeerRunning, report.PeerCPUWait:
				compareShare("waiting for a CPU", sums[report.PeerCPUWait], truth.wallNS-truth.cpuNS)
			default: // the clock of a sleep includes the wait for a CPU after it
				compareShare("asleep", sums[report.PeerTimer]+sums[report.PeerDisk]+sums[report.PeerLock]+sums[report.PeerNetwork]+sums[report.PeerCPUWait], truth.wallNS-truth.cpuNS)
				asleepNS := sums[c.state] + sums[report.PeerCPUWait] // the clock of a call includes its computing
				check.True(t, sums[c.state] <= (truth.stateNS/truth.wallNS+0.05)*peerNS && asleepNS >= ((truth.stateNS-truth.cpuNS)/truth.wallNS-0.05)*peerNS, "%s: %v, %+v", c.state, sums, truth)
			}
		})
	}
}

// startHog starts a process that computes.
func startHog(t *testing.T) (*exec.Cmd, int) {
	t.Helper()
	cmd := exec.Command("python3", "-c", "while True: pass")
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, cmd.Process.Pid
}

// explainWithKernel records a service with the kernel's events and explains that. from and to bound the events.
func explainWithKernel(t *testing.T, dir, addr string, d time.Duration) (rep *report.Report, from, to int64) {
	t.Helper()
	name := filepath.Join(dir, "x"+record.BundleExt)
	opts := record.Options{Duration: d, NoAllocs: true, Proxy: "none", Kernel: func(pid int) (record.KernelProbe, error) { return kernelprobe.Start(pid) }}
	must.Have(record.Save(t.Context(), addr, opts, name, "test", nil))(t)
	b := must.Have(bundle.Open(name))(t)
	events := must.Have(b.KernelEvents())(t)
	tables := must.Have(kernelevents.NewReader(events))(t).Tables
	trace, _, err := b.Trace()
	must.Do(t, err)
	defer trace.Close()
	rep = must.Have(whylate.Explain(t.Context(), trace, whylate.Options{Name: "x", Kernel: bytes.NewReader(events)}))(t)
	return rep, tables.Start, tables.End
}

// peerSums returns the time in each state of the peers, and how long they had the questions.
func peerSums(rep *report.Report) (sums map[report.PeerStateName]float64, peerNS float64) {
	sums = map[report.PeerStateName]float64{}
	for _, c := range rep.Group(rep.Verdict[0].Group).All().Causes {
		for _, x := range c.PeerStates {
			sums[x.State] += float64(x.TotalNS)
			if x.State != report.PeerOnTheWay && x.State != report.PeerArrived {
				peerNS += float64(x.TotalNS)
			}
		}
	}
	return sums, peerNS
}
