package freeze

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// A pause is a time in which a service runs no goroutine.
type pause struct {
	name         string
	length       int64
	beforeRefill int64 // how long before the refill it ends
	addEvents    func(b *pausingTrace, from, to int64)
	isFreeze     bool // whether it must be counted as a freeze
}

// A pausingTrace is a service under a quota. In two of three periods a thread uses the quota up. In the third, no
// goroutine runs from a certain time on.
type pausingTrace struct {
	b                       *tracetext.Builder
	worker, caller, monitor *tracetext.Thread
	p, q                    int // the Ps of worker and caller
}

// enterSyscall makes caller enter a system call.
func (s *pausingTrace) enterSyscall(time int64) {
	s.caller.ProcStart(time, s.q)
	s.caller.Unblock(time+1000, 2)
	s.caller.Start(time+2000, 2)
	s.caller.Syscall(time+3000, "syscall.read")
}

// stealP makes the monitor take caller's P.
func (s *pausingTrace) stealP(time int64) { s.monitor.Steal(time, s.caller) }

// leaveSyscall makes caller return from the system call without a P, run and block.
func (s *pausingTrace) leaveSyscall(time int64) {
	s.caller.SyscallEndBlocked(time)
	s.caller.ProcStart(time+1000, s.q)
	s.caller.Start(time+2000, 2)
	s.blockCaller(time + 3000)
}

func (s *pausingTrace) blockCaller(time int64) {
	s.caller.Block(time, "select", "runtime.selectgo", "main.other")
	s.caller.ProcStop(time + 1000)
}

