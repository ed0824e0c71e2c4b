package finding

import "github.com/whylate/whylate/report"

// assistPart returns the part of a cause that WL3001 explains: marking by the requests' goroutines, waits for the collector, and
// waits for a P on which goroutines help to mark.
func assistPart(c *report.Cause) float64 {
	return oneIf((c.Cause == report.CauseGCAssist || c.Cause == report.CauseGCWait) && collectorPart(c) > 0) + ranAssistPart(c)
}

// assistOrWorkerPart returns the part of a cause that WL3001 or WL3002 explains.
func assistOrWorkerPart(c *report.Cause) float64 { return assistPart(c) + ranWorkerPart(c) }

// isMostlyAssists reports whether a group spends more time on marking than on waiting for Ps that mark workers use. It decides
// which rule reports both: WL3001 (mark-assist) or WL3002 (gc-takes-ps).
func isMostlyAssists(g *report.Group) bool {
	assists, _ := gainWithoutPart(g, assistPart)
	workers, _ := gainWithoutPart(g, ranWorkerPart)
	return assists >= workers
}

// checkMarkAssist is WL3001, mark-assist: requests must help to mark the heap, or wait for the collector, because the service
// allocates faster than the mark workers mark. Where a setting or forced cycles explain it, WL3004 or WL3005 reports it.
func checkMarkAssist(in *Input, group *report.Group) []Verdict {
	v, isMuch := in.collectorVerdict(group, assistOrWorkerPart)
	if in.isGCFrequentOrForced() || !isMostlyAssists(group) || !isMuch {
		return nil
	}
	gc := &in.Process.GC
	site, causes := in.topAllocSite()
	advice, changes := growthAdvice(in.Process)
	v.Cause, v.Site, v.Changes = report.CauseGCAssist, site, changes
	v.Title, v.Fix = textOf("title mark-assist"), textOf("fix mark-assist")
	v.addSlowEvidence(evidenceOf("evidence slow-mean", v.Gain.Slow.NS, "ns"))
	v.addEvidence(evidenceOf("evidence collections", float64(gc.Cycles)/float64(max(in.Process.SpanNS, 1))*1e9, "1/s"))
	v.addEvidence(liveHeapEvidence(gc.LiveBytes)...)
	v.addEvidence(collectorEvidence(group)...)
	v.addEvidence(causes...)
	if site != nil {
		v.Fix = textOf("fix mark-assist-at", "site", site, "advice", advice)
	}
	return []Verdict{v}
}
