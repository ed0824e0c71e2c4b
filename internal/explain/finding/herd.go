package finding

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
)

// checkHerd is WL1004, herd: many goroutines wake at the same time and occupy the Ps, so requests wait for a P. runQueueWaitOf
// decided that the wait belongs to this rule.
func checkHerd(in *Input, wait *runQueueWait) []Verdict {
	herd := wait.herd
	for i := 0; herd == nil && i < len(wait.occupants); i++ {
		herd = herdOf(in.Process, &wait.occupants[i])
	}
	v := wait.newVerdict(herd.Site, 0.85)
	start := herd.Start
	if knowledge.Has(start, knowledge.Stdlib) && herd.Site != nil { // such as that of WaitGroup.Go
		start = herd.Site.OwnLine().Func
	}
	v.Title, v.Fix = textOf("title herd", "n", herd.Largest, "start", words.FuncName(start)), textOf("fix herd", "n", herd.Largest, "site", v.Site)
	v.addEvidence(
		evidenceOf("evidence herd-size", herd.Largest, "count", "time", words.Brief(herd.WithinNS)),
		evidenceOf("evidence herd-last", herd.LateNS, "ns"))
	wait.addWaitEvidence(&v)
	v.addEvidence(
		evidenceOf("evidence herd-mean-last", float64(herd.ClearNS)/float64(herd.Times), "ns"),
		evidenceOf("evidence herd-run", float64(herd.RanNS)/float64(herd.Wakes), "ns"),
		evidenceOf("evidence herd-empty-runs", float64(herd.Empty)/float64(herd.Wakes), "share"),
		evidenceOf("evidence herds", herd.Times, "count"),
		evidenceOf("evidence herd-share", wait.kindShare, "share"))
	if wait.herd != nil {
		v.addEvidence(evidenceOf("evidence herd-moments", wait.herdShare, "share"))
	}
	return []Verdict{v}
}
