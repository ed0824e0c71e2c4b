package flight

import (
	"math"
	"slices"
	"time"
)

// A bucket lets so many snapshots pass in a stretch of time, and at first as
// many at once. A nil bucket lets all pass.
type bucket struct {
	size   float64
	every  time.Duration // in which it fills
	tokens float64
	last   time.Time
}

func newBucket(n int, every time.Duration, now time.Time) *bucket {
	if n <= 0 {
		return nil
	}
	return &bucket{size: float64(n), every: every, tokens: float64(n), last: now}
}

// jitter is by how much requests that end at the same time on several Ps may come out
// of order.
const jitter = time.Minute

// has reports whether one may pass, of those who may not have all while half is
// left. A clock that goes back gives nothing.
func (b *bucket) has(now time.Time, all bool) bool {
	if b == nil {
		return true
	}
	b.fill(now)
	need := 1.
	if !all {
		need += math.Floor(b.size / 2)
	}
	return b.tokens > need-1e-9
}

func (b *bucket) fill(now time.Time) {
	d := now.Sub(b.last)
	if d > 0 {
		b.tokens = min(b.size, b.tokens+b.size*float64(d)/float64(b.every))
	}
	if d > 0 || d < -jitter {
		b.last = now
	}
}

// wait returns how long after it was last filled one may pass.
func (b *bucket) wait() time.Duration {
	return time.Duration(max(0, 1-b.tokens) * float64(b.every) / b.size)
}

func (b *bucket) take() {
	if b != nil {
		b.tokens--
	}
}

// recall takes in those that passed before, in an earlier process: one that crashes
// and is started repeatedly has no full bucket each time. What a clock that went
// back says to come yet, passed just now.
func (b *bucket) recall(passed []time.Time, now time.Time) {
	if b == nil || len(passed) == 0 {
		return
	}
	passed = slices.SortedFunc(slices.Values(passed), time.Time.Compare)
	b.last = passed[0]
	for _, at := range passed {
		if at.After(now) {
			at = now
		}
		b.fill(at)
		b.tokens = max(0, b.tokens-1)
	}
	b.fill(now)
}
