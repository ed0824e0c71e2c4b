package sample

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// A testRequest is a request whose latency many others have as well.
type testRequest struct{ latency, start int64 }

func slowerFirst(a, b testRequest) int {
	return cmp.Or(cmp.Compare(b.latency, a.latency), cmp.Compare(a.start, b.start))
}

func smallerKeyFirst(a, b testRequest) int {
	return cmp.Compare(Key(a.start, 1, 1), Key(b.start, 1, 1))
}

// TestTopNDependsOnlyOnElements: in whatever order elements arrive, and however they are divided among workers, a TopN stores
// exactly the first ones. It fails if another element than the last is dropped.
func TestTopNDependsOnlyOnElements(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		all := make([]testRequest, rnd.IntN(200))
		for i := range all {
			all[i] = testRequest{latency: rnd.Int64N(20), start: int64(i)}
		}
		limit, workers := 1+rnd.IntN(60), 1+rnd.IntN(4)
		for _, compare := range []func(a, b testRequest) int{slowerFirst, smallerKeyFirst} {
			want := slices.SortedFunc(slices.Values(all), compare)
			want = want[:min(limit, len(want))]
			rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			parts := make([]*TopN[testRequest], workers)
			for i := range parts {
				parts[i] = New(limit, compare)
			}
			for _, x := range all {
				parts[rnd.IntN(workers)].Add(x)
			}
			merged := New(limit, compare)
			for _, part := range parts {
				merged.Merge(part)
			}
			if got := merged.Sorted(); !slices.Equal(got, want) {
				t.Fatalf("of %d elements, on %d workers, %v are stored, want %v", len(all), workers, got, want)
			}
		}
	}
}

// TestTopNDropsEachElementOnce: Add returns the element that it drops, so the stored and the dropped elements are all that were
// added. Last shows before an Add what may be dropped.
func TestTopNDropsEachElementOnce(t *testing.T) {
	top := New(3, cmp.Compare[int])
	var dropped []int
	for i, x := range []int{5, 1, 4, 6, 2, 3, 0} {
		last, wasFull := top.Last()
		removed, isFull := top.Add(x)
		if wasFull != (i >= 3) || isFull != wasFull || isFull && removed != max(last, x) {
			t.Errorf("adding %d dropped %d (%v), and the last one was %d (%v)", x, removed, isFull, last, wasFull)
		}
		if isFull {
			dropped = append(dropped, removed)
		}
	}
	if got := top.Sorted(); !slices.Equal(got, []int{0, 1, 2}) || !slices.Equal(dropped, []int{6, 5, 4, 3}) {
		t.Errorf("%v are stored and %v were dropped", got, dropped)
	}
}

// TestNilTopN: a nil TopN is empty and can be merged into another one.
func TestNilTopN(t *testing.T) {
	var none *TopN[int]
	top := New(1, cmp.Compare[int])
	top.Merge(none)
	if _, isFull := none.Last(); isFull || len(none.Sorted()) != 0 || len(top.Sorted()) != 0 {
		t.Error("a nil TopN has elements")
	}
}

// TestKeysAreSpread: of requests with consecutive starts, on few goroutines, the smallest keys are a sample: each tenth of the
// requests has about a tenth of it. It fails if keys increase with the start or with the goroutine.
func TestKeysAreSpread(t *testing.T) {
	const requests, goroutines, sampled = 20_000, 8, 2000
	for _, factor := range []uint64{1, 0xd1342543de82ef95} {
		smallest := New(sampled, func(a, b [2]int) int {
			return cmp.Compare(Key(int64(a[0]), uint64(a[1]), factor), Key(int64(b[0]), uint64(b[1]), factor))
		})
		for i := range requests {
			smallest.Add([2]int{i, i % goroutines})
		}
		var byTenth [10]int
		var byGoroutine [goroutines]int
		for _, r := range smallest.Sorted() {
			byTenth[r[0]*10/requests]++
			byGoroutine[r[1]]++
		}
		for i, n := range byTenth {
			check.True(t, n >= sampled/10*3/4 && n <= sampled/10*5/4, "factor %#x: %d of %d are in tenth %d", factor, n, sampled, i)
		}
		for g, n := range byGoroutine {
			check.True(t, n >= sampled/goroutines*3/4 && n <= sampled/goroutines*5/4,
				"factor %#x: %d of %d are on goroutine %d", factor, n, sampled, g)
		}
	}
}

// TestKeys compares hashes with known values: a change of them changes which requests a report shows. The first is the first
// number of SplitMix64 with seed 0.
func TestKeys(t *testing.T) {
	check.Equal(t, Key(0, 1, 1), 0xe220a8397b1dcdaf, "Key(0, 1, 1)")
	check.Equal(t, Hash(1<<32), 0x7f4a7c157f4a7c15, "Hash(1<<32)")
}
