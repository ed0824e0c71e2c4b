package flight

import (
	"math"
	"slices"
	"time"
)

// A bucket is a token bucket: it allows size recordings in each interval, all at once if it
// is full. A nil bucket allows all.
type bucket struct {
	size   float64
	every  time.Duration // in which an empty one fills
	tokens float64
	last   time.Time
}

func newBucket(n int, every time.Duration, now time.Time) *bucket {
	if n <= 0 {
		return nil
	}
	return &bucket{size: float64(n), every: every, tokens: float64(n), last: now}
}

// Requests that end at the same time on several Ps may arrive out of order by jitter.
const jitter = time.Minute

// has reports whether a token is available: of all tokens, or of those above the reserved
// half. A clock that is set back adds none.
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

// wait returns the time from the last fill to the next token.
func (b *bucket) wait() time.Duration {
	return time.Duration(max(0, 1-b.tokens) * float64(b.every) / b.size)
}

func (b *bucket) take() {
	if b != nil {
		b.tokens--
	}
}

// recall takes the tokens that an earlier process took. A time in the future, from before
// the clock was set back, counts as now.
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
