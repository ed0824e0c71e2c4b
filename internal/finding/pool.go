package finding

import (
	"fmt"
	"math"
	"strings"

	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/internal/queues"
	"github.com/whylate/whylate/report"
)

// utilisation is how busy the places of a pool may be before waiting for one
// grows steeply: in an M/M/c queue the mean wait at 70 % is about a third of
// what it is at 90 % (Erlang C, c = 2 to 8).
const utilisation = 0.7

func poolRule() Rule {
	return Rule{
		Code: report.RulePoolTooSmall, Name: "pool-too-small",
		Summary: "requests queue for a pool, a semaphore, a limiter or a worker that has too few places",
		Doc: Doc{
			Means: "Requests stand in line for a place: a connection of a pool, a slot of a semaphore, a worker goroutine, a rate limiter's token. The place is taken by other requests, " +
				"so the wait grows with the load although nothing has become slower. " +
				"Within one request, the same goes for goroutines of an errgroup with a limit.",
			Measured: "A wait for a channel, a select or a Cond is a queue if the goroutine on its other side is serving another request, or if it serves requests one at a time while others wait: " +
				"in a slice of each second, the paths of requests that lie on one goroutine at the same instant are counted. Little's law (L = lambda W) gives the rest: how many wait (requests a second times the mean wait), " +
				"how many places are in use (requests a second times the mean time in a place), and so the size that would do: as many as the same load needs at 70 % use, but no fewer than those in use and waiting now. " +
				"The share holds the time in the place itself too, where it is the same site; the gain does not. Confidence is 0.9, 0.7 if the work is computing (more places need more processors).",
			Before: "db.SetMaxOpenConns(2)",
			After:  "db.SetMaxOpenConns(8) // 180 requests/s x 12 ms = 2.2 in use, 6 with those that wait",
			Wrong: "Where the limit protects what is behind it: a bigger pool then moves the queue there. Where clients wait for an answer before they ask again, more places bring more load. " +
				"A goroutine that answers many at once (a batcher) or reads one connection for many is no queue and is left to the rule of its cause.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RulePoolTooSmall, func(cl *claims, c *claim) {
				if c.via == (viaKey{}) {
					out = append(out, limiterVerdict(cl, c))
				} else {
					out = append(out, poolVerdict(cl, c))
				}
			})
			return out
		},
	}
}

// A place that requests queue for, by Little's law.
type littleLaw struct {
	rate    float64 // requests a second
	waitNS  float64 // mean wait
	placeNS float64 // mean time in the place
	waiting float64 // L of the queue
	inUse   float64 // L of the places
	size    int     // that would do
}

func little(requests int, durationNS, queuedNS int64, placeNS float64) littleLaw {
	var l littleLaw
	if requests == 0 || durationNS <= 0 {
		return l
	}
	l.rate = float64(requests) / float64(durationNS) * 1e9
	l.waitNS, l.placeNS = float64(queuedNS)/float64(requests), placeNS
	l.waiting = l.rate * l.waitNS / 1e9
	l.inUse = l.rate * l.placeNS / 1e9
	l.size = int(max(math.Ceil(l.inUse/utilisation-0.05), math.Round(l.inUse+l.waiting)))
	return l
}

func poolVerdict(cl *claims, c *claim) Verdict {
	var queuedNS, ownNS int64
	ways := map[*report.Cause]bool{}
	requests := 0
	top := topPart(cl, c.parts)
	for i := range c.parts {
		p := &c.parts[i]
		if _, ok := cl.contended(p.via); ok {
			queuedNS += p.ns
		} else {
			ownNS += p.ns
		}
		if !ways[p.Cause] {
			ways[p.Cause] = true
			requests = max(requests, p.Requests)
		}
	}
	t := cl.in.turns(top.Cause, top.via)
	if isFanOut(&c.via) {
		return fanOutVerdict(cl, c, top, queuedNS, requests)
	}
	kind := poolOf(&c.via, t)
	for i := range top.via {
		// A library's pool may stand on a semaphore, a Cond or a channel, none of which its user has.
		if v := &top.via[i]; keyOfVia(v) == c.via {
			if l := libraryAt(v.Site); l != nil && l.pool != "" && c.via.call != sqlPool && c.via.call != httpPool {
				kind = poolKind{"a connection of " + l.name, l.pool}
			}
			break
		}
	}
	// A worker's time for one is not on the path of anybody else's: of the time
	// behind the wait the last turn is the request's own.
	place1 := float64(ownNS) / float64(max(requests, 1))
	if t != nil && t.Taken <= 0.5 && ownNS == 0 {
		place1 = float64(t.ServiceNS)
		queuedNS = max(0, queuedNS-int64(place1*float64(requests)))
	}
	l := little(requests, cl.in.Report.Input.DurationNS, queuedNS, place1)
	// Who queues although places are in use for a small part of the time comes in bursts: one place more than there are is
	// the least that helps.
	l.size = max(l.size, 2)
	// Who serves what is done with a semaphore's place is not the place itself.
	serves, bursts := t != nil && t.Taken <= 0.5, false
	if isSemaphore(&c.via) && (t == nil || serves) {
		serves, bursts = false, true
	}
	if serves {
		l.size = max(l.size, t.Servers+1)
	}
	f := report.Finding{
		Title: fmt.Sprintf("requests queue for %s while it %s", kind.name, doing(top.Cause, top.via)),
		Cause: top.Cause.Cause, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "requests that need " + kind.name, Value: l.rate, Unit: "1/s"},
			{Text: "mean wait for it, at " + place(c.via.site.Site()), Value: l.waitNS, Unit: "ns"},
			{Text: "mean time with it", Value: l.placeNS, Unit: "ns"},
			{Text: "waiting on average (rate x wait)", Value: l.waiting, Unit: "count"},
			{Text: "in use on average (rate x time)", Value: l.inUse, Unit: "count"},
		},
	}
	if serves {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "goroutines that serve", Value: float64(t.Servers), Unit: "count"})
	}
	if !bursts {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "places that would do at this load", Value: float64(l.size), Unit: "count"})
	}
	f.Fix = fmt.Sprintf("%s: about %d would do for this load, or make what is done at %s shorter than %s", kind.fix, l.size, place(f.Site), duration(int64(l.placeNS)))
	if bursts {
		f.Fix = fmt.Sprintf("give it back before what is done at %s, or make that shorter than %s; or %s: %.2g were in use on average, and all of them when requests came together", place(f.Site), duration(int64(l.placeNS)), kind.fix, l.inUse)
	}
	if top.Cause.Cause == report.CauseCPU {
		f.Confidence = 0.7
		f.Fix += fmt.Sprintf("; it computes, so more help only as far as there are processors (GOMAXPROCS %d, all busy %.0f %% of the time)",
			cl.in.Report.Input.GOMAXPROCS, 100*(1-cl.in.Report.Runtime.Sched.PsIdle))
	}
	_, won := weighWays(cl.g, func(cause *report.Cause, via []report.Via) bool {
		_, ok := cl.contended(via)
		return ok && cl.of(cause, via) == c.owner
	})
	if in := cl.in; top.Cause.Cause != report.CauseCPU && top.Cause.Site != nil && in.Predict != nil {
		// What the fix says: places enough, so that nobody queues, whichever line called.
		f.Predicted = in.Predict(cl.g.ID, []predict.Change{predict.Gone(predict.Queue, predict.SiteText(top.Cause.Site.LineKey().Site(), top.Cause.Cause))})
	}
	return Verdict{Won: won, Finding: f, Changes: cl.halfOf(top.Cause)}
}

