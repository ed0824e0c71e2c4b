package detailed

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// walk makes n neighbouring segments whose lengths span five decades.
func walk(n int, rnd *rand.Rand) []cause.Segment {
	out := make([]cause.Segment, n)
	at := int64(1000)
	for i := range out {
		d := int64(1)
		for range rnd.IntN(5) {
			d *= 1 + rnd.Int64N(20)
		}
		out[i] = cause.Segment{Start: at, End: at + d, G: uint64(1 + rnd.IntN(9)), Code: cause.Code(rnd.IntN(6)), Via: -1}
		at += d
	}
	return out
}

// TestLongPathsStayWhole joins paths of many lengths: nothing of their time, of no cause, gets lost, and the longest
// segments stay as they are.
func TestLongPathsStayWhole(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2000, 2001, 2500, 9999, 100000} {
		segs := walk(n, rnd)
		s := &Request{Start: segs[0].Start, End: segs[n-1].End, G: 1, Segments: segs, Vias: make([][]path.Via, n)}
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
		at, found, count := s.Start, false, 0
		for _, x := range r.Segments {
			if x.StartNS != at {
				t.Fatalf("of %d: a segment begins at %d, the one before ends at %d", n, x.StartNS, at)
			}
			at += x.DurationNS
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
			if sum != x.DurationNS {
				t.Errorf("of %d: the causes of a joined segment add up to %d ns of %d", n, sum, x.DurationNS)
			}
		}
		maps.DeleteFunc(got, func(_ string, ns int64) bool { return ns == 0 })
		// One that is no longer than two mean parts may be joined, too.
		found = found || longest <= 2*(s.End-s.Start)/maxSegments
		if at != s.End || count != n || !found {
			t.Errorf("of %d: it ends at %d, want %d; %d segments went into it; the longest stands by itself: %v", n, at, s.End, count, found)
		}
		if !maps.Equal(got, want) {
			t.Errorf("of %d: by cause %v, want %v", n, got, want)
		}
	}
}
