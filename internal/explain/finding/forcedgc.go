package finding

import (
	"math"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/report"
)

// checkForcedGC is WL3005, forced-gc: requests wait for a collection that code forces by runtime.GC, or, if code forces more than
// half of the cycles, lose time to them without waiting for a whole one. The prediction removes the collector's time, in the
// second case in proportion to the forced cycles.
func checkForcedGC(in *Input, group *report.Group) []Verdict {
	gc := &in.Process.GC
	mostlyForced := isMostlyForced(gc)
	var site *report.Site
	for i := range group.Bands {
		for c := range each(group.Bands[i].Causes) {
			if site == nil && isForcedWait(c) {
				site = c.Site
			}
		}
	}
	isIndirect := site == nil // no request waits for a whole cycle, but all lose the time that cycles take
	if isIndirect && (!mostlyForced || gc.ForcedAt == nil) {
		return nil
	}
	v, isMuch := in.collectorVerdict(group, func(c *report.Cause) float64 {
		if isForcedWait(c) {
			return 1
		}
		return oneIf(mostlyForced) * collectorPart(c)
	})
	v.Confidence, v.Fix = 0.95, textOf("fix forced-gc")
	if isIndirect {
		if !isMuch {
			return nil
		}
		v.Title, v.Site = textOf("title forced-gc-elsewhere", "site", gc.ForcedAt), gc.ForcedAt
		v.Changes = []predict.Change{{Cause: report.FamilyGC, Relative: true, Scale: math.Round(100*float64(gc.Cycles-gc.Forced)/float64(gc.Cycles)) / 100}}
	} else {
		v.Title, v.Site, v.Cause = textOf("title forced-gc", "site", site), site, report.CauseGCWait
		// The call also sweeps the heap and stops the world.
		v.Changes = []predict.Change{predict.Remove(report.FamilyGC, ""), predict.Remove("", predict.SiteText(site, ""))}
	}
	v.addSlowEvidence(evidenceOf("evidence slow-mean", v.Gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence forced-collections", gc.Forced, "count"), evidenceOf("evidence all-collections", gc.Cycles, "count"))
	return []Verdict{v}
}
