package request

import (
	"maps"
	"testing"
)

// TestSparesInAnyOrder: of a thousand goroutines that are all parts of other work some 32 are looked at, the same ones in whichever order they are
// found: workers find them in the order in which they come to it. It fails if the first 32 found are.
func TestSparesInAnyOrder(t *testing.T) {
	const n = 1000
	looked := func(from, to, step int) map[int]bool {
		s := &started{allParts: true, born: n, origin: new(origin)}
		s.begin()
		out := make(map[int]bool)
		for g := from; g != to; g += step {
			if !s.spares(uint64(g)) {
				out[g] = true
			}
		}
		if s.born != n || s.origin.total+len(out) != n {
			t.Errorf("%d born, %d looked at, %d only counted; want %d in all", s.born, len(out), s.origin.total, n)
		}
		return out
	}
	up, down := looked(1, n+1, 1), looked(n, 0, -1)
	if !maps.Equal(up, down) || len(up) < fewLooked/2 || len(up) > fewLooked {
		t.Errorf("%d looked at in one order, %d in the other, not the same, or not about %d", len(up), len(down), fewLooked)
	}
}
