package finding

import "github.com/whylate/whylate/report"

// checkGCTakesPs is WL3002, gc-takes-ps: requests wait for a P while mark workers of the collector run on the Ps. The finding
// names the line that allocates most or, without an allocation profile, the line whose allocations begin cycles.
func checkGCTakesPs(in *Input, group *report.Group) []Verdict {
	v, isMuch := in.collectorVerdict(group, assistOrWorkerPart)
	if in.isGCFrequentOrForced() || isMostlyAssists(group) || !isMuch {
		return nil
	}
	gc, psTimeNS := &in.Process.GC, float64(max(in.Process.Procs, 1))*float64(max(in.Process.SpanNS, 1))
	title := textKey("title gc-takes-ps")
	site, causes := in.topAllocSite()
	if in.Allocs != nil && site != nil {
		title = "title gc-takes-ps-allocated"
	}
	if in.Allocs == nil && gc.BegunAt != nil { // goroutines that assist are not those whose allocations start the cycles
		site, title = gc.BegunAt, "title gc-takes-ps-begun"
		causes = []report.Evidence{evidenceOf("evidence collections-begun", gc.BegunShare, "share", "site", site)}
	}
	advice, changes := growthAdvice(in.Process)
	v.Cause, v.Site, v.Confidence, v.Changes = report.CauseSched, site, 0.8, changes
	v.Title, v.Fix = textOf(title, "site", site), textOf("fix gc-takes-ps", "advice", advice)
	v.addSlowEvidence(evidenceOf("evidence slow-mean", v.Gain.Slow.NS, "ns"))
	v.addEvidence(
		evidenceOf("evidence dedicated-workers", float64(gc.DedicatedNS)/psTimeNS, "share"),
		evidenceOf("evidence fractional-workers", float64(gc.FractionalNS)/psTimeNS, "share"),
		evidenceOf("evidence idle-workers", float64(gc.IdleNS)/psTimeNS, "share"),
		evidenceOf("evidence marking", float64(gc.MarkNS)/float64(max(in.Process.SpanNS, 1)), "share"))
	v.addEvidence(liveHeapEvidence(gc.LiveBytes)...)
	v.addEvidence(causes...)
	return []Verdict{v}
}
