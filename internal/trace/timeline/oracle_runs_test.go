package timeline

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"

	"golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/testing/must"
)

// refRuns returns, for each goroutine, the Ps of its runs by the reference reader, in order; NoP for none.
func refRuns(t *testing.T, data []byte) map[uint64][]uint32 {
	t.Helper()
	rd := must.Have(trace.NewReader(bytes.NewReader(data)))(t)
	out := make(map[uint64][]uint32)
	for {
		ev, err := rd.ReadEvent()
		if err != nil {
			return out
		}
		if ev.Kind() != trace.EventStateTransition {
			continue
		}
		tr := ev.StateTransition()
		if tr.Resource.Kind != trace.ResourceGoroutine {
			continue
		}
		if from, to := tr.Goroutine(); from == to || to != trace.GoRunning {
			continue
		}
		p := uint32(NoP)
		if ev.Proc() != trace.NoProc {
			p = uint32(ev.Proc())
		}
		g := uint64(tr.Resource.Goroutine())
		out[g] = append(out[g], p)
	}
}

// checkRuns compares the runs of a whole trace with two sources: their Ps with the reference reader, their times
// with the goroutines' spans.
func checkRuns(t *testing.T, data []byte, in *decoded) {
	t.Helper()
	byG := make(map[uint64][]Run)
	var join Runs
	var all []Run
	keep := func(r Run) {
		byG[r.G] = append(byG[r.G], r)
		all = append(all, r)
	}
	for _, g := range in.gens {
		join.Add(g, keep)
	}
	join.Close(keep)
	for _, list := range byG {
		slices.SortStableFunc(list, func(a, b Run) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	}
	checkRunPs(t, byG, refRuns(t, data))
	checkRunTimes(t, byG, in)
	checkWindowRuns(t, in, all)
}

func checkRunPs(t *testing.T, byG map[uint64][]Run, ref map[uint64][]uint32) {
	t.Helper()
	for id, want := range ref {
		got := byG[id]
		must.True(t, len(got) == len(want), "goroutine %d has %d runs, by the reference reader %d", id, len(got), len(want))
		for i := 0; i < len(got); {
			// Our times alone do not determine which of two runs at the same time was first.
			k := i + 1
			for k < len(got) && (got[k].From == got[i].From || got[k].From < got[k-1].To) {
				k++
			}
			var ourPs []uint32
			for _, r := range got[i:k] {
				ourPs = append(ourPs, r.P)
			}
			refPs := slices.Clone(want[i:k])
			slices.Sort(ourPs)
			slices.Sort(refPs)
			must.True(t, slices.Equal(ourPs, refPs),
				"goroutine %d: runs %d to %d, from %d on, are on Ps %d, by the reference reader on %d", id, i, k, got[i].From, ourPs, refPs)
			i = k
		}
	}
	for id := range byG {
		must.True(t, len(ref[id]) != 0, "goroutine %d has runs, by the reference reader none", id)
	}
}

func checkRunTimes(t *testing.T, byG map[uint64][]Run, in *decoded) {
	t.Helper()
	win := Window{Gens: in.gens}
	var buf []Span
	for _, id := range goroutines(in.gens) {
		buf = win.Spans(id, BeforeTrace, math.MaxInt64, buf[:0])
		var want [][2]int64
		for i, s := range buf {
			switch {
			case s.State != Running:
			case s.Origin == OriginCut && i > 0 && buf[i-1].State == Running:
				want[len(want)-1][1] = s.End
			default:
				want = append(want, [2]int64{s.Start, s.End})
			}
		}
		got := byG[id]
		must.True(t, len(got) == len(want), "goroutine %d has %d runs, but runs %d times by its spans", id, len(got), len(want))
		slices.SortFunc(want, func(a, b [2]int64) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
		for i, r := range got {
			if r.Began && r.From != want[i][0] || !r.Began && want[i][0] != BeforeTrace || r.Ended && r.To != want[i][1] {
				t.Fatalf("goroutine %d, run %d is %+v, by its spans %d", id, i, r, want[i])
			}
		}
	}
}

// checkWindowRuns compares Window.EachRun with the cut runs of the whole trace.
func checkWindowRuns(t *testing.T, in *decoded, all []Run) {
	t.Helper()
	win := Window{Gens: in.gens}
	start, length := win.Start(), in.gens[len(in.gens)-1].End-win.Start()
	for i := range int64(8) {
		from := start + length*i/9
		to := from + length/(2+5*i)
		type key struct {
			from, to int64
			g        uint64
			p        uint32
		}
		count := make(map[key]int)
		for _, r := range all {
			if r.From < to && r.To > from && r.To > r.From {
				count[key{max(r.From, from), min(r.To, to), r.G, r.P}]++
			}
		}
		win.EachRun(from, to, func(r Run) { count[key{r.From, r.To, r.G, r.P}]-- })
		for k, n := range count {
			must.True(t, n == 0, "runs in [%d, %d): %+v is missing %d times", from, to, k, n)
		}
	}
}