// trace builds a trace of n periods. A period k has the pause if pauses(k).
func (c *pause) trace(t *testing.T, n int, pauses func(int) bool) []byte {
	t.Helper()
	rnd := rand.New(rand.NewPCG(3, 4))
	s := &pausingTrace{b: tracetext.New(26)}
	s.worker, s.caller, s.monitor = s.b.Thread(), s.b.Thread(), s.b.ThreadWithoutP()
	s.p, s.q = s.worker.Proc(), s.caller.Proc()
	s.worker.ProcsChange(0, 2)
	s.worker.HasRun(1)
	s.b.Waiting(2)
	s.caller.ProcStop(1000)
	clock := ms
	for k := range n {
		refill := int64(k)*100*ms + 130*ms
		stop := refill - 60*ms + rnd.Int64N(16*ms)
		if pauses(k) {
			stop = refill - c.beforeRefill - c.length
		}
		for ; clock < stop; clock += 100_000 + rnd.Int64N(2*ms) {
			s.worker.Stop(clock, "runtime.Gosched", "runtime.Gosched", "main.work")
			s.worker.Start(clock+200, 1)
		}
		lag := 20_000 + rnd.Int64N(300_000)
		if pauses(k) {
			s.worker.Block(clock, "select", "runtime.selectgo", "main.work")
			s.worker.ProcStop(clock + 1000)
			end := refill - c.beforeRefill + lag
			if c.addEvents != nil {
				c.addEvents(s, clock+2000, end)
			}
			s.worker.ProcStart(end+20_000, s.p)
			s.worker.Unblock(end+21_000, 1)
			s.worker.Start(end+22_000, 1)
			lag += 30_000
		}
		clock = refill - c.beforeRefill*bit(pauses(k)) + lag
	}
	return must.Have(s.b.Bytes())(t)
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// TestStuck has freezes in which no goroutine runs, and similar pauses that are not freezes.
func TestStuck(t *testing.T) {
	schedules := func(s *pausingTrace, from, to int64) {
		s.caller.ProcStart(from, s.q)
		s.caller.ProcStop(to)
	}
	untilTaken := func(s *pausingTrace, from, to int64) {
		s.enterSyscall(from)
		s.stealP(to)
		s.leaveSyscall(to + 5000)
	}
	returns := func(s *pausingTrace, from, to int64) {
		s.enterSyscall(from)
		s.caller.SyscallEnd(to)
		s.blockCaller(to + 2000)
	}
	ready := func(s *pausingTrace, from, to int64) {
		s.monitor.Unblock(from, 2)
		s.caller.ProcStart(to, s.q)
		s.caller.Start(to+1000, 2)
		s.blockCaller(to + 3000)
	}
	idlePause := pause{name: "idle", length: 60 * ms}
	isThird := func(k int) bool { return k%3 == 2 }
	_, idle := detect(t, idlePause.trace(t, 30, isThird))
	must.True(t, idle.Verdict == ownQuota && idle.PeriodNS == 100*ms && idle.Freezes == 20,
		"idle: %s, %d freezes: %s", idle.Verdict, idle.Freezes, idle.Text)
	for _, c := range []pause{
		{"between two goroutines", 60 * ms, 0, schedules, true},
		{"between two goroutines, a short freeze", 16 * ms, 0, schedules, true},
		{"in a system call, the P stolen after the freeze", 60 * ms, 0, untilTaken, true},
		{"in a system call that returns after the freeze", 60 * ms, 0, returns, true},
		{"ready to run, with no thread to run it", 60 * ms, 0, ready, true},
		{"ready to run, a short freeze", 16 * ms, 0, ready, true},

		{"ready to run, for a time slice of another process", 8 * ms, 0, ready, false},
		{"ready to run, until another phase", 40 * ms, 12 * ms, ready, false},
		{"ready to run only at the end", 60 * ms, 0, func(s *pausingTrace, from, to int64) { ready(s, to-9*ms, to) }, false},
		{"a system call that sleeps", 60 * ms, 0, func(s *pausingTrace, from, to int64) {
			s.enterSyscall(from)
			s.stealP(from + 40_000)
			s.leaveSyscall(to)
		}, false},
		{"a system call of two checks of the monitor", 21 * ms, 0, untilTaken, false},
		{"a short system call", 16 * ms, 0, returns, false},
		{"between two goroutines, for a time slice of another process", 8 * ms, 0, schedules, false},
		{"between two goroutines, until another phase", 40 * ms, 12 * ms, schedules, false},
		{"between two goroutines, until later than freezes end", 60 * ms, -10 * ms, schedules, false},
		{"in a system call, until another phase", 40 * ms, 12 * ms, returns, false},
		{"in the scheduler until long after all other threads", 60 * ms, 0, func(s *pausingTrace, from, to int64) {
			// It continues only much later than all others.
			s.caller.ProcStart(from, s.q)
			s.caller.ProcStop(to + 15*ms)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, v := detect(t, c.trace(t, 30, isThird))
			want, lost := 20, idle.LostCPUNS
			if c.isFreeze {
				want, lost = 30, lost+10*c.length
			}
			check.True(t, v.Verdict == ownQuota && v.Freezes == want, "%s, %d freezes, want %d: %s", v.Verdict, v.Freezes, want, v.Text)
			check.True(t, v.N == 20 && v.lock.inWindow == idle.lock.inWindow && v.PeriodNS == idle.PeriodNS,
				"%d of %d silences decided, %d of %d without the others", v.lock.inWindow, v.N, idle.lock.inWindow, idle.N)
			check.True(t, math.Abs(float64(v.LostCPUNS-lost)) <= 0.05*float64(lost),
				"%s of CPU time lost, want %s", formatMillis(v.LostCPUNS), formatMillis(lost))
			n := 0
			d.EachCandidate(0, math.MaxInt64, func(k Candidate) {
				if v.IsFreeze(k.Class) {
					n++
				}
			})
			check.Equal(t, n, want, "candidates were freezes")
			// Without other freezes they decide nothing.
			if _, v := detect(t, c.trace(t, 30, func(int) bool { return true })); v.Verdict != unknownQuota || v.LostCPUNS != 0 || len(v.Intervals()) != 0 {
				t.Errorf("without other freezes: %s, %d freezes: %s", v.Verdict, len(v.Intervals()), v.Text)
			}
		})
	}
}