// fanOutVerdict is for a limit within each request: how many places would do follows from how many goroutines a request
// starts, which waits do not tell.
func fanOutVerdict(cl *claims, c *claim, top *part, queuedNS int64, requests int) Verdict {
	f := report.Finding{
		Title: fmt.Sprintf("requests start goroutines one after another, for an errgroup has too few places, while one %s", doing(top.Cause, top.via)),
		Cause: top.Cause.Cause, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "mean of a slow request", Value: float64(c.won.SlowNS), Unit: "ns"},
			{Text: "mean wait of a request for a place, at " + place(c.via.site.Site()), Value: float64(queuedNS) / float64(max(requests, 1)), Unit: "ns"},
		},
	}
	f.Fix = fmt.Sprintf("raise the limit given to SetLimit to what a request starts, if what is behind %s bears it, or make that shorter", place(f.Site))
	if top.Cause.Cause == report.CauseCPU {
		f.Confidence = 0.7
		f.Fix += fmt.Sprintf("; it computes, so more help only as far as there are processors (GOMAXPROCS %d)", cl.in.Report.Input.GOMAXPROCS)
	}
	return Verdict{Won: c.won, Finding: f, Changes: cl.halfOf(top.Cause)}
}

// A poolKind is what sort of place is waited for, and what makes it larger.
type poolKind struct{ name, fix string }

func poolOf(k *viaKey, t *queues.Turns) poolKind {
	switch {
	case k.call == sqlPool:
		return poolKind{"a connection of a database/sql pool", "raise SetMaxOpenConns (and SetMaxIdleConns with it)"}
	case k.call == httpPool:
		return poolKind{"a connection of an http.Transport", "raise MaxConnsPerHost (and MaxIdleConnsPerHost with it)"}
	case strings.HasPrefix(k.site.Func, "golang.org/x/sync/semaphore."):
		return poolKind{"a golang.org/x/sync/semaphore", "give the semaphore a larger weight"}
	case t != nil && t.Taken > 0.5:
		return poolKind{"a place that other requests hold", "give the semaphore or pool more places"}
	case t != nil && t.Servers == 1:
		return poolKind{"the only goroutine that serves it", "let more goroutines serve the queue"}
	}
	return poolKind{"a worker goroutine", "let more goroutines serve the queue"}
}

// isLimiter reports whether a sleep is a rate limiter's.
func (cl *claims) isLimiter(c *report.Cause) bool {
	return c.Site != nil && (strings.HasPrefix(c.Site.Func, "golang.org/x/time/rate.") || strings.HasPrefix(c.Site.Func, "go.uber.org/ratelimit."))
}

func limiterVerdict(cl *claims, c *claim) Verdict {
	top := c.heaviest("sleep")
	l := little(top.Requests, cl.in.Report.Input.DurationNS, top.ns, 0)
	return Verdict{Won: c.won, Changes: cl.halfOf(top.Cause), Finding: report.Finding{
		Title: "requests wait for a rate limiter", Cause: report.CauseSleep, Site: top.Site, Group: cl.g.ID, Share: c.share, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "requests that it held up", Value: l.rate, Unit: "1/s"},
			{Text: "mean wait for it", Value: l.waitNS, Unit: "ns"},
			{Text: "waiting on average (rate x wait)", Value: l.waiting, Unit: "count"},
		},
		Fix: fmt.Sprintf("more come than it lets through: raise its rate above %.3g/s and what is asked for beside it, or answer at once that it is too many (Allow instead of Wait)", l.rate),
	}}
}
