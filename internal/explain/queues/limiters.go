package queues

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A rate limiter wakes no waiter: each one sleeps until its turn. While several wait, the limiter lets them through at its rate,
// so the distances between the ends of their sleeps show it. Sleeps of several limiters at one line, such as one for each client,
// end at any distance.

// A limiterWait is a sleep for a rate limiter.
type limiterWait struct {
	site      tracefmt.FrameID
	goroutine uint64
	waitedNS  int64 // how long the same request had waited for it before
	interval
}

// A limiterSum adds up the sleeps for rate limiters at one site.
type limiterSum struct {
	gapsNS     []int64 // time between the ends of successive waits that overlap
	arrivals   []int64 // when each wait would have begun if its request had not waited before
	requests   int     // that waited, once or more
	waits      int
	maxWaiters int   // largest number of simultaneous waits
	queuedNS   int64 // time during which a goroutine waited
}

// maxLimiterGaps bounds the gaps, and the arrivals, that are stored for one site.
const maxLimiterGaps = 4096

// addLimiterWaits records the sleeps on a request's path that are in a function of a rate limiter.
func (p *workerSum) addLimiterWaits(w *path.WalkResult) {
	firstWait := len(p.limiterWaits)
	for i := range w.Steps {
		if step := &w.Steps[i]; step.Kind == critpath.Sleep && p.stage.Sites.HasRole(step.Stack, knowledge.RateLimiter) {
			wait := limiterWait{site: p.stage.Sites.SiteOf(step.Stack), goroutine: step.G, interval: interval{step.Start, step.End}}
			for _, earlier := range slices.Backward(p.limiterWaits[firstWait:]) {
				if earlier.site == wait.site {
					wait.waitedNS = earlier.waitedNS + earlier.end - earlier.start
					break
				}
			}
			p.limiterWaits = append(p.limiterWaits, wait)
		}
	}
}

// aggregateLimiters adds the limiter waits that all workers recorded in a generation to the sums of their sites, once for each
// wait.
func (s *Sum) aggregateLimiters() {
	var list []limiterWait
	for _, p := range s.workers {
		list = append(list, p.limiterWaits...)
	}
	slices.SortFunc(list, func(a, b limiterWait) int {
		return cmp.Or(cmp.Compare(a.site, b.site), cmp.Compare(a.end, b.end), cmp.Compare(a.goroutine, b.goroutine), cmp.Compare(a.start, b.start), cmp.Compare(a.waitedNS, b.waitedNS))
	})
	// One wait may be on the paths of several requests.
	list = slices.CompactFunc(list, func(a, b limiterWait) bool { return a.site == b.site && a.goroutine == b.goroutine && a.end == b.end })
	for atSite := range entry.EqualRuns(list, func(a, b limiterWait) bool { return a.site == b.site }) {
		sum, waits := entry.GetOrAdd(s.limiters, atSite[0].site), make([]interval, 0, len(atSite))
		for i, wait := range atSite {
			waits = append(waits, wait.interval)
			if i > 0 && wait.start < atSite[i-1].end && len(sum.gapsNS) < maxLimiterGaps {
				sum.gapsNS = append(sum.gapsNS, wait.end-atSite[i-1].end)
			}
			if len(sum.arrivals) < maxLimiterGaps {
				sum.arrivals = append(sum.arrivals, wait.start-wait.waitedNS)
			}
			if sum.waits++; wait.waitedNS == 0 {
				sum.requests++
			}
		}
		sum.maxWaiters = max(sum.maxWaiters, maxOverlap(waits))
		slices.SortFunc(waits, func(a, b interval) int { return cmp.Compare(a.start, b.start) })
		lastEnd := int64(0)
		for _, wait := range waits {
			sum.queuedNS += max(0, wait.end-max(wait.start, lastEnd))
			lastEnd = max(lastEnd, wait.end)
		}
	}
}

// A Limiter describes the waits for a rate limiter at one line, in the sampled slices of the trace.
type Limiter struct {
	Site *report.Site
	// Rate is the number of waiters that the limiter lets through in a second while others wait; 0 if the gaps differ too much
	// for a single limiter.
	Rate        float64
	MaxWaiters  int     // how many waited at once
	QueuedShare float64 // share of the time in which at least one goroutine waited
	// WaitsPerRequest is how often a request that waits for it does so.
	WaitsPerRequest float64
	// BurstDeficit is by how much larger the limiter's burst would have to be for no request to wait; 0 if Rate is.
	BurstDeficit int
}

// Limiters returns the rate limiters at which requests wait, by source line. Merge must have been called.
func (s *Sum) Limiters(sp *spell.Speller) (out []Limiter) {
	for site, sum := range s.limiters {
		rate := sum.rate()
		out = append(out, Limiter{sp.Site(site), rate, sum.maxWaiters, float64(sum.queuedNS) / float64(max(s.sliceNS, 1)), float64(sum.waits) / float64(max(sum.requests, 1)), sum.burstDeficit(rate)})
	}
	slices.SortFunc(out, func(a, b Limiter) int { return a.Site.Compare(b.Site) })
	return out
}

// rate returns how many waiters the limiter lets through in a second: the inverse of the mean gap between the 25th and the 75th
// percentile, because a late wake-up makes one gap longer and the next one shorter. It is 0 if there are few gaps or these
// quartiles differ by more than half.
func (s *limiterSum) rate() float64 {
	n := len(s.gapsNS)
	if n < threshold.SmallSample {
		return 0
	}
	slices.Sort(s.gapsNS)
	first, third := s.gapsNS[n/4], s.gapsNS[3*n/4]
	if first <= 0 || 2*third > 3*first {
		return 0
	}
	sumNS := int64(0)
	middle := s.gapsNS[n/4 : 3*n/4+1]
	for _, gap := range middle {
		sumNS += gap
	}
	return float64(len(middle)) / float64(sumNS) * 1e9
}

// burstDeficit returns how many tokens a limiter with this rate lacks at most. A call waits only when no token is left. Then each
// call takes one more, and the limiter adds tokens at its rate. Calls that a request makes one after another come sooner if the
// earlier ones do not wait, so more are lacking than wait at once.
func (s *limiterSum) burstDeficit(rate float64) int {
	if rate == 0 {
		return 0
	}
	slices.Sort(s.arrivals)
	maxDeficit, deficit := 0.0, 0.0
	for i, arrival := range s.arrivals {
		if i > 0 {
			deficit = max(0, deficit-float64(arrival-s.arrivals[i-1])/1e9*rate)
		}
		deficit++
		maxDeficit = max(maxDeficit, deficit)
	}
	return int(math.Ceil(maxDeficit))
}
