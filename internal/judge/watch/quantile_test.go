package watch

import (
	"fmt"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestQuantile: quantiles are by nearest rank, exactly at a rank and between two; a percentile of the report takes precedence.
func TestQuantile(t *testing.T) {
	reported := int64(7)
	for _, c := range []struct {
		p         pollStats
		hundredth int
		want      int64
	}{
		{pollStats{count: 100, max: 99, histogram: [][2]int64{{10, 50}, {20, 49}, {90, 1}}}, 50, 10}, {pollStats{count: 100, max: 99, histogram: [][2]int64{{10, 50}, {20, 49}, {90, 1}}}, 51, 20},
		{pollStats{count: 100, max: 99, histogram: [][2]int64{{10, 50}, {20, 49}, {90, 1}}}, 99, 20}, {pollStats{count: 101, max: 99, histogram: [][2]int64{{10, 50}, {20, 49}, {90, 2}}}, 99, 90},
		{pollStats{count: 1, max: 5, histogram: [][2]int64{{10, 1}}}, 50, 5}, {pollStats{count: 3, max: 99, histogram: [][2]int64{{10, 0}, {20, 3}}}, 1, 20},
		{pollStats{count: 3, max: 99, p50: &reported, histogram: [][2]int64{{20, 3}}}, 50, 7}, {pollStats{count: 3, max: 99, p99: &reported, histogram: [][2]int64{{20, 3}}}, 99, 7}, {pollStats{count: 3, max: 99, p99: &reported, histogram: [][2]int64{{20, 3}}}, 50, 20},
	} {
		if got := c.p.quantile(c.hundredth); got == nil || *got != c.want {
			t.Errorf("%d hundredths of %v: %v, want %d", c.hundredth, c.p.histogram, got, c.want)
		}
	}
	for _, empty := range []pollStats{{}, {count: 5}, {count: 5, histogram: [][2]int64{{1, 4}}}} {
		if got := empty.quantile(99); got != nil {
			t.Errorf("%+v: %d", empty, *got)
		}
	}
}

// TestSumPolls: polls are summed backwards from the last one until there are enough requests, but not polls older than the
// limit.
func TestSumPolls(t *testing.T) {
	end := time.Unix(1e9, 0)
	v := func(n int64) *int64 { return &n }
	g := &group{}
	for _, l := range []struct {
		ago   time.Duration
		count int
		max   int64
	}{{maxJoinedAge + 1, 8, 80}, {maxJoinedAge, 4, 40}, {time.Second, 2, 90}, {0, 1, 10}} {
		x := pollStats{time: end.Add(-l.ago), count: l.count, max: l.max, p50: v(l.max / 2), p99: v(l.max), histogram: [][2]int64{{20, int64(l.count)}, {5, 1}}}
		g.polls = append(g.polls, x)
	}
	for need, want := range map[int]string{0: "0 0 0 [] true", 1: "1 1 10 [[5 1] [20 1]] false", 2: "3 2 90 [[5 2] [20 3]] true", 3: "3 2 90 [[5 2] [20 3]] true", 4: "7 3 90 [[5 3] [20 7]] true", 100: "7 3 90 [[5 3] [20 7]] true"} {
		sum, looks := g.sumPolls(end, need)
		check.Equal(t, fmt.Sprint(sum.count, looks, sum.max, sum.histogram, sum.p50 == nil && sum.p99 == nil), want, "for %d", need)
	}
}

// TestRetry: the delay doubles with each failure, within bounds, and is evenly spread around that.
func TestRetry(t *testing.T) {
	for failures, want := range map[int]time.Duration{-1: 1, 0: 1, 1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 100: 30} {
		want *= time.Second
		if low, high := retryDelay(failures, false, 0), retryDelay(failures, false, 1); low != want/2+want/4 || high != want+want/4 {
			t.Errorf("after %d failures %v to %v", failures, low, high)
		}
	}
	check.Equal(t, retryDelay(9, true, 0.5), busyRetry, "who is busy is asked after")
}
