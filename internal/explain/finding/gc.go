package finding

import (
	"math"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// The garbage collector takes time of requests in four ways: they help to mark (gc-assist), they wait for a phase (gc-wait),
// they wait for a P on which a mark worker or a marking goroutine runs (sched), and the world is stopped at both ends of a
// cycle (stw). The time is divided among the rules so that one fault is reported once:
//
//   - Where a setting would avoid most cycles, all of the time belongs to WL3004.
//   - Where code forces cycles (runtime.GC), it belongs to WL3005.
//   - Otherwise the stops belong to WL3003, and the rest to WL3001 if requests spend the larger part of it on marking and
//     waiting for phases, to WL3002 if they spend it on waiting for Ps that workers use.

// collectorPart returns the part of a cause that the collector took: 0 or 1, or, for a wait for a P, the share of marking in
// what ran during the wait.
func collectorPart(c *report.Cause) float64 {
	switch c.Cause {
	case report.CauseGCAssist, report.CauseGCWait:
		if isForcedWait(c) {
			return 0
		}
		return 1
	case report.CauseSTW:
		return oneIf(isGCStop(c.Kind))
	case report.CauseSched:
		return marksPart(c)
	}
	return 0
}

// isGCStop reports whether a stop of the world is for a collection.
func isGCStop(kind string) bool { return strings.HasPrefix(kind, "GC ") }

// workersPart and helpersPart return the share of mark workers, and of goroutines that help to mark, in what ran while requests
// waited for a P.
func workersPart(c *report.Cause) float64 { return markingPart(c, knowledge.MarkWorker) }
func helpersPart(c *report.Cause) float64 { return markingPart(c, knowledge.MarkAssist) }

// marksPart is the sum of both: the collector's share in what ran while requests waited for a P.
func marksPart(c *report.Cause) float64 { return workersPart(c) + helpersPart(c) }

// markingPart returns the share of functions with a role in what ran during a wait for a P, 0 for other causes.
func markingPart(c *report.Cause, role knowledge.Role) (part float64) {
	if c.Cause != report.CauseSched {
		return 0
	}
	for _, r := range c.RanMeanwhile {
		if r.Site != nil && knowledge.Has(r.Site.Func, role) {
			part += r.Share
		}
	}
	return part
}

// isForcedWait reports whether a wait for the collector is one that code forced.
func isForcedWait(c *report.Cause) bool {
	return c.Cause == report.CauseGCWait && knowledge.Has(c.Call, knowledge.ForcedGC)
}

// isGCFrequentOrForced reports whether the collector's time belongs to the rules of too frequent (WL3004) or forced collections
// (WL3005).
func (in *Input) isGCFrequentOrForced() bool {
	_, frequent := adviseGOGC(in.Process)
	return frequent || isLimitFull(in.Process) || isMostlyForced(&in.Process.GC)
}

// isMostlyForced reports whether code forced more than half of the collections.
func isMostlyForced(gc *process.GC) bool { return 2*gc.Forced > gc.Cycles }

// collectorVerdict returns a verdict about the part of a group's time that the collector took; false if that part is below
// threshold.NoticeableShare.
func (in *Input) collectorVerdict(group *report.Group, part func(*report.Cause) float64) (v Verdict, ok bool) {
	share, gain := weighPart(group, part)
	v = Verdict{Gain: gain, Finding: report.Finding{Cause: report.FamilyGC, Group: group.ID, Share: share, Confidence: 0.75}}
	if in.Allocs != nil {
		v.Confidence = 0.9
	}
	return v, share >= threshold.NoticeableShare
}

// liveHeapEvidence returns nothing if no cycle was measured.
func liveHeapEvidence(bytes int64) []report.Evidence {
	if bytes <= 0 {
		return nil
	}
	return []report.Evidence{evidenceOf("evidence live-heap", bytes, "bytes")}
}

// collectorEvidence lists in which ways the collector took a group's time.
func collectorEvidence(group *report.Group) []report.Evidence {
	var out []report.Evidence
	for _, kind := range []struct {
		key  textKey
		part func(*report.Cause) float64
	}{
		{"evidence assists", func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseGCAssist) }},
		{"evidence collector-stops", func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseSTW && isGCStop(c.Kind)) }},
		{"evidence collector-waits", func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseGCWait && !isForcedWait(c)) }},
		{"evidence mark-worker-waits", workersPart},
		{"evidence mark-help-waits", helpersPart},
	} {
		if share, _ := weighPart(group, kind.part); share >= 0.01 {
			out = append(out, evidenceOf(kind.key, share, "share"))
		}
	}
	return out
}

// assistPart returns the part of a cause in which requests mark, or wait for the collector or for goroutines that mark.
func assistPart(c *report.Cause) float64 {
	return oneIf(c.Cause == report.CauseGCAssist || c.Cause == report.CauseGCWait && !isForcedWait(c)) + helpersPart(c)
}

// assistOrWorkerPart returns the part of a cause that belongs to WL3001 or WL3002.
func assistOrWorkerPart(c *report.Cause) float64 { return assistPart(c) + workersPart(c) }

// isMostlyAssists reports whether a group spends more time on marking than on waiting for mark workers: then WL3001
// reports both, otherwise WL3002.
func isMostlyAssists(g *report.Group) bool {
	assists, _ := weighPart(g, assistPart)
	workers, _ := weighPart(g, workersPart)
	return assists >= workers
}

// checkMarkAssist is WL3001, mark-assist: requests help to mark the heap, or wait for the collector, because the service
// allocates faster than its workers can mark.
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

// checkGCTakesPs is WL3002, gc-takes-ps: requests wait for a P while the collector's workers run on them.
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

// checkForcedGC is WL3005, forced-gc: requests wait for a collection that code forces, or are slowed down by it.
func checkForcedGC(in *Input, group *report.Group) []Verdict {
	gc := &in.Process.GC
	mostlyForced := isMostlyForced(gc)
	var site *report.Site
	for i := range group.Bands {
		for k := range group.Bands[i].Causes {
			if c := &group.Bands[i].Causes[k]; site == nil && isForcedWait(c) {
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
