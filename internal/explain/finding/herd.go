package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
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
	if herd.Waker != nil {
		v.Site = herd.Waker
		attr := in.attributionOf(wait.group)
		v.Share, v.Gain = gainWithoutRoutes(wait.group, func(c *report.Cause, via []report.Via) bool {
			isBroadcast := c.Cause == report.CauseCPU && c.Site != nil && c.Site.LineKey() == herd.Waker.LineKey()
			return isBroadcast || attr.isInHerd(c, via) || isSched(c) && !isBehindHub(wait.hubs, c)
		})
		v.Changes = append(v.Changes, predict.Remove(report.CauseCPU, predict.SiteText(herd.Waker, report.CauseCPU)))
		v.Title, v.Fix = textOf("title herd-of-broadcast", "n", herd.Largest, "start", words.FuncName(start)), textOf("fix herd-of-broadcast", "n", herd.Largest, "site", v.Site)
	}
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

// findHerdLines fills herdLines: the lines where goroutines wait of which a Broadcast wakes many in vain. A Cond at which requests
// wait for a slot is none.
func (a *attribution) findHerdLines() {
	if a.in.Process == nil {
		return // in tests of rules that need no more than requests
	}
	for h := range each(a.in.Process.Herds) {
		isPool := slices.ContainsFunc(a.in.SlotWaits, func(p queues.SlotWaits) bool {
			return p.Wait == report.WaitCond && p.Site.LineKey() == h.Site.LineKey() && isSlotPool(&p)
		})
		if h.Waker != nil && h.Times >= threshold.Repeats && !isPool {
			a.herdLines[h.Site.LineKey()] = true
		}
	}
}

// isInHerd reports whether a request waits at a cause for a goroutine of a herd that Broadcast wakes: it runs late, or takes the
// lock of the Cond late, because of the others. It is no slot for which requests queue.
func (a *attribution) isInHerd(c *report.Cause, via []report.Via) bool {
	if len(via) == 0 || len(a.herdLines) == 0 {
		return false
	}
	return c.Site != nil && a.herdLines[c.Site.LineKey()] || slices.ContainsFunc(via[1:], func(v report.Via) bool { return a.herdLines[v.Site.LineKey()] })
}
