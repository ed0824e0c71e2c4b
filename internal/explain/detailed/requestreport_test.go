package detailed

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
)

// randomSegments returns n adjacent segments whose lengths span five decades.
func randomSegments(n int, rnd *rand.Rand) []cause.Segment {
	out := make([]cause.Segment, n)
	start := int64(1000)
	for i := range out {
		d := int64(1)
		for range rnd.IntN(5) {
			d *= 1 + rnd.Int64N(20)
		}
		out[i] = cause.Segment{Start: start, End: start + d, G: uint64(1 + rnd.IntN(9)), Code: cause.Code(rnd.IntN(6)), FollowedWait: -1}
		start += d
	}
	return out
}

// TestLongPathsStayWhole joins paths of many lengths: the time of each cause is preserved, and the longest segments stay
// single.
func TestLongPathsStayWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2000, 2001, 2500, 9999, 100000} {
		segs := randomSegments(n, rnd)
		s := &Request{Start: segs[0].Start, End: segs[n-1].End, G: 1, Segments: segs, Vias: make([][]path.ChainWait, n)}
		syms := tracefmt.NewSymbols().Snapshot()
		r := s.report("g", &spell.Speller{Syms: &syms})
		if len(r.Segments) > maxSegments || n <= maxSegments && len(r.Segments) != n || n > maxSegments && len(r.Segments) < maxSegments/2 {
			t.Errorf("of %d segments, %d are reported", n, len(r.Segments))
		}
		want, got := map[string]int64{}, map[string]int64{}
		longest := int64(0)
		for _, x := range segs {
			want[x.Code.Cause().String()] += x.End - x.Start
			longest = max(longest, x.End-x.Start)
		}
		end, found, count := s.Start, false, 0
		for _, x := range r.Segments {
			must.True(t, x.StartNS == end, "of %d: a segment starts at %d, the previous one ends at %d", n, x.StartNS, end)
			end += x.DurationNS
			if x.Joined == nil {
				got[string(x.Cause)] += x.DurationNS
				found = found || x.DurationNS == longest
				count++
				continue
			}
			count += x.Joined.Count
			sum := int64(0)
			for c, ns := range x.Joined.Causes {
				got[string(c)] += ns
				sum += ns
			}
			check.True(t, sum == x.DurationNS, "of %d: the causes of a joined segment add up to %d ns of %d", n, sum, x.DurationNS)
		}
		maps.DeleteFunc(got, func(_ string, ns int64) bool { return ns == 0 })
		// A segment that is no longer than two mean ranges may be joined, too.
		found = found || longest <= 2*(s.End-s.Start)/maxSegments
		check.True(t, end == s.End && count == n && found,
			"of %d: it ends at %d, want %d; %d segments are in it; the longest is single: %v", n, end, s.End, count, found)
		check.True(t, maps.Equal(got, want), "of %d: by cause %v, want %v", n, got, want)
	}
}

// TestJoinedSegment: joined segments have a site, or a cause, only if all of them have it in common. It fails if the site of
// one of them counts for all.
func TestJoinedSegment(t *testing.T) {
	symbols := tracefmt.NewSymbols()
	frame := func(fn string) tracefmt.FrameID {
		return symbols.Stack(symbols.AddStack(tracefmt.FrameText{Func: fn, File: "x.go", Line: 1}))[0]
	}
	parse, write := frame("main.parse"), frame("main.write")
	syms := symbols.Snapshot()
	cpu, sleep := cause.Code(cause.CPU), cause.Code(cause.Sleep)
	for name, c := range map[string]struct {
		first, second cause.Segment
		site          string
		cause         report.CauseName
	}{
		"one site":               {cause.Segment{Code: cpu, Site: parse}, cause.Segment{Code: cpu, Site: parse}, "main.parse", report.CauseCPU},
		"two sites":              {cause.Segment{Code: cpu, Site: parse}, cause.Segment{Code: cpu, Site: write}, "", report.CauseCPU},
		"two causes at one site": {cause.Segment{Code: cpu, Site: parse}, cause.Segment{Code: sleep, Site: parse}, "", report.CauseOther},
		"two causes, two sites":  {cause.Segment{Code: cpu, Site: parse}, cause.Segment{Code: sleep, Site: write}, "", report.CauseOther},
	} {
		c.first.Start, c.first.End, c.first.G, c.first.FollowedWait = 0, 60, 1, -1
		c.second.Start, c.second.End, c.second.G, c.second.FollowedWait = 60, 100, 1, -1
		r := &Request{End: 100, G: 1, Segments: []cause.Segment{c.first, c.second}, Vias: make([][]path.ChainWait, 2)}
		got := r.joinedSegment(0, 2, &spell.Speller{Syms: &syms})
		site := ""
		if got.Site != nil {
			site = got.Site.Func
		}
		check.True(t, site == c.site && got.Cause == c.cause && got.DurationNS == 100,
			"%s: %s at %q for %d ns, want %s at %q", name, got.Cause, site, got.DurationNS, c.cause, c.site)
	}
}

// TestLanes: a request has lanes of the goroutines on its path, its own first, each once, and the wakes between them. It
// fails if the request's own goroutine has no lane because it waited all of the time.
func TestLanes(t *testing.T) {
	win, syms := timelinetest.BuildWindow(t, func(b *tracetext.Builder) {
		m, n := b.Thread(1), b.Thread(9)
		n.Create(50, 2, "main.helper", "main.start")
		m.Block(100, "chan receive", "runtime.chanrecv1", "main.handle")
		n.Block(110, "sleep", "time.Sleep", "main.other")
		n.Start(120, 2)
		m.Unblock(150, 9)
		m.Start(150, 9)
		n.Block(155, "chan receive", "runtime.chanrecv1", "main.helper")
		m.Unblock(160, 2, "runtime.chansend1", "main.other")
		n.Start(170, 2)
		m.Block(180, "sleep", "time.Sleep", "main.other")
		n.Unblock(200, 1, "runtime.chansend1", "main.helper")
		m.Start(220, 1)
		n.Block(300, "forever", "main.helper")
		m.Block(310, "forever", "main.handle")
	})
	step := func(g uint64) critpath.Step { return critpath.Step{G: g, FollowedWait: -1} }
	for name, c := range map[string]struct {
		steps []critpath.Step
		want  []uint64
	}{
		"all on another goroutine": {[]critpath.Step{step(2)}, []uint64{1, 2}},
		"there and back":           {[]critpath.Step{step(1), step(2), step(1), step(2)}, []uint64{1, 2}},
		"alone":                    {[]critpath.Step{step(1)}, []uint64{1}},
		"no steps":                 {nil, []uint64{1}},
		"unknown goroutine":        {[]critpath.Step{step(0), step(2)}, []uint64{1, 2}},
	} {
		r := &Request{Start: tracetext.Origin + 100, End: tracetext.Origin + 220, G: 1}
		r.AddLanes(path.New(win, syms, path.Options{}), c.steps, nil)
		var got []uint64
		for _, l := range r.Lanes {
			got = append(got, l.G)
		}
		check.True(t, slices.Equal(got, c.want), "%s: lanes of %d, want %d", name, got, c.want)
		if n := len(r.Wakes); n != len(c.want)-1 || n > 0 && (r.Wakes[0].From != 2 || r.Wakes[0].To != 1) {
			t.Errorf("%s: wakes %+v", name, r.Wakes)
		}
	}
}
