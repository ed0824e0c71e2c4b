package freeze

import (
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// Services that are silent in step with their own timers.

// TestTickerEndsSilence: code that cannot be preempted (built without asynchronous preemption, or in assembly)
// computes on one thread. A ticker of 100 ms wakes a goroutine on another thread, on time. Silences end at its ticks
// although no thread was stopped.
func TestTickerEndsSilence(t *testing.T) {
	for _, withRequests := range []bool{false, true} {
		b := tracetext.New(26)
		busy, tick := b.Thread(), b.Thread()
		busy.ProcsChange(0, 2)
		busy.HasRun(1)
		b.Waiting(2)
		b.Waiting(3)
		p := tick.Proc()
		tick.ProcStop(1000)
		rnd := rand.New(rand.NewPCG(5, 6))
		wake := func(clock int64, g uint64) {
			tick.ProcStart(clock, p)
			tick.Unblock(clock+2000, g)
			tick.Start(clock+3000, g)
			tick.Block(clock+20_000, "select", "runtime.selectgo", "main.tick")
			tick.ProcStop(clock + 22_000)
		}
		for clock := 37 * ms; clock < 6000*ms; clock += 100 * ms {
			wake(clock+rnd.Int64N(90_000), 2)
			if withRequests {
				// Requests arrive sometimes, so silences begin at any time.
				wake(clock+2*ms+rnd.Int64N(50*ms), 3)
			}
		}
		checkNoQuota(t, b)
	}
}

// TestTickerStartsWork: a ticker starts work of always 45 ms that cannot be preempted, so silences end in step with
// the ticker.
func TestTickerStartsWork(t *testing.T) {
	for _, threads := range []int{1, 4} {
		b := tracetext.New(26)
		all, procs := idleThreads(b, threads)
		rnd := rand.New(rand.NewPCG(5, 6))
		for clock := 37 * ms; clock < 6000*ms; clock += 100 * ms {
			for i, th := range all {
				begin := clock + rnd.Int64N(90_000)
				end := begin + 45*ms + rnd.Int64N(400_000)
				th.ProcStart(begin, procs[i])
				th.Unblock(begin+2000, uint64(i+1))
				th.Start(begin+3000, uint64(i+1))
				th.Block(end, "chan receive", "runtime.chanrecv1", "main.work")
				th.ProcStop(end + 2000)
			}
		}
		checkNoQuota(t, b)
	}
}

// TestTickerStartsTurns: a ticker starts 30 ms of work, which sysmon preempts twice, so there are silences of at most
// two of its intervals, in step with the ticker.
func TestTickerStartsTurns(t *testing.T) {
	for _, threads := range []int{1, 2, 4} {
		b := tracetext.New(26)
		all, procs := idleThreads(b, threads)
		rnd := rand.New(rand.NewPCG(5, 6))
		for clock := 37 * ms; clock < 6000*ms; clock += 100 * ms {
			first := 8*ms + rnd.Int64N(2*ms)
			for i, th := range all {
				g := uint64(i + 1)
				begin := clock + rnd.Int64N(90_000)
				th.ProcStart(begin, procs[i])
				th.Unblock(begin+2000, g)
				th.Start(begin+3000, g)
				next := clock + first + rnd.Int64N(50_000)
				th.Stop(next, "preempted", "main.work")
				th.Start(next+1000, g)
				next += 20_100_000 + rnd.Int64N(100_000)
				th.Stop(next, "preempted", "main.work")
				th.Start(next+1000, g)
				end := next + 500_000 + rnd.Int64N(500_000)
				th.Block(end, "chan receive", "runtime.chanrecv1", "main.work")
				th.ProcStop(end + 2000)
			}
		}
		checkNoQuota(t, b)
	}
}

// idleThreads adds n threads that have just released their Ps, and a waiting goroutine for each.
func idleThreads(b *tracetext.Builder, n int) (all []*tracetext.Thread, procs []int) {
	for i := range n {
		th := b.Thread()
		th.ProcsChange(0, n)
		b.Waiting(uint64(i + 1))
		all = append(all, th)
		procs = append(procs, th.Proc())
		th.ProcStop(1000)
	}
	return all, procs
}

// checkNoQuota checks that a trace shows no throttling.
func checkNoQuota(t *testing.T, b *tracetext.Builder) {
	t.Helper()
	data := must.Have(b.Bytes())(t)
	d, v := detect(t, data)
	check.True(t, v.Verdict != ownQuota && v.LostCPUNS == 0, "%s: %s", v.Verdict, v.Text)
	d.EachCandidate(0, 1<<62, func(c Candidate) {
		check.False(t, v.IsFreeze(c.Class), "a freeze at %d", c.Start)
	})
}

// TestIdle: no goroutine runs when the threads are silent. Other processes in the container may have used up the
// quota, but the trace does not show it.
func TestIdle(t *testing.T) {
	b := tracetext.New(26)
	th := b.Thread()
	th.ProcsChange(0, 1)
	b.Waiting(1)
	for clock := 20 * ms; clock < 4000*ms; clock += 100 * ms {
		th.Unblock(clock, 1)
		th.Start(clock+1000, 1)
		th.Block(clock+300_000, "select", "runtime.selectgo", "main.tick")
	}
	data := must.Have(b.Bytes())(t)
	if _, v := detect(t, data); v.Verdict != unknownQuota {
		t.Errorf("%s: %s", v.Verdict, v.Text)
	}
}
