package freeze

import (
	"bytes"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// checkSilences compares the silences of a generation with those found by reading all its events, and the running
// threads with the generation's runs.
func checkSilences(t *testing.T, g *timeline.Gen, previousEnd, minNS int64) (n int) {
	t.Helper()
	var eventTimes []int64
	lastFirst := int64(0)
	for _, gaps := range g.Gaps(g.Base-1, 0) { // every gap ends with an event
		if len(gaps) > 0 && gaps[0].Ended {
			lastFirst = max(lastFirst, gaps[0].To)
		}
		for _, gap := range gaps {
			if gap.Ended {
				eventTimes = append(eventTimes, gap.To)
			}
		}
	}
	for _, e := range g.ProcEvents {
		eventTimes = append(eventTimes, e.Time)
	}
	for _, h := range g.Heap {
		eventTimes = append(eventTimes, h.Time)
	}
	for _, l := range g.Labels {
		eventTimes = append(eventTimes, l.Time)
	}
	for _, s := range g.Samples {
		eventTimes = append(eventTimes, s.Time)
	}
	if previousEnd == 0 {
		previousEnd = g.Base
	}
	eventTimes = slices.DeleteFunc(eventTimes, func(t int64) bool { return t <= previousEnd })
	slices.Sort(eventTimes)
	var want [][2]int64
	last := previousEnd
	for _, v := range eventTimes {
		if v-last > minNS {
			want = append(want, [2]int64{last, v})
		}
		last = max(last, v)
	}
	got := silencesOf(g, previousEnd, minNS)
	changes := g.ProcTransitions()
	if len(got) != len(want) {
		t.Errorf("generation %d, %d ns: %d silences, want %d", g.Num, minNS, len(got), len(want))
		return 0
	}
	for i, s := range got {
		check.True(t, s.Start == want[i][0] && s.End == want[i][1], "generation %d: silence %d to %d, want %v", g.Num, s.Start, s.End, want[i])
		running := 0
		g.EachRun(s.Start, s.End, func(r timeline.Run) {
			if r.From <= s.Start && r.To >= s.End {
				running++
			}
		})
		// A thread's first event of the generation shows what ran before it. EachRun does not use that.
		if running > s.Running || running < s.Running && s.Start > lastFirst {
			t.Errorf("generation %d: silence of %d ns at %d: %d running, want %d", g.Num, s.End-s.Start, s.Start-g.Base, s.Running, running)
		}
		if held := heldPs(changes, s.Start); s.Running+s.InScheduler+s.InSyscall > held {
			t.Errorf("generation %d: silence of %d ns at %d: %+v, but %d Ps are held", g.Num, s.End-s.Start, s.Start-g.Base, s, held)
		}
		check.True(t, s.Resumed <= s.Running && s.Prompt <= s.Resumed && s.Stopped <= s.Resumed, "generation %d: %+v", g.Num, s)
	}
	return len(got)
}

// heldPs returns how many Ps are not idle at a time, according to their own states. If a P's first event of a
// generation is a status, it repeats the state before the generation.
func heldPs(changes []timeline.ProcTransition, time int64) (n int) {
	for i := 0; i < len(changes); {
		first := changes[i]
		running := first.Status && first.Running
		for ; i < len(changes) && changes[i].P == first.P; i++ {
			if changes[i].Time <= time {
				running = changes[i].Running
			}
		}
		if running {
			n++
		}
	}
	return n
}

func TestSilences(t *testing.T) {
	for _, name := range []string{"preempt", "gcstress", "http1", "generations", "cpusamples", "iterpull"} {
		t.Run(name, func(t *testing.T) {
			data := testprog.Trace(t, name)
			rd := must.Have(tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{}))(t)
			dec := timeline.NewDecoder(rd, 2)
			defer dec.Close()
			var gens []*timeline.Gen
			for g, err := dec.Next(t.Context()); err == nil; g, err = dec.Next(t.Context()) {
				gens = append(gens, g)
			}
			n := 0
			for _, minNS := range []int64{20_000, 300_000, 3_000_000} {
				previousEnd := int64(0)
				for _, g := range gens {
					n += checkSilences(t, g, previousEnd, minNS)
					previousEnd = g.End
				}
			}
			check.True(t, n != 0, "no silence at all")
		})
	}
}
