package finding

import (
	"strings"

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

// collectorPart returns the part of a cause, between 0 and 1, that the collector took: all of an assist, of a wait for a phase
// and of a stop of the world for a cycle; of a wait for a P, the share of marking in what ran during the wait. Waits for a whole
// forced collection, as in runtime.GC, do not count.
func collectorPart(c *report.Cause) float64 {
	switch c.Cause {
	case report.CauseGCAssist, report.CauseGCWait:
		if isForcedWait(c) || isFinalizerWait(c) {
			return 0
		}
		return 1
	case report.CauseSTW:
		return oneIf(isGCStop(c.Kind))
	case report.CauseSched:
		return ranMarkingPart(c)
	}
	return 0
}

// isGCStop reports whether a stop of the world is for a collection.
func isGCStop(kind string) bool { return strings.HasPrefix(kind, "GC ") }

// ranWorkerPart returns the share of mark workers in what ran while requests waited for a P.
func ranWorkerPart(c *report.Cause) float64 { return ranPart(c, knowledge.MarkWorker) }

// ranAssistPart returns the share of goroutines that help to mark in what ran while requests waited for a P.
func ranAssistPart(c *report.Cause) float64 { return ranPart(c, knowledge.MarkAssist) }

// ranMarkingPart returns the share of all marking in what ran while requests waited for a P: ranWorkerPart and ranAssistPart together.
func ranMarkingPart(c *report.Cause) float64 { return ranWorkerPart(c) + ranAssistPart(c) }

// ranPart returns the share that functions with a role have in what ran on the Ps during a wait for a P; 0 for other causes.
func ranPart(c *report.Cause, role knowledge.Role) (part float64) {
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

// isForcedWait reports whether a cause is a wait for a collection that code forced, as in runtime.GC.
func isForcedWait(c *report.Cause) bool {
	return c.Cause == report.CauseGCWait && knowledge.Has(c.Call, knowledge.ForcedGC)
}

// isGCFrequentOrForced reports whether all of the collector's time belongs to WL3004 (a setting would avoid most cycles) or
// WL3005 (code forces most cycles), and so to no other rule.
func (in *Input) isGCFrequentOrForced() bool {
	_, frequent := adviseGOGC(in.Process)
	return frequent || isLimitFull(in.Process) || isMostlyForced(&in.Process.GC)
}

// isMostlyForced reports whether code forced more than half of the collections.
func isMostlyForced(gc *process.GC) bool { return 2*gc.Forced > gc.Cycles }

// collectorVerdict returns a verdict, without title and fix, about the part of a group's time that the collector took. With it
// comes false if that is less than threshold.NoticeableShare of the time of all requests.
func (in *Input) collectorVerdict(group *report.Group, part func(*report.Cause) float64) (v Verdict, ok bool) {
	share, gain := gainWithoutPart(group, part)
	v = Verdict{Gain: gain, Finding: report.Finding{Cause: report.FamilyGC, Group: group.ID, Share: share, Confidence: 0.9}}
	if in.Allocs == nil {
		v.doubt(0.75, textOf("phrase doubt-allocations"))
	}
	return v, share >= threshold.NoticeableShare
}

// liveHeapEvidence returns the live heap as evidence, nothing if no cycle was measured.
func liveHeapEvidence(bytes int64) []report.Evidence {
	if bytes <= 0 {
		return nil
	}
	return []report.Evidence{evidenceOf("evidence live-heap", bytes, "bytes")}
}

// collectorEvidence lists the ways in which the collector took 1 % or more of a group's time: assists, stops, waits for phases,
// and waits for Ps on which workers or helpers ran.
func collectorEvidence(group *report.Group) (out []report.Evidence) {
	for _, kind := range []struct {
		key  textKey
		part func(*report.Cause) float64
	}{
		{"evidence assists", func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseGCAssist) }},
		{"evidence collector-stops", func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseSTW && isGCStop(c.Kind)) }},
		{"evidence collector-waits", func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseGCWait && collectorPart(c) > 0) }},
		{"evidence mark-worker-waits", ranWorkerPart},
		{"evidence mark-help-waits", ranAssistPart},
	} {
		if share, _ := gainWithoutPart(group, kind.part); share >= 0.01 {
			out = append(out, evidenceOf(kind.key, share, "share"))
		}
	}
	return out
}
