package timeline

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestOrderBirths: births are ordered by time and goroutine, also if most of them are at one instant.
func TestOrderBirths(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 1000} {
		g := new(Gen)
		list, want := make([]BirthTime, n), make([]Birth, n)
		for i := range list {
			time := 1e9 + rnd.Int64N(100)
			if i%3 == 0 {
				time = 1e9 + rnd.Int64N(1e6)
			}
			list[i], want[i] = BirthTime{time, uint32(i)}, Birth{Time: time, G: uint64(rnd.IntN(1e6))}
			g.ids.ids = append(g.ids.ids, want[i].G)
		}
		var got []Birth
		for _, i := range g.OrderBirths(list, nil) {
			got = append(got, Birth{Time: list[i].Time, G: g.ids.ids[list[i].Number]})
		}
		SortBirths(want)
		check.True(t, slices.Equal(got, want), "%d births are in another order than that of SortBirths", n)
	}
}

// TestEachInOrder: goroutines are visited in the order of their ids, also those whose ids are too sparse for pages.
func TestEachInOrder(t *testing.T) {
	g := new(Gen)
	g.ids.reset(0)
	g.ids.maxPages = 2
	w := &worker{ids: &g.ids}
	var want []uint64
	for _, id := range []uint64{700, 5, 300, 1 << 40, 6, 2000, 1000} {
		w.denseID(id)
		want = append(want, id)
	}
	g.ids.seal()
	slices.Sort(want)
	var got []uint64
	g.EachInOrder(func(id uint64, number uint32) {
		if got = append(got, id); g.ids.ids[number] != id || g.Number(id) != number {
			t.Errorf("goroutine %d has number %d, which is that of %d", id, number, g.ids.ids[number])
		}
	})
	check.True(t, slices.Equal(got, want), "the order is %d, want %d", got, want)
}
