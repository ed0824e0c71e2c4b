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

// A limiterSum adds up the sleeps for rate limiters at one site.
type limiterSum struct {
	gapsNS     []int64 // time between the ends of successive waits that overlap
	maxWaiters int     // largest number of simultaneous waits
	queuedNS   int64   // time during which a goroutine waited
}

// maxLimiterGaps bounds the gaps that are stored for one site.
const maxLimiterGaps = 4096

// addLimiterWaits records the sleeps on a request's path that are in a function of a rate limiter.
func (p *workerSum) addLimiterWaits(w *path.WalkResult) {
	for i := range w.Steps {
		if step := &w.Steps[i]; step.Kind == critpath.Sleep && p.stage.Sites.HasRole(step.Stack, knowledge.RateLimiter) {
			p.limiterWaits = append(p.limiterWaits, limiterWait{p.stage.Sites.SiteOf(step.Stack), step.G, interval{step.Start, step.End}})
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

// A Limiter describes the waits for a rate limiter at one line, in the sampled slices of the trace.
type Limiter struct {
	Site *report.Site
	// Rate is the number of waiters that the limiter lets through in a second while others wait; 0 if the gaps differ too much
	// for a single limiter.
	Rate        float64
	MaxWaiters  int     // how many waited at once
	QueuedShare float64 // share of the time in which at least one goroutine waited
}

// Limiters returns the rate limiters at which requests wait, by source line. Merge must have been called.
func (s *Sum) Limiters(sp *spell.Speller) (out []Limiter) {
	for site, sum := range s.limiters {
		out = append(out, Limiter{sp.Site(site), sum.rate(), sum.maxWaiters, float64(sum.queuedNS) / float64(max(s.sliceNS, 1))})
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
