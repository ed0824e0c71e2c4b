package queues

import (
	"cmp"
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
	interval
}

// A limiterSum adds up the waits at one site.
type limiterSum struct {
	gapsNS     []int64 // distances between the ends of successive waits that overlap
	maxWaiters int     // waits at the same time
	queuedNS   int64   // time during which a goroutine waited
}

// maxLimiterGaps bounds the distances of one site.
const maxLimiterGaps = 4096

// addLimiterWaits records the sleeps of a request for rate limiters.
func (p *workerSum) addLimiterWaits(w *path.WalkResult) {
	for i := range w.Steps {
		if step := &w.Steps[i]; step.Kind == critpath.Sleep && p.stage.Sites.HasRole(step.Stack, knowledge.RateLimiter) {
			p.limiterWaits = append(p.limiterWaits, limiterWait{p.stage.Sites.SiteOf(step.Stack), step.G, interval{step.Start, step.End}})
		}
	}
}

// aggregateLimiters adds the waits of a generation, from all workers, to the sums.
func (s *Sum) aggregateLimiters() {
	var list []limiterWait
	for _, p := range s.workers {
		list = append(list, p.limiterWaits...)
	}
	slices.SortFunc(list, func(a, b limiterWait) int {
		return cmp.Or(cmp.Compare(a.site, b.site), cmp.Compare(a.end, b.end), cmp.Compare(a.goroutine, b.goroutine), cmp.Compare(a.start, b.start))
	})
	// One wait may be on the paths of several requests.
	list = slices.CompactFunc(list, func(a, b limiterWait) bool { return a.site == b.site && a.goroutine == b.goroutine && a.end == b.end })
	for atSite := range entry.EqualRuns(list, func(a, b limiterWait) bool { return a.site == b.site }) {
		sum, waits := entry.GetOrAdd(s.limiters, atSite[0].site), []interval{atSite[0].interval}
		for i, wait := range atSite[1:] {
			waits = append(waits, wait.interval)
			if last := atSite[i].end; wait.start < last && len(sum.gapsNS) < maxLimiterGaps {
				sum.gapsNS = append(sum.gapsNS, wait.end-last)
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

// A Limiter describes the waits for a rate limiter at one line, in the slices of time that were sampled.
type Limiter struct {
	Site *report.Site
	// Rate is how many waiters it lets through in a second while others wait, 0 if the distances differ too much for one limiter.
	Rate        float64
	MaxWaiters  int     // how many waited at once
	QueuedShare float64 // of the time, in which at least one waited
}

// Limiters returns the rate limiters of requests. Merge must have been called.
func (s *Sum) Limiters(sp *spell.Speller) (out []Limiter) {
	for site, sum := range s.limiters {
		out = append(out, Limiter{sp.Site(site), sum.rate(), sum.maxWaiters, float64(sum.queuedNS) / float64(max(s.sliceNS, 1))})
	}
	slices.SortFunc(out, func(a, b Limiter) int { return a.Site.Compare(b.Site) })
	return out
}

// rate returns the rate of a limiter by the middle half of the distances: a late wake-up makes one longer and the next one shorter.
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
