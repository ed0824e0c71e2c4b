package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/report"
)

// checkLongRuns is WL1007, long-runs.
func checkLongRuns(in *Input, wait *runQueueWait) []Verdict {
	t := firstMatch(wait.occupants, func(t *occupant) bool { return ruleForOccupant(in, t) == report.RuleLongRuns })
	if t == nil {
		t = &wait.occupants[0]
	}
	var runs, ns, longest int64
	for i := range in.Process.Runs {
		if r := &in.Process.Runs[i]; r.Site != nil && r.Site.Func == t.site.Func {
			runs, ns, longest = runs+r.Long, ns+r.LongNS, max(longest, r.LongestNS)
		}
	}
	v := wait.newVerdict(t.site, 0.8)
	v.Title = fmt.Sprintf("%s computes on all Ps for a long time without yielding", t.name())
	v.addEvidence(
		measurement("mean run without yielding", float64(ns)/float64(max(runs, 1)), "ns"),
		wait.waitEvidence(),
		measurement("share of long runs in the time that goroutines ran while requests waited", wait.kindShare, "share"),
		measurement("Ps in use over the whole trace", psInUse(in), "share"),
		measurement("longest run", longest, "ns"),
		measurement(fmt.Sprintf("runs of %d ms or more", int(process.LongNS/1e6)), runs, "count"))
	v.Fix = "compute on fewer goroutines than there are Ps, and call runtime.Gosched every 100 us or so"
	return []Verdict{v}
}
