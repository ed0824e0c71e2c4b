package queues

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
)

// tickerPeriod returns the period of a ticker, in ns: the time of which at least 80 % of the distances between successive marks of
// a server are multiples (1 to 20 times, within 10 %); 0 if there is none. It sorts the marks.
func tickerPeriod(marks []endMark) int64 {
	slices.SortFunc(marks, func(a, b endMark) int { return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.time, b.time)) })
	var gaps []int64
	for i := 1; i < len(marks); i++ {
		if d := marks[i].time - marks[i-1].time; marks[i].server == marks[i-1].server && d > threshold.IdleCheckNS {
			gaps = append(gaps, d)
		}
	}
	if len(gaps) < 5 {
		return 0
	}
	slices.Sort(gaps)
	// A late wake-up makes one distance longer and the next one shorter, so the smallest distance is no good first guess.
	period := float64(gaps[len(gaps)/5])
	fitPeriod := func(candidate float64) (n int, sum float64) {
		for _, d := range gaps {
			k := math.Round(float64(d) / candidate)
			if k >= 1 && k <= 20 && math.Abs(float64(d)/candidate-k) <= 0.1 {
				n++
				sum += float64(d) / k
			}
		}
		return n, sum
	}
	for range 2 {
		n, sum := fitPeriod(period)
		if n == 0 {
			return 0
		}
		period = sum / float64(n)
	}
	if n, _ := fitPeriod(period); float64(n) < 0.8*float64(len(gaps)) {
		return 0
	}
	return int64(period)
}
