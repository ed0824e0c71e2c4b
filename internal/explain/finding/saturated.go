package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func saturatedRule() Rule {
	return Rule{
		Code: report.RulePsTaken, Name: "ps-taken",
		Summary: "requests wait for a P while others compute on all of them",
		Doc: Doc{
			Means: "The request's goroutine was ready to run, but all Ps (GOMAXPROCS of them) ran other goroutines, so it waited in a run queue. Either " +
				"something beside the requests computes more than it should, or the requests together need more CPU than the service has.",
			Measured: "Intervals of the critical path in which a goroutine was runnable while no P was idle (cause sched), and network waits whose data may have " +
				"arrived before any P polled (sched-poll). A sample of these intervals shows what ran on the Ps in that time; the site is the function that " +
				"ran most. Waits behind a hub (WL1001), behind a herd (WL1004), behind long runs on free Ps (WL1007) and behind the collector (WL3) are left " +
				"to those rules. Where the Ps were free for more than 15 % of the trace, slow requests must have waited for 1 ms on average, and all requests " +
				"for 5 % of their time, because goroutines that work together sometimes meet on a P. Where the Ps were free for more than 85 % and mostly " +
				"requests ran, the requests arrived at the same time: severity is low at most, and CPU samples name what computes.",
			Before: "for { recompute(everything) } // on as many goroutines as there are Ps",
			After:  "for range time.Tick(time.Minute) { recompute(changed) }\n// or, if it is the requests themselves: more CPUs, less work for each, or fewer at a time",
			Wrong: "Where the machine's CPUs are shared or limited, Ps look busy while the kernel holds their threads back: see WL4 and WL5011 first. A load " +
				"test beyond capacity always shows this.",
		},
		Run: taken,
	}
}

func taken(in *Input) []Verdict {
	var out []Verdict
	eachQueue(in, report.RulePsTaken, func(q *queue) {
		t := &q.takers[0]
		if busy(in) < scale.Most && (q.won.SlowNS < 1e6 || q.share < 0.05) {
			return
		}
		confidence := 0.7
		if t.share > 0.5 {
			confidence = 0.85
		}
		evidence := append([]report.Evidence{q.waited()}, ranEvidence(q.takers)...)
		if in.Process.SpanNS > 0 {
			evidence = append(evidence, report.Evidence{Text: "Ps in use over the whole trace", Value: busy(in), Unit: "share"})
		}
		if t.long > 0.5 {
			evidence = append(evidence, report.Evidence{Text: "share of its time in runs of 9 ms or more without yielding", Value: t.long, Unit: "share"})
		}
		fix := "give the service more CPUs, make the requests cheaper, or admit fewer at a time: they take the Ps from each other"
		if !t.serves(in) {
			fix = "run less of " + short(t.site.Func) + " at a time, or make it cheaper; yield in it; or give the service more CPUs"
		}
		title, site, most := fmt.Sprintf("requests wait for a P: %s runs on them", t.name()), t.site, report.Severity("")
		if q.burst(in) {
			title, most = "requests that arrive together wait for each other on Ps that are idle nearly all the time", report.SeverityLow
			if site = computesIn(q.g); site != nil {
				title += ": " + short(site.Func) + " computes"
			}
			fix = "if clients need not ask at the same time, spread their requests; else make the requests cheaper, or give the service more CPUs"
		}
		out = append(out, Verdict{Won: q.won, Most: most, Changes: q.changes(), Finding: report.Finding{
			Title: title,
			Cause: report.CauseSched, Site: site, Group: q.g.ID, Share: q.share, Confidence: confidence, Evidence: evidence, Fix: fix,
		}})
	})
	return out
}

// burst reports whether requests waited behind requests while the Ps were idle nearly all the time: it is their clients who make them
// come at once.
func (q *queue) burst(in *Input) bool {
	own := 0.0
	for i := range q.takers {
		if t := &q.takers[i]; t.serves(in) {
			own += t.share
		}
	}
	return own > 0.5 && busy(in) < scale.Much
}

// computesIn returns where requests of a group compute: by CPU samples, as a run is known by where it ended, else where they begin.
func computesIn(g *report.Group) *report.Site {
	site, most := g.Entry, 0
	for i := range g.All().Causes {
		if c := &g.All().Causes[i]; c.Cause == report.CauseCPU && c.Site != nil && c.Samples > most {
			site, most = c.Site, c.Samples
		}
	}
	return site
}
