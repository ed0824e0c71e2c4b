package finding

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func hubRule() Rule {
	return Rule{
		Code: report.RuleHubLate, Name: "hub-late",
		Summary: "a goroutine that many requests wait for runs late",
		Doc: Doc{
			Means: "Requests hand work to one goroutine and wait for its answer: a batcher, a dispatcher, the reader of a shared connection. That goroutine was " +
				"ready to run (its message had arrived, its channel was filled), but got no P for a while because others ran. Each time all requests that " +
				"wait for it are late together. The Go scheduler has no priorities: a goroutine on which a thousand requests depend queues behind any other.",
			Measured: "On the requests' critical paths, the intervals in which a goroutine other than the request's own was runnable (cause sched), or its message " +
				"lay unread in a socket (sched-poll; an upper bound: with all Ps busy the runtime polls the network only about every 10 ms). They are counted " +
				"by the run that began late, so the requests held up by each late run are known. The goroutine counts as a hub if a late run holds up more " +
				"than one request on average. A sample of the late runs shows what ran on the Ps in that time.",
			Before: "for job := range jobs { // every request waits for this goroutine\n\tbatch := gather(job)\n\tanswer(batch, ask(batch))\n}\n// elsewhere: " +
				"thousands of goroutines that tick, or a loop that computes",
			After: "// Run less beside it: limit how much computes at a time,\nsem := make(chan struct{}, runtime.GOMAXPROCS(0)/2)\n// and spread the waiters: " +
				"several hubs, each with a part of the requests.\nhub := hubs[hash(key)%len(hubs)]",
			Wrong: "A poll gap is an upper bound: the message may have arrived later. On a machine with shared CPUs, the kernel may have held back the " +
				"goroutines that ran (see WL4 and WL5011).",
		},
		Run: hubs,
	}
}

// A hubClaim is what of a group's time is a hub's.
type hubClaim struct {
	*queues.Hub
	share float64
	won   Won
}

// A goroutine is a hub if it was late so often and held up so many requests each time, on average.
const (
	hubHeldUp = 1.3
)

// hubsOf returns the hubs that requests of a group wait for, those with the largest share first.
func hubsOf(in *Input, g *report.Group) []*hubClaim {
	var out []*hubClaim
	for i := range in.Hubs {
		h := &in.Hubs[i]
		if h.Late < scale.Few || float64(h.HeldUp) < hubHeldUp*float64(h.Late) || len(h.Sites) == 0 || in.servesRequests(h.Start) {
			continue
		}
		claim := &hubClaim{Hub: h}
		claim.share, claim.won = weighPart(g, func(c *report.Cause) float64 {
			if !isSched(c) || claimedBy(out, c) != nil || !claim.has(c) {
				return 0
			}
			return 1 - marksPart(c)
		})
		if claim.share > 0 {
			out = append(out, claim)
		}
	}
	slices.SortStableFunc(out, func(a, b *hubClaim) int { return int(b.won.TotalNS>>10 - a.won.TotalNS>>10) })
	return out
}

// servesRequests reports whether goroutines with this start function are requests' own: one that is late with a lock in its hand
// is no hub.
func (in *Input) servesRequests(start string) bool {
	return request.Serves(start) || slices.ContainsFunc(in.Report.Groups, func(g report.Group) bool {
		return (g.Kind == report.KindGoroutine || g.Kind == report.KindLoop) && g.Entry != nil && g.Entry.Func == start
	})
}

// has reports whether a cause is a wait behind the hub.
func (h *hubClaim) has(c *report.Cause) bool {
	return len(c.Via) > 0 && slices.ContainsFunc(h.Sites, func(s *report.Site) bool { return s.Meets(c.Site) })
}

func claimedBy(hubs []*hubClaim, c *report.Cause) *hubClaim {
	for _, h := range hubs {
		if h.has(c) {
			return h
		}
	}
	return nil
}

func hubs(in *Input) []Verdict {
	var out []Verdict
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		for _, h := range hubsOf(in, g) {
			out = append(out, h.verdict(in, g))
		}
	}
	return out
}

func (h *hubClaim) verdict(in *Input, g *report.Group) Verdict {
	per := float64(h.HeldUp) / float64(h.Late)
	evidence := []report.Evidence{
		{Text: "mean delay from readable message to run", Value: float64(h.LateNS) / float64(h.Late), Unit: "ns"},
		{Text: "requests held up by each late run", Value: per, Unit: "count"},
	}
	for i, r := range h.Ran {
		if i < 2 && r.Site != nil && r.Share >= 0.1 {
			evidence = append(evidence, report.Evidence{Text: "meanwhile ran " + short(r.Site.Func), Value: r.Share, Unit: "share"})
		}
	}
	if len(h.Ran) > 0 && h.Ran[0].Site != nil {
		// What ran meanwhile may be many that woke at once.
		t := taker{site: h.Ran[0].Site, share: h.Ran[0].Share}
		t.start, _ = runsAt(in.Process, t.site.Func)
		if herd := herdOf(in.Process, &t); herd != nil {
			evidence = append(evidence, report.Evidence{Text: "goroutines of " + short(herd.Start) + " that timers woke together, at most", Value: float64(herd.Most), Unit: "count"})
		}
	}
	if h.GapNS*20 > h.LateNS {
		evidence = append(evidence, report.Evidence{Text: "part of that, at most, unread because no P polled the network", Value: float64(h.GapNS) / float64(h.Late), Unit: "ns"})
	}
	network, _ := Weigh(g, func(c *report.Cause) bool { return c.Cause == report.CauseNetwork })
	evidence = append(evidence,
		report.Evidence{Text: "longest delay", Value: float64(h.MaxNS), Unit: "ns"},
		report.Evidence{Text: "late runs", Value: float64(h.Late), Unit: "count"},
		report.Evidence{Text: "share of the requests' time spent waiting for the network itself", Value: network, Unit: "share"})
	return Verdict{Won: h.won, Finding: report.Finding{
		Title: fmt.Sprintf("the goroutine of %s runs late, and %.1f requests wait for it each time", short(h.Start), per),
		Cause: report.CauseSched, Site: h.Sites[0], Group: g.ID, Share: h.share, Confidence: 0.85, Evidence: evidence,
		Fix: "run less beside it (limit how much computes at a time, use fewer ticking goroutines), or spread the requests over several such goroutines",
	}}
}
