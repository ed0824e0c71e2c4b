package flight

import (
	"math"
	"slices"
	"time"
)

// A tokenBucket allows size recordings in each interval, all at once if it is full. A nil
// tokenBucket allows all.
type tokenBucket struct {
	size     float64
	interval time.Duration // in which an empty bucket fills
	tokens   float64
	last     time.Time
}

// newTokenBucket returns a full bucket of size tokens, which gets that many in each
// interval; nil, which has no bound, if size is not above 0.
func newTokenBucket(size int, interval time.Duration, now time.Time) *tokenBucket {
	if size <= 0 {
		return nil
	}
	return &tokenBucket{size: float64(size), interval: interval, tokens: float64(size), last: now}
}

// clockJitter bounds by how much requests that end on several Ps may arrive out of order. A
// clock that goes back further was set back.
const clockJitter = time.Minute

// checkToken refills the bucket and reports whether a token is available, but takes none. With useReserve all tokens count, without it only those
// above half of the bucket's size. It is true for a nil bucket. A clock that is set back adds no tokens.
func (b *tokenBucket) checkToken(now time.Time, useReserve bool) bool {
	if b == nil {
		return true
	}
	b.refill(now)
	need := 1.
	if !useReserve {
		need += math.Floor(b.size / 2)
	}
	return b.tokens > need-1e-9
}

// refill adds the tokens for the time since the last refill.
func (b *tokenBucket) refill(now time.Time) {
	elapsed := now.Sub(b.last)
	if elapsed > 0 {
		b.tokens = min(b.size, b.tokens+b.size*float64(elapsed)/float64(b.interval))
	}
	if elapsed > 0 || elapsed < -clockJitter {
		b.last = now
	}
}

// timeToToken returns the time from the last refill to the next token.
func (b *tokenBucket) timeToToken() time.Duration {
	return time.Duration(max(0, 1-b.tokens) * float64(b.interval) / b.size)
}

// takeToken takes a token; checkToken must have reported one.
func (b *tokenBucket) takeToken() {
	if b != nil {
		b.tokens--
	}
}

// replay takes the tokens that earlier processes took at the given times. A time in the
// future, from before the clock was set back, counts as now.
func (b *tokenBucket) replay(takenAt []time.Time, now time.Time) {
	if b == nil || len(takenAt) == 0 {
		return
	}
	takenAt = slices.SortedFunc(slices.Values(takenAt), time.Time.Compare)
	b.last = takenAt[0]
	for _, t := range takenAt {
		if t.After(now) {
			t = now
		}
		b.refill(t)
		b.tokens = max(0, b.tokens-1)
	}
	b.refill(now)
}
