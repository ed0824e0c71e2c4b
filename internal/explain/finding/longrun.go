package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/report"
)

func longRunRule() Rule {
	return Rule{
		Code: report.RuleLongRuns, Name: "long-runs",
		Summary: "loops that do not yield hold up requests on Ps that are otherwise free",
		Doc: Doc{
			Means: "At times goroutines compute for 10 ms or more without a pause on every P. The runtime preempts a goroutine only after about 10 ms, and polls " +
				"the network only then. Requests that arrive in that time wait as long each time they need a P, although the Ps are free over the trace as a " +
				"whole.",
			Measured: "Requests' waits for a P (causes sched, sched-poll) during which mostly functions ran that have more than half of their time in runs of 9 ms " +
				"or more, while the Ps were in use for less than 85 % of the trace. Where host samples say that threads had a CPU for less than 70 % of the " +
				"running time, runs count by that part.",
			Before: "for _, row := range rows { // 40 ms of computing, every second, on all Ps\n\tindex(row)\n}",
			After: "for i, row := range rows {\n\tindex(row)\n\tif i%100 == 0 {\n\t\truntime.Gosched() // every 100 us or so\n\t}\n}\n// and on fewer goroutines than " +
				"there are Ps",
			Wrong: "If the requests themselves compute and cannot compute less.",
		},
		Run: longRuns,
	}
}

func longRuns(in *Input) []Verdict {
	var out []Verdict
	eachQueue(in, report.RuleLongRuns, func(q *queue) {
		t := &q.takers[0]
		for i := range q.takers {
			if kindOf(in, &q.takers[i]) == report.RuleLongRuns {
				t = &q.takers[i]
				break
			}
		}
		var runs, ns, longest int64
		for i := range in.Process.Runs {
			if r := &in.Process.Runs[i]; r.Site != nil && r.Site.Func == t.site.Func {
				runs, ns, longest = runs+r.Long, ns+r.LongNS, max(longest, r.LongestNS)
			}
		}
		evidence := []report.Evidence{
			{Text: "mean run without yielding", Value: float64(ns) / float64(max(runs, 1)), Unit: "ns"},
			q.waited(),
			{Text: "share of long runs in what ran while requests waited", Value: q.most, Unit: "share"},
			{Text: "Ps in use over the whole trace", Value: busy(in), Unit: "share"},
			{Text: "longest run", Value: float64(longest), Unit: "ns"},
			{Text: fmt.Sprintf("runs of %d ms or more", int(process.LongNS/1e6)), Value: float64(runs), Unit: "count"},
		}
		out = append(out, Verdict{Won: q.won, Changes: q.changes(), Finding: report.Finding{
			Title: fmt.Sprintf("%s computes on all Ps for a long time without yielding", t.name()),
			Cause: report.CauseSched, Site: t.site, Group: q.g.ID, Share: q.share, Confidence: 0.8, Evidence: evidence,
			Fix: "compute on fewer goroutines than there are Ps, and call runtime.Gosched every 100 us or so",
		}})
	})
	return out
}
