package pass

import "testing"

// TestDrawPieces: an instant in each interval decides which piece represents the interval. All intervals together are as long as all
// pieces. Long pieces represent only themselves; short ones represent, on average, their own length.
func TestDrawPieces(t *testing.T) {
	const interval = 100
	short := []int64{7, 20, 33, 64, 99}
	sums := make([]int64, len(short))
	var all []int64
	for range 200 {
		all = append(all, short...)
	}
	all = append(all, 100, 5000)
	for seed := range uint64(50) {
		drawn := append([]int64{}, all...)
		drawPieces(drawn, interval, seed)
		total := int64(0)
		for i, ns := range drawn {
			total += ns
			if i < len(all)-2 {
				sums[i%len(short)] += ns
			}
		}
		if total != 200*(7+20+33+64+99)+5100 {
			t.Fatalf("seed %d: the pieces represent %d ns", seed, total)
		}
		if drawn[len(all)-2] != 100 || drawn[len(all)-1] != 5000 {
			t.Fatalf("seed %d: long pieces represent %v", seed, drawn[len(all)-2:])
		}
	}
	for i, ns := range sums {
		if average := float64(ns) / (200 * 50); average < 0.85*float64(short[i]) || average > 1.15*float64(short[i]) {
			t.Errorf("pieces of %d ns represent %.1f ns", short[i], average)
		}
	}
}

// TestThinning: of a group with very many requests in the trace a smaller part is walked, but still all of the slowest hundredth. If no
// client waits for them, fewer requests are many.
func TestThinning(t *testing.T) {
	const perBucket = 1000
	walkedOf := func(total int, isAwaited bool) (exact, walked int32) {
		history := &latencyCounts{total: total, isAwaited: isAwaited}
		pl := &plan{groups: []plannedGroup{{count: 100 * perBucket, history: history}}}
		for bucket := range int32(100) {
			history.counts[bucket] = int32(total / 100)
			pl.strata = append(pl.strata, stratum{bucket: bucket, count: perBucket})
		}
		pl.findSlowBuckets()
		for i := range pl.strata {
			if s := &pl.strata[i]; s.bucket >= pl.groups[0].exactBucket {
				exact += s.count
			} else {
				walked += min(s.sampleSize, s.count)
			}
		}
		return exact, exact + walked
	}
	for _, c := range []struct {
		total            int
		isAwaited        bool
		minExact, walked int32 // of 100,000
	}{
		{10_000, true, 10_000, 15_700},
		{50_000, true, 10_000, 15_700},
		{100_000, true, 5000, 12_900},
		{400_000, true, 1000, 5200},
		{10_000_000, true, 1000, 5200},
		{10_000, false, 10_000, 15_700},
		{20_000, false, 5000, 12_900},
		{100_000, false, 1000, 4400},
		{10_000_000, false, 1000, 2000},
	} {
		if exact, walked := walkedOf(c.total, c.isAwaited); exact < c.minExact || walked > c.walked {
			t.Errorf("of a group with %d requests %d are certainly walked and %d in all, want at least %d and at most %d", c.total, exact, walked, c.minExact, c.walked)
		}
	}
}
