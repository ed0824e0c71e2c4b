package request

import (
	"maps"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestCountOnlySample: of a thousand goroutines that are all parts of other work, about 32 are inspected. They are the
// same in every order, because workers find goroutines in different orders. It fails if the first 32 are inspected.
func TestCountOnlySample(t *testing.T) {
	const n = 1000
	looked := func(from, to, step int) map[int]bool {
		s := &startFuncStats{allParts: true, bornCount: n, origin: new(originStats)}
		s.beginGeneration()
		out := make(map[int]bool)
		for g := from; g != to; g += step {
			if !s.countBirth(uint64(g)) {
				out[g] = true
			}
		}
		if s.bornCount != n || s.origin.total+len(out) != n {
			t.Errorf("%d goroutines created, %d inspected, %d only counted; want %d in total", s.bornCount, len(out), s.origin.total, n)
		}
		return out
	}
	up, down := looked(1, n+1, 1), looked(n, 0, -1)
	check.True(t, maps.Equal(up, down) && len(up) >= inspectedPerFunc/2 && len(up) <= inspectedPerFunc,
		"%d inspected in one order, %d in the other: not the same ones, or not about %d", len(up), len(down), inspectedPerFunc)
}
