package timeline

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestMergeSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for parts := range 9 {
		var list [][2]int
		for range parts {
			part := make([][2]int, r.IntN(30))
			for i := range part {
				part[i] = [2]int{r.IntN(20), len(list) + i}
			}
			slices.SortStableFunc(part, func(a, b [2]int) int { return a[0] - b[0] })
			list = append(list, part...)
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) })
		mergeSorted(list, func(a, b [2]int) bool { return a[0] < b[0] })
		check.True(t, slices.Equal(list, want), "%d parts: %v, want %v", parts, list, want)
	}
}
