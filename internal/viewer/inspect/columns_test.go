package inspect

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
)

// TestNumbers compares columns with a slice, for numbers near the first of a chunk, near 0, far from both, at the
// limits, and changed later. It detects a truncated number, and one that is read with the base of another chunk.
func TestNumbers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	values := func() int64 {
		switch rnd.IntN(8) {
		case 0:
			return rnd.Int64() - rnd.Int64()
		case 1:
			return []int64{math.MinInt64, math.MaxInt64, 0, -1, zeroWord - 1, zeroWord, -zeroWord, -zeroWord - 1, farBit - 1, farBit}[rnd.IntN(10)]
		case 2:
			return 1<<62 + rnd.Int64N(1<<31) - 1<<30
		}
		return rnd.Int64N(1 << rnd.IntN(40))
	}
	for _, relative := range []bool{false, true} {
		c := numbers{relative: relative}
		var want []int64
		check := func() {
			t.Helper()
			must.Equal(t, c.length, len(want), "relative %v: rows", relative)
			for i, v := range want {
				must.Equal(t, c.get(int32(i)), v, "relative %v: row %d", relative, i)
			}
		}
		for range 2 {
			for range 2*chunkRows + 100 {
				v := values()
				c.add(v)
				want = append(want, v)
			}
			check()
			for range chunkRows {
				i, v := rnd.IntN(len(want)), values()
				c.set(int32(i), v)
				want[i] = v
			}
			check()
		}
	}
}

// TestRowTable compares the table with a map, for neighbouring and distant ids. It detects a row that is found for
// an id without a row, next to an id with one.
func TestRowTable(t *testing.T) {
	var table rowTable
	table.init()
	want := make(map[uint64]int32)
	rnd := rand.New(rand.NewPCG(7, 8))
	ids := []uint64{0, math.MaxUint64}
	for i := range 20_000 {
		id := uint64(i) + 1<<40
		if i%5 == 0 {
			id = rnd.Uint64()
		}
		ids = append(ids, id, id+1, id-1, id+pageIDs)
		if _, ok := want[id]; !ok && i%3 != 0 {
			want[id] = int32(len(want))
			table.put(id, want[id])
		}
	}
	for _, id := range ids {
		row, ok := table.get(id)
		if w, present := want[id]; ok != present || ok && row != w {
			t.Fatalf("goroutine %d: row %d, %v; should be %d, %v", id, row, ok, w, present)
		}
	}
}
