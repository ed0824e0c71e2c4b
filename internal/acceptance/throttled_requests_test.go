package acceptance_test

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// heldService makes a trace of four threads that compute tasks of 20 to 60 ms
// of CPU time, and of one on which tasks sleep. In the stretches held nobody
// runs. It returns what held tasks back, by kind: computing tasks for all of
// the overlap, sleeping ones if they woke right after it.
func heldService(t *testing.T, length int64, held [][2]int64) (data []byte, want map[string]int64) {
	t.Helper()
	const workers, ms = 4, int64(1e6)
	rnd := rand.New(rand.NewPCG(9, 9))
	b := tracetext.New(26)
	want = map[string]int64{}
	overlap := func(from, to int64) (ns int64) {
		for _, h := range held {
			ns += max(0, min(to, h[1])-max(from, h[0]))
		}
		return ns
	}
	// after returns when somebody who wants to run at t does.
	after := func(t int64) int64 {
		for _, h := range held {
			if t > h[0] && t < h[1] {
				return h[1] + 10_000 + rnd.Int64N(400_000)
			}
		}
		return t
	}
	type worker struct {
		th         *tracetext.Thread
		next, left int64
		task       uint64
		began      int64
		asleep     bool
	}
	var all []*worker
	for i := range workers + 1 {
		th := b.Thread()
		th.ProcsChange(0, workers+1)
		th.HasRun(uint64(i + 1))
		all = append(all, &worker{th: th, next: 1000 + rnd.Int64N(ms)})
	}
	task := uint64(0)
	for {
		w := all[0]
		for _, o := range all {
			if o.next < w.next {
				w = o
			}
		}
		at := w.next
		if at > length {
			break
		}
		g := uint64(0)
		for i := range all {
			if all[i] == w {
				g = uint64(i + 1)
			}
		}
		sleeps := g == workers+1
		switch {
		case w.task == 0:
			task++
			w.task, w.began, w.left = task, at, 20*ms+rnd.Int64N(40*ms)
			name := "compute"
			if sleeps {
				name = "sleep"
			}
			w.th.TaskBegin(at, task, 0, name, "main."+name)
			if sleeps {
				w.th.Block(at+500, "sleep", "time.Sleep", "main.sleep")
				w.asleep = true
				w.next = after(at + 15*ms + rnd.Int64N(40*ms))
				break
			}
			w.next = at + 300
		case w.asleep:
			w.th.Unblock(at, g)
			w.th.Start(at+200, g)
			w.th.TaskEnd(at+400, w.task, "main.sleep")
			for _, h := range held {
				if at >= h[1] && at <= h[1]+500_000 {
					want["sleep"] += max(0, min(at, h[1])-max(w.began+500, h[0]))
				}
			}
			w.asleep, w.task = false, 0
			w.next = after(at + 2000 + rnd.Int64N(2*ms))
		case w.left > 0:
			w.th.Stop(at, "runtime.Gosched", "runtime.Gosched", "main.compute")
			w.th.Start(at+200, g)
			step := 100_000 + rnd.Int64N(300_000)
			w.left -= step
			// What a freeze interrupts goes on behind it.
			w.next = after(at + 200 + step)
		default:
			w.th.TaskEnd(at, w.task, "main.compute")
			want["compute"] += overlap(w.began, at)
			w.task = 0
			w.next = after(at + 1000)
		}
	}
	data, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data, want
}

func throttleOf(rep *report.Report) map[string]int64 {
	got := map[string]int64{}
	for _, g := range rep.Groups {
		for _, ns := range g.HistogramCauses["throttle"] {
			got[g.Name] += ns
		}
	}
	return got
}

// TestFreezesInRequests compares the cause throttle of made-up requests with
// how long they were held back.
func TestFreezesInRequests(t *testing.T) {
	const length, ms = int64(4000e6), int64(1e6)
	rnd := rand.New(rand.NewPCG(4, 4))
	var locked, free [][2]int64
	for at := int64(33 * ms); at+100*ms < length; at += 100 * ms {
		used := 45*ms + rnd.Int64N(20*ms)
		locked = append(locked, [2]int64{at + used, at + 100*ms})
		shift := rnd.Int64N(30 * ms)
		free = append(free, [2]int64{at + shift, at + shift + 20*ms + rnd.Int64N(40*ms)})
	}
	explain := func(held [][2]int64) (*report.Report, map[string]int64) {
		data, want := heldService(t, length, held)
		rep := must.Have(whylate.Explain(context.Background(), bytes.NewReader(data), whylate.Options{Name: "x", Slowest: 20}))(t)
		checkThrottle(t, rep)
		return rep, want
	}
	rep, want := explain(locked)
	if th := &rep.Runtime.Throttle; th.Verdict != "own" || th.PeriodNS != 100e6 {
		t.Fatalf("%s: %s", th.Verdict, th.Text)
	}
	got := throttleOf(rep)
	for _, kind := range []string{"compute", "sleep"} {
		if want[kind] == 0 || math.Abs(float64(got[kind]-want[kind])) > 0.05*float64(want[kind]) {
			t.Errorf("%s: %d ms of throttle, was held back for %d ms", kind, got[kind]/1e6, want[kind]/1e6)
		}
	}
	// The segments of single requests say the same as the sums.
	for _, g := range rep.Groups {
		for _, r := range g.Slowest {
			held := int64(0)
			for _, h := range locked {
				held += max(0, min(r.StartNS+r.LatencyNS, h[1])-max(r.StartNS, h[0]))
			}
			seen := int64(0)
			for _, s := range r.Segments {
				if s.Cause == "throttle" {
					seen += s.DurationNS
				}
			}
			if g.Name == "compute" && max(held-seen, seen-held) > 2*ms {
				t.Errorf("request at %d ms: %d us of throttle, was held back for %d us", r.StartNS/ms, seen/1000, held/1000)
			}
		}
	}
	// Held back at any time: the same stretches are what they would be without.
	rep, _ = explain(free)
	if th := &rep.Runtime.Throttle; th.Verdict != "unknown" {
		t.Errorf("held back at any time: %s: %s", th.Verdict, th.Text)
	}
	if got := throttleOf(rep); got["compute"]+got["sleep"] != 0 {
		t.Errorf("held back at any time: throttle %v", got)
	}
}
