package inspect_test

import (
	"context"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/viewer/inspect"
)

// TestSums compares sums by function and of an area with the strips of all goroutines, for whole traces and parts.
func TestSums(t *testing.T) {
	for _, name := range []string{"generations", "locks", "gcstress"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			tr := openIndex(t, testprog.Trace(t, name), inspect.Limits{})
			end := tr.Facts().DurationNS
			for _, part := range [][2]int64{{0, end + 1}, {end / 3, end / 2}, {end * 9 / 10, end + 1}} {
				from, to := part[0], part[1]
				var all []inspect.Goroutine
				for {
					page, total, err := tr.Goroutines(ctx, inspect.GoroutineQuery{From: from, To: to, Sort: "id", Offset: len(all), Limit: inspect.MaxRows})
					must.Do(t, err)
					if all = append(all, page...); len(all) == total {
						break
					}
				}
				want, areas := map[string]inspect.FunctionSum{}, 0
				for len(all) > 0 {
					batch := all[:min(len(all), inspect.MaxLanes)]
					all = all[len(batch):]
					tile := inspect.Tile{From: from, To: to, Buckets: inspect.MaxBuckets}
					var ids []uint64
					for _, g := range batch {
						tile.Lanes = append(tile.Lanes, inspect.Lane{ID: g.ID})
						ids = append(ids, g.ID)
					}
					strips := must.Have(tr.Strips(ctx, tile))(t)
					var states [timeline.NotAlive]int64
					for i := range strips.Strips {
						var stateTimes [timeline.NotAlive]int64
						if sums := strips.Strips[i].Sums; sums != nil {
							for k := range sums {
								for _, ns := range sums[k] {
									stateTimes[k] += ns
								}
							}
						}
						for _, p := range strips.Strips[i].Pieces {
							stateTimes[p.State] += p.To - p.From
						}
						f := want[batch[i].Name]
						f.Name = batch[i].Name
						f.Goroutines++
						f.RunningNS += stateTimes[timeline.Running]
						f.RunnableNS += stateTimes[timeline.Runnable]
						f.WaitingNS += stateTimes[timeline.Waiting]
						f.SyscallNS += stateTimes[timeline.Syscall]
						want[f.Name] = f
						for k := range stateTimes {
							states[k] += stateTimes[k]
						}
					}
					var got, stackTimes [timeline.NotAlive]int64
					for _, s := range must.Have(tr.AreaStacks(ctx, from, to, ids))(t).States {
						for k := range stackTimes {
							if timeline.State(k).String() == s.State {
								stackTimes[k] += s.NS
							}
						}
						checkSums(t, s)
					}
					areaTime := int64(0)
					for _, ns := range states {
						areaTime += ns
					}
					for k, ns := range stackTimes {
						// A state with less than one part in 2,000 of the area's time, which is that of all its lanes, is left out.
						check.True(t, ns <= states[k] && ns >= states[k]-states[k]/100-areaTime/2000-1, "from %d to %d: stacks have %d in state %d, strips %d", from, to, ns, k, states[k])
					}
					for _, s := range must.Have(tr.Area(ctx, from, to, append(ids, ids[0])[:min(len(ids)+1, inspect.MaxLanes)]))(t) {
						for k := range got {
							if timeline.State(k).String() == s.State {
								got[k] += s.NS
							}
						}
						check.True(t, s.Count >= 1 && s.LongestNS <= to-from && s.LongestNS <= s.NS && len(s.Sites) != 0,
							"from %d to %d: %+v", from, to, s)
						areas++
					}
					check.True(t, got == states, "from %d to %d: the area has %v by state, its strips %v", from, to, got, states)
				}
				if sumsOfNone := must.Have(tr.Area(ctx, from, to, nil))(t); len(sumsOfNone) > 0 {
					t.Errorf("without lanes the area has %+v", sumsOfNone)
				}
				sums := must.Have(tr.ByFunction(ctx, from, to))(t)
				for _, f := range sums {
					w := want[f.Name]
					waits := int64(0)
					for _, s := range f.Waits {
						waits += s.NS
					}
					check.True(t, f.StateTimes == w.StateTimes && f.Goroutines == w.Goroutines && waits == f.WaitingNS,
						"from %d to %d: %s: %+v, by the strips %+v", from, to, f.Name, f, w)
				}
				check.True(t, len(sums) == len(want) && areas != 0,
					"from %d to %d: %d functions, %d among the goroutines; %d areas", from, to, len(sums), len(want), areas)
			}
		})
	}
}

// checkSums checks that no function has less time than those that it called.
func checkSums(t *testing.T, n *inspect.StackNode) {
	below := int64(0)
	for _, c := range n.Children {
		below += c.NS
		checkSums(t, c)
	}
	check.True(t, below <= n.NS, "%+v: %d ns below", n, below)
}

// TestSampledStacks divides running time by CPU samples: the program computes two thirds of it in one function and one third in another.
func TestSampledStacks(t *testing.T) {
	tr := openIndex(t, testprog.Trace(t, "http1-profile"), inspect.Limits{})
	page, _, err := tr.Goroutines(t.Context(), inspect.GoroutineQuery{To: tr.Facts().DurationNS, Sort: "run", Descending: true, Limit: inspect.MaxLanes})
	must.Do(t, err)
	var ids []uint64
	for _, g := range page {
		ids = append(ids, g.ID)
	}
	stacks := must.Have(tr.AreaStacks(t.Context(), 0, tr.Facts().DurationNS, ids))(t)
	times := map[string]int64{}
	var visit func(n *inspect.StackNode)
	visit = func(n *inspect.StackNode) {
		for _, c := range n.Children {
			if n.Site == nil || n.Site.Func != c.Site.Func {
				times[c.Site.Func] += c.NS
			}
			visit(c)
		}
	}
	for _, s := range stacks.States {
		if s.State == timeline.Running.String() {
			visit(s)
		}
	}
	scan, decode := times["main.(*search).scan"], times["main.(*search).decode"]
	share := float64(scan) / float64(scan+decode)
	check.True(t, stacks.Samples > 50 && share > 0.55 && share < 0.78, "%d samples, %d ns in scan, %d ns in decode", stacks.Samples, scan, decode)
}
