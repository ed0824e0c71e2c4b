package load

import (
	"time"

	"github.com/whylate/whylate/internal/output/words"
)

// checkGates adds warnings about what limits the result, and marks it as not valid if a gate is exceeded: failed or dropped
// requests, a rate that was not reached, a late or throttled generator, too few answers. wall is the time in which they were
// measured.
func (r *Result) checkGates(wall time.Duration) {
	answered := r.answered
	if answered == 0 {
		r.warn(false, "no-answers", "no request was answered%s: is the service up, and is this its address?", r.firstReason())
		return
	}
	if r.Loop == "closed" {
		r.warn(true, "closed-loop", "a closed loop sends nothing while it waits, so it hardly measures stalls of the service (coordinated omission): omit --closed to measure the latency that users see")
	}
	if r.Dropped > 0 {
		r.warn(false, "dropped", "%d of %d requests were not sent, because too many were in flight: the service is overloaded; lower the rate, or raise --max-in-flight", r.Dropped, r.Dropped+r.Requests)
	}
	if share := float64(r.Errors) / float64(r.Requests); share > warnErrors {
		r.warn(share <= maxErrors, "errors", "%d of %d requests failed%s: failed requests have no latency here, so fix them first", r.Errors, r.Requests, r.firstReason())
	}
	good := float64(answered) / float64(max(1, r.Requests)) // failed requests have a separate gate
	if r.RequestedPerS > 0 && r.Unanswered == 0 && r.AchievedPerS < minAchieved*r.RequestedPerS*good {
		r.warn(false, "rate", "only %.4g of %.4g requests a second were answered: the service cannot keep up and its queue grows, so latency depends on how long the run is; lower the rate", r.AchievedPerS, r.RequestedPerS)
	}
	if r.Loop == "open" {
		at50, at99 := ratio(r.Lateness.P50, r.Intended.P50), ratio(r.Lateness.P99, r.Intended.P99)
		if at50 > warnLateness || at99 > warnLateness {
			r.warn(at50 <= maxLateness && at99 <= maxLateness, "lateness",
				"requests started up to %v late at p99 (%v at p50), a large part of their latency: give the generator its own core (--pace spin), or use the service time", words.Duration(r.Lateness.P99), words.Duration(r.Lateness.P50))
		}
	}
	if s := r.Client.CPUShare; s > warnCPU {
		r.warn(s <= maxCPU, "client-cpu", "the generator used %.0f %% of its %d CPUs, so it may itself be late: give it more CPUs or lower the rate", 100*s, r.Client.CPUs)
	}
	if t := r.Client.ThrottledNS; t != nil && wall > 0 {
		if s := float64(*t) / float64(wall); s > warnThrottled {
			r.warn(s <= maxThrottled, "client-throttled", "the generator's own CPU quota throttled it for %v: run it outside of that quota", words.Duration(*t))
		}
	}
	first, second := r.Halves[0], r.Halves[1]
	if len(r.Phases) == 0 && r.Loop == "open" && answered >= 2*minPerHalf {
		if ratio := float64(second.P50) / float64(max(1, first.P50)); ratio > warnHalvesRatio || ratio < 1/warnHalvesRatio {
			r.warn(true, "halves", "the median was %v in the first half and %v in the second: the service had not settled, or its queue grows; use a longer --warmup, or a lower rate", words.Duration(first.P50), words.Duration(second.P50))
		}
	}
	switch {
	case answered < minForP99:
		r.warn(true, "few", "%d answers are too few for a p99: run longer, or at a higher rate", answered)
	case answered < minForP999:
		r.warn(true, "few", "%d answers are too few for a p99.9: run longer, or at a higher rate", answered)
	}
}
