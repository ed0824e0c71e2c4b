package finding

import (
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkLongRuns is WL1007, long-runs: requests wait for a P because goroutines run without a pause until the runtime preempts
// them, while the Ps are idle otherwise. runQueueWaitOf decided that the wait belongs to this rule; the finding names the
// function in which these runs end.
func checkLongRuns(in *Input, wait *runQueueWait) []Verdict {
	t := firstMatch(wait.occupants, func(t *occupant) bool { return ruleForOccupant(in, t) == report.RuleLongRuns })
	runs := t.runsIn(in.Process)
	v := wait.newVerdict(t.site, 0.8)
	v.Title, v.Fix = textOf("title long-runs", "function", t.name()), textOf("fix long-runs")
	if c := t.site.CalledFrom; c != nil && !c.OtherGoroutine { // whose code the reader does not change
		v.Fix = textOf("fix long-runs-in-dependency", "function", words.FuncName(c.Func))
	}
	v.addEvidence(evidenceOf("evidence long-runs-mean", float64(runs.LongNS)/float64(max(runs.LongCount, 1)), "ns"))
	wait.addWaitEvidence(&v)
	if _, hasOtherLoad := measureOtherLoad(in); hasOtherLoad && psInUse(in) < threshold.MajorShare {
		v.MaxSeverity = report.SeverityLow // the runs took so long because their threads waited for a CPU
	}
	v.addEvidence(
		evidenceOf("evidence long-runs-share", wait.kindShare, "share"),
		evidenceOf("evidence ps-in-use", psInUse(in), "share"),
		evidenceOf("evidence longest-run", runs.LongestNS, "ns"),
		evidenceOf("evidence long-runs", runs.LongCount, "count", "ms", int(process.LongNS/1e6)))
	return []Verdict{v}
}
