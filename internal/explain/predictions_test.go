package explain

import (
	"slices"
	"testing"
)

func TestSubsets(t *testing.T) {
	got := subsets(0, 4, 2)
	want := [][]int{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v", got)
	}
	for n, k := range map[int]int{3: 3, 8: 1} {
		if got := subsets(0, n, k); len(got) != map[int]int{3: 1, 8: 8}[n] {
			t.Errorf("%d of %d: %v", k, n, got)
		}
	}
	if got := subsets(0, 2, 3); len(got) != 0 {
		t.Errorf("three of two: %v", got)
	}
}
