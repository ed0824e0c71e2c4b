package timeline

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// checkChildren compares creators, children and times with the reference reader, and parts of the time with the
// whole. It detects a child with a wrong creator, a repeated or missing child, and a wrong child at the limits of
// the interval.
func checkChildren(t *testing.T, in *decoded, ref *account) {
	t.Helper()
	type child struct {
		g         uint64
		birthTime int64
	}
	want := make(map[uint64]map[uint64]change) // by creator and child
	for g, life := range ref.gs {
		for _, c := range life {
			if strings.HasPrefix(c.transition, "gone->") && c.actor != 0 {
				if want[c.actor] == nil {
					want[c.actor] = make(map[uint64]change)
				}
				want[c.actor][g] = c
			}
		}
	}
	win := Window{Gens: in.gens}
	list := func(id uint64, from, to int64) (out []child) {
		win.Children(id, from, to, func(b Birth) bool {
			out = append(out, child{b.G, b.Time})
			return true
		})
		return out
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, id := range goroutines(in.gens) {
		all := list(id, math.MinInt64, math.MaxInt64)
		if len(all) != len(want[id]) {
			t.Errorf("goroutine %d: %d children, the reference has %d", id, len(all), len(want[id]))
			return
		}
		for i, c := range all {
			if w, ok := want[id][c.g]; !ok || !sameTime(c.birthTime, w) {
				t.Errorf("goroutine %d: child %d at %d; the reference: %v, %v", id, c.g, c.birthTime, ok, w)
				return
			}
			if i > 0 && c.birthTime < all[i-1].birthTime {
				t.Errorf("goroutine %d: child %d at %d comes after one at %d", id, c.g, c.birthTime, all[i-1].birthTime)
				return
			}
		}
		for range min(2*len(all), 20) {
			from := all[rnd.IntN(len(all))].birthTime + rnd.Int64N(3) - 1
			to := all[rnd.IntN(len(all))].birthTime + rnd.Int64N(3) - 1
			var part []child
			for _, c := range all {
				if c.birthTime >= from && c.birthTime < to {
					part = append(part, c)
				}
			}
			if got := list(id, from, to); !slices.Equal(got, part) {
				t.Errorf("goroutine %d from %d to %d: children %v, should be %v", id, from, to, got, part)
				return
			}
			if len(part) > 1 {
				n := 0
				win.Children(id, from, to, func(Birth) bool { n++; return n < 2 })
				check.Equal(t, n, 2, "goroutine %d: f stopped after two of %d children, but", id, len(part))
			}
		}
	}
}
