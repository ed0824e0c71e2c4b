package cause

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestWaitForP: a goroutine that is ready waits for a P while all are busy, and for a P to wake up while one is idle,
// however often that changes. If it changes too often, only the sums are exact. It fails if idle intervals after the
// first count as a lack of Ps, for which more CPUs would be advised in vain.
func TestWaitForP(t *testing.T) {
	type interval struct {
		code     Code
		from, to int64
	}
	const busy, idle = Code(Sched), Code(SchedWake)
	idleOften := func(n int64) (list [][2]int64) {
		for i := range n {
			list = append(list, [2]int64{1000 + i*100, 1000 + i*100 + 30})
		}
		return list
	}
	for name, c := range map[string]struct {
		idle         [][2]int64 // when the second of two Ps was idle
		border       int64      // if not 0, a generation ends then
		want         []interval
		maxIntervals int // if not 0, only the sums and this bound are checked
	}{
		"busy all the time":     {want: []interval{{busy, 500, 9000}}},
		"idle all the time":     {idle: [][2]int64{{100, 9500}}, want: []interval{{idle, 500, 9000}}},
		"idle before and after": {idle: [][2]int64{{100, 500}, {9000, 9500}}, want: []interval{{busy, 500, 9000}}},
		"idle three times": {idle: [][2]int64{{300, 700}, {2000, 3000}, {5000, 5500}},
			want: []interval{{idle, 500, 700}, {busy, 700, 2000}, {idle, 2000, 3000}, {busy, 3000, 5000}, {idle, 5000, 5500}, {busy, 5500, 9000}}},
		"over a border": {idle: [][2]int64{{2000, 3000}, {3200, 3300}, {5000, 5500}, {6000, 9500}}, border: 4000,
			want: []interval{{busy, 500, 2000}, {idle, 2000, 3000}, {busy, 3000, 3200}, {idle, 3200, 3300}, {busy, 3300, 5000}, {idle, 5000, 5500}, {busy, 5500, 6000}, {idle, 6000, 9000}}},
		"very often":                {idle: idleOften(60), want: []interval{{idle, 0, 60 * 30}, {busy, 0, 8500 - 60*30}}, maxIntervals: 2*maxIdleIntervals + 2},
		"very often, over a border": {idle: idleOften(60), border: 4050, want: []interval{{idle, 0, 60 * 30}, {busy, 0, 8500 - 60*30}}, maxIntervals: 2*maxIdleIntervals + 2},
	} {
		win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
			m, n := b.Thread(1), b.Thread(2)
			p := n.Proc()
			for i, x := range c.idle {
				if c.border != 0 && x[0] > c.border && (i == 0 || c.idle[i-1][0] < c.border) {
					b.NextGeneration(c.border)
				}
				n.Block(x[0], "sleep", "time.Sleep", "main.other")
				n.ProcStop(x[0])
				m.Unblock(x[1], 2)
				n.ProcStart(x[1], p)
				n.Start(x[1], 2)
			}
			m.Stop(10000, "preempted", "main.work")
		})
		var got []interval
		sums := map[Code]int64{}
		for _, s := range New(win, syms).Segments([]critpath.Step{{Kind: critpath.Runnable, G: 3, Start: 500 + tracetext.Origin, End: 9000 + tracetext.Origin, FollowedWait: -1}}) {
			got = append(got, interval{s.Code, s.Start - tracetext.Origin, s.End - tracetext.Origin})
			sums[s.Code] += s.End - s.Start
		}
		check.False(t, c.maxIntervals == 0 && !slices.Equal(got, c.want), "%s: %v, want %v", name, got, c.want)
		for _, w := range c.want {
			if c.maxIntervals > 0 && (sums[w.code] != w.to-w.from || len(got) > c.maxIntervals) {
				t.Errorf("%s: %d ns of %s in %d intervals, want %d in %d at most", name, sums[w.code], w.code.Cause(), len(got), w.to-w.from, c.maxIntervals)
			}
		}
	}
}
