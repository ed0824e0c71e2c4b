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
