package flight

import (
	"math"
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

// has reports whether one may pass, of those who may not have all while half is
// left. A clock that goes back gives nothing.
func (b *bucket) has(now time.Time, all bool) bool {
	if b == nil {
		return true
	}
	if d := now.Sub(b.last); d > 0 {
		b.tokens = min(b.size, b.tokens+b.size*float64(d)/float64(b.every))
	}
	b.last = now
	need := 1.
	if !all {
		need += math.Floor(b.size / 2)
	}
	return b.tokens > need-1e-9
}

func (b *bucket) take() {
	if b != nil {
		b.tokens--
	}
}
