package acceptance_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// frozenServiceTrace writes a trace with four threads that compute tasks of 20 to 60 ms of CPU time and one on which tasks
// sleep. During the freezes no thread runs. It also returns how long the freezes delayed tasks, by kind: a computing task for
// the whole overlap, a sleeping one if it woke right after a freeze.
func frozenServiceTrace(t *testing.T, length int64, freezes [][2]int64) (data []byte, want map[string]int64) {
	t.Helper()
	const workers, ms = 4, int64(1e6)
	rnd := rand.New(rand.NewPCG(9, 9))
	b := tracetext.New(26)
	want = map[string]int64{}
	overlap := func(from, to int64) (ns int64) {
		for _, h := range freezes {
			ns += max(0, min(to, h[1])-max(from, h[0]))
		}
		return ns
	}
	// afterFreeze returns the time at which a goroutine that is to run at t runs.
	afterFreeze := func(t int64) int64 {
		for _, h := range freezes {
			if t > h[0] && t < h[1] {
				return h[1] + 10_000 + rnd.Int64N(400_000)
			}
		}
		return t
	}
	type worker struct {
		thread              *tracetext.Thread
		nextNS, remainingNS int64
		task                uint64
		startNS             int64
		asleep              bool
	}
	var all []*worker
	for i := range workers + 1 {
		th := b.Thread()
		th.ProcsChange(0, workers+1)
		th.HasRun(uint64(i + 1))
		all = append(all, &worker{thread: th, nextNS: 1000 + rnd.Int64N(ms)})
	}
	task := uint64(0)
	for {
		worker := all[0]
		for _, o := range all {
			if o.nextNS < worker.nextNS {
				worker = o
			}
		}
		timeNS := worker.nextNS
		if timeNS > length {
			break
		}
		g := uint64(0)
		for i := range all {
			if all[i] == worker {
				g = uint64(i + 1)
			}
		}
		sleeps := g == workers+1
		switch {
		case worker.task == 0:
			task++
			worker.task, worker.startNS, worker.remainingNS = task, timeNS, 20*ms+rnd.Int64N(40*ms)
			name := "compute"
			if sleeps {
				name = "sleep"
			}
			worker.thread.TaskBegin(timeNS, task, 0, name, "main."+name)
			if sleeps {
				worker.thread.Block(timeNS+500, "sleep", "time.Sleep", "main.sleep")
				worker.asleep = true
				worker.nextNS = afterFreeze(timeNS + 15*ms + rnd.Int64N(40*ms))
				break
			}
			worker.nextNS = timeNS + 300
		case worker.asleep:
			worker.thread.Unblock(timeNS, g)
			worker.thread.Start(timeNS+200, g)
			worker.thread.TaskEnd(timeNS+400, worker.task, "main.sleep")
			for _, h := range freezes {
				if timeNS >= h[1] && timeNS <= h[1]+500_000 {
					want["sleep"] += max(0, min(timeNS, h[1])-max(worker.startNS+500, h[0]))
				}
			}
			worker.asleep, worker.task = false, 0
			worker.nextNS = afterFreeze(timeNS + 2000 + rnd.Int64N(2*ms))
		case worker.remainingNS > 0:
			worker.thread.Stop(timeNS, "runtime.Gosched", "runtime.Gosched", "main.compute")
			worker.thread.Start(timeNS+200, g)
			step := 100_000 + rnd.Int64N(300_000)
			worker.remainingNS -= step
			// Work that a freeze interrupts continues after it.
			worker.nextNS = afterFreeze(timeNS + 200 + step)
		default:
			worker.thread.TaskEnd(timeNS, worker.task, "main.compute")
			want["compute"] += overlap(worker.startNS, timeNS)
			worker.task = 0
			worker.nextNS = afterFreeze(timeNS + 1000)
		}
	}
	data = must.Have(b.Bytes())(t)
	return data, want
}

func throttleByGroup(rep *report.Report) map[string]int64 {
	got := map[string]int64{}
	for _, g := range rep.Groups {
		for _, ns := range g.HistogramCauses["throttle"] {
			got[g.Name] += ns
		}
	}
	return got
}

// TestFreezesInRequests compares the cause throttle of synthetic requests with the time for which freezes delayed them.
func TestFreezesInRequests(t *testing.T) {
	const length, ms = int64(4000e6), int64(1e6)
	rnd := rand.New(rand.NewPCG(4, 4))
	var periodic, random [][2]int64
	for start := int64(33 * ms); start+100*ms < length; start += 100 * ms {
		runNS := 45*ms + rnd.Int64N(20*ms)
		periodic = append(periodic, [2]int64{start + runNS, start + 100*ms})
		shift := rnd.Int64N(30 * ms)
		random = append(random, [2]int64{start + shift, start + shift + 20*ms + rnd.Int64N(40*ms)})
	}
	explainFrozen := func(held [][2]int64) (*report.Report, map[string]int64) {
		data, want := frozenServiceTrace(t, length, held)
		rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Name: "x", Slowest: 20}))(t)
		checkThrottle(t, rep)
		return rep, want
	}
	rep, want := explainFrozen(periodic)
	if th := &rep.Runtime.Throttle; th.Verdict != "own" || th.PeriodNS != 100e6 {
		t.Fatalf("%s: %s", th.Verdict, th.Text)
	}
	got := throttleByGroup(rep)
	for _, kind := range []string{"compute", "sleep"} {
		check.True(t, want[kind] != 0 && math.Abs(float64(got[kind]-want[kind])) <= 0.05*float64(want[kind]),
			"%s: %d ms of throttle, was frozen for %d ms", kind, got[kind]/1e6, want[kind]/1e6)
	}
	// The segments of single requests agree with the sums.
	for _, g := range rep.Groups {
		for _, r := range g.Slowest {
			frozen := int64(0)
			for _, h := range periodic {
				frozen += max(0, min(r.StartNS+r.LatencyNS, h[1])-max(r.StartNS, h[0]))
			}
			reported := int64(0)
			for _, s := range r.Segments {
				if s.Cause == "throttle" {
					reported += s.DurationNS
				}
			}
			check.False(t, g.Name == "compute" && max(frozen-reported, reported-frozen) > 2*ms,
				"request at %d ms: %d us of throttle, was frozen for %d us", r.StartNS/ms, reported/1000, frozen/1000)
		}
	}
	// Freezes at random times are not recognised: their time keeps the cause that it has without them.
	rep, _ = explainFrozen(random)
	if th := &rep.Runtime.Throttle; th.Verdict != "unknown" {
		t.Errorf("freezes at random times: %s: %s", th.Verdict, th.Text)
	}
	if got := throttleByGroup(rep); got["compute"]+got["sleep"] != 0 {
		t.Errorf("freezes at random times: throttle %v", got)
	}
}
