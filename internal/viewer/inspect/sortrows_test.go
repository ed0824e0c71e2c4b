package inspect

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestSortRows compares the order with a comparison sort, for keys of all widths, few of many rows, and equal
// keys, which must keep their order. It detects a skipped digit, and a result that remains in the spare memory.
func TestSortRows(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for range 300 {
		keys := make([]int64, 1+rnd.IntN(3000))
		width := rnd.IntN(64)
		for i := range keys {
			keys[i] = int64(rnd.Uint64()) >> width // of both signs
		}
		if rnd.IntN(5) == 0 {
			keys[0], keys[len(keys)-1] = math.MinInt64, math.MaxInt64
		}
		var rows []int32
		for i := range int32(len(keys)) {
			if rnd.IntN(4) > 0 {
				rows = append(rows, i)
			}
		}
		rnd.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		want := slices.Clone(rows)
		slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(keys[a], keys[b]) })
		sortRows(rows, func(row int32) uint64 { return sortKey(keys[row]) })
		must.True(t, slices.Equal(rows, want), "%d rows with keys of %d bits are not in order", len(rows), 64-width)
	}
}
