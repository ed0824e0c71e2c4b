package mark

import (
	"math"
	"testing"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestGrowing tests that all added entries are found, that repeated lookups soon need no lock,
// and that the map is copied rarely: a copy for each of ten thousand names took seconds.
func TestGrowing(t *testing.T) {
	var g growingMap[int, int]
	copies, last := 0, g.merged.Load()
	find := func(k int) (ok bool) {
		v := g.get(uint(k), k)
		if v == nil {
			g.mu.Lock()
			if v = g.getAdded(k); v == nil {
				g.add(k, -k, math.MaxInt)
			}
			g.mu.Unlock()
		}
		if v != nil && *v != -k {
			t.Fatalf("%d is %d", k, *v)
		}
		if now := g.merged.Load(); now != last {
			copies, last = copies+1, now
		}
		return v != nil
	}
	const all = 4000
	for k := range all {
		must.True(t, !find(k) && find(k) && find(k/2), "%d is there before it is added, or not after", k)
	}
	check.True(t, g.len() == all && copies <= 20, "%d are kept, %d copies were made", g.len(), copies)
	for range 8 {
		for k := range all {
			find(k)
		}
	}
	for k := range all {
		must.True(t, g.get(uint(k), k) != nil, "%d is found under the lock alone", k)
	}
}

// TestGrowingCloses tests that a map with maxEntries entries finds all of them without the lock,
// and accepts no more.
func TestGrowingCloses(t *testing.T) {
	var g growingMap[int, int]
	const all = 100
	for k := range 2 * all {
		must.Equal(t, g.closed.Load(), k >= all, "with %d entries it is closed, or is not", k)
		g.mu.Lock()
		g.add(k, k, all)
		g.mu.Unlock()
	}
	for k := range 2 * all {
		if v := g.get(uint(k), k); (v != nil) != (k < all) {
			t.Errorf("%d is %v", k, v)
		}
	}
}
