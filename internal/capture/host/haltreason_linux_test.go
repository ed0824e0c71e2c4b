package host

import (
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestIsFrozen reads the freezer files of both cgroup versions.
func TestIsFrozen(t *testing.T) {
	for text, want := range map[string]bool{"FROZEN\n": true, "FREEZING\n": true, "THAWED\n": false, "populated 1\nfrozen 1\n": true, "populated 1\nfrozen 0\n": false, "": false} {
		check.Equal(t, isFrozen([]byte(text)), want, "%q", text)
	}
}

// TestHaltReason stops a process with a signal for the second half of its samples. It fails if samples
// lack the state, or if a sleeping process has a halt reason.
func TestHaltReason(t *testing.T) {
	cmd, _ := start(t, nil, "pair")
	s := must.Have(Start(Options{PID: cmd.Process.Pid, Interval: time.Millisecond}))(t)
	time.Sleep(50 * time.Millisecond) // samples of a sleeping process
	signalTime, _ := readClocks()
	stopAll(t, cmd)
	stopTime, _ := readClocks()
	time.Sleep(50 * time.Millisecond) // samples of a stopped process
	rec := s.Stop()
	cmd.Process.Signal(syscall.SIGCONT)
	samples, _ := readBack(t, rec)
	check.True(t, samples.HasStates, "the recording does not say that it has states")
	stoppedSamples, sleepingSamples := 0, 0
	for _, p := range samples.Points {
		switch {
		case p.MonoNS < signalTime:
			if sleepingSamples++; p.HaltReason != "" {
				t.Errorf("held by %q while it slept", p.HaltReason)
			}
		case p.MonoNS > stopTime:
			if stoppedSamples++; p.HaltReason != HaltedBySignal {
				t.Errorf("held by %q while it was stopped", p.HaltReason)
			}
		}
	}
	if stoppedSamples == 0 || sleepingSamples == 0 {
		t.Skipf("%d samples before and %d while it was stopped: the machine is too busy", sleepingSamples, stoppedSamples)
	}
	// Both ends of its connection belong to the process.
	if selfConnections := samples.SelfConnections; selfConnections.MaxSockets != 2 || selfConnections.FirstPoll == 0 || selfConnections.LastPoll < selfConnections.FirstPoll {
		t.Errorf("of its sockets, %+v", selfConnections)
	}
}
