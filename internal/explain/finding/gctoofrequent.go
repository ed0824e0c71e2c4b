package finding

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkGCTooFrequent is WL3004, gc-too-frequent: cycles follow each other quickly because the room between live heap and goal is
// small, and requests pay for it. The advice is a larger GOGC (adviseGOGC) or, if the live heap fills the memory limit, a higher
// limit.
func checkGCTooFrequent(in *Input, group *report.Group) []Verdict {
	advice, ok := adviseGOGC(in.Process)
	switch full := isLimitFull(in.Process); {
	case full:
		return in.fullLimitVerdicts(group)
	case !ok:
		return nil
	}
	v, ok := in.collectorVerdict(group, collectorPart)
	if !ok {
		return nil
	}
	gc := &in.Process.GC
	site, causes := in.topAllocSite()
	v.Site, v.Changes = site, []predict.Change{predict.Set(predict.GOGC, float64(advice.gogc))}
	v.Title = textOf("title gc-too-frequent", "n", words.Figure(advice.perSecond), "room", words.Bytes(gc.GoalBytes-gc.LiveBytes))
	v.addEvidence(
		evidenceOf("evidence collections", advice.perSecond, "1/s"),
		evidenceOf("evidence live-heap", gc.LiveBytes, "bytes"),
		evidenceOf("evidence heap-goal", gc.GoalBytes, "bytes"),
		evidenceOf("evidence effective-gogc", math.Round(advice.effectiveGOGC), "%"),
		evidenceOf("evidence marking", advice.markShare, "share"),
		evidenceOf("evidence collections-with-gogc", advice.newPerSecond, "1/s", "gogc", advice.gogc),
		evidenceOf("evidence additional-heap", max(0, advice.extraBytes), "bytes"))
	v.addEvidence(collectorEvidence(group)...)
	fix, goal := textKey("fix gogc"), gc.GoalBytes+advice.extraBytes
	if advice.effectiveGOGC <= lowGOGC {
		fix, v.ChangeText = "fix limit-or-gogc", textOf("phrase change-goal", "heap", words.Bytes(goal))
	}
	v.Fix = textOf(fix, "limit", fmt.Sprintf("%dMiB", predict.MemoryLimitFor(goal)>>20), "gogc", advice.gogc, "now", words.Figure(math.Round(advice.effectiveGOGC)), "gain", advice.gainText())
	switch {
	case site != nil && in.hasDominantAllocSite() && advice.effectiveGOGC > lowGOGC: // with a usual GOGC the fault is the garbage of one site
		v.Fix = textOf("fix gogc-or-allocate-less", "site", allocSiteText(&in.Allocs.Sites[0]), "fix", v.Fix)
		v.prependEvidence(causes[0])
		causes = causes[1:]
	case site != nil:
		v.Fix = textOf("fix gogc-and-allocate-less", "fix", v.Fix, "site", site)
	}
	v.addEvidence(causes...)
	if advice.effectiveGOGC > lowGOGC && advice.perSecond < 2*manyCycles {
		v.MaxSeverity = report.SeverityLow // the usual rate of a small heap
	}
	return []Verdict{v}
}

// fullLimitVerdicts returns the finding for a live heap that fills the memory limit, so that the next cycle begins when one ends.
// It advises a limit of 1.5 times the live heap.
func (in *Input) fullLimitVerdicts(group *report.Group) []Verdict {
	v, ok := in.collectorVerdict(group, collectorPart)
	if !ok {
		return nil
	}
	gc := &in.Process.GC
	site, causes := in.topAllocSite()
	perSecond := float64(gc.Cycles-gc.Forced) / (float64(in.Process.SpanNS) / 1e9)
	limit := predict.MemoryLimitFor(gc.FullBytes + gc.FullBytes/2)
	v.Site, v.Confidence, v.Changes = site, 0.9, []predict.Change{predict.Set(predict.GOMEMLIMIT, float64(limit))}
	v.Title = textOf("title gc-full-limit", "n", words.Figure(perSecond))
	v.addEvidence(
		evidenceOf("evidence collections", perSecond, "1/s"),
		evidenceOf("evidence full-heap", gc.FullBytes, "bytes"),
		evidenceOf("evidence full-collections", ratio(int64(gc.FullCycles), int64(gc.FullCycles+gc.MeasuredCycles)), "share"),
		evidenceOf("evidence marking", float64(gc.MarkNS)/float64(in.Process.SpanNS), "share"))
	v.addEvidence(collectorEvidence(group)...)
	v.addEvidence(causes...)
	v.Fix = textOf("fix gc-full-limit", "limit", fmt.Sprintf("%dMiB", limit>>20), "half", words.Bytes(gc.FullBytes/2))
	if site != nil {
		v.Fix = textOf("fix gc-full-limit-and-allocate-less", "fix", v.Fix, "site", site)
	}
	return []Verdict{v}
}

// A gogcAdvice is a larger GOGC, and its effect.
type gogcAdvice struct {
	perSecond     float64 // collections now
	effectiveGOGC float64 // GOGC that follows from goal and live heap, without stacks and globals
	markShare     float64 // share of the time in mark phases
	gogc          int     // advised
	newPerSecond  float64 // collections a second with the advised GOGC
	extraBytes    int64   // additional bytes of heap with it
}

// Thresholds of WL3004. A cycle marks the whole live heap, so its cost does not depend on the room between live heap and goal:
// twice the room means half as many cycles.
const (
	lowGOGC     = 60        // in percent: a goal this close to the live heap was set, or a memory limit holds it there
	smallHeap   = 64 << 20  // bytes: below this goal more room costs little
	manyCycles  = 10        // a second, too many for a small heap
	affordable  = 256 << 20 // bytes: memory that the advice may cost
	usualGOGC   = 100
	largestGOGC = 500
	minHeap     = 4 << 20 // bytes: the runtime's smallest goal at GOGC=100
)

// adviseGOGC advises a larger GOGC; ok is false if collections are not too frequent for the heap, or if too few were seen.
//
// The goal of a cycle is live + (live + stacks + globals) * GOGC/100, at least 4 MiB * GOGC/100 (A Guide to the Go Garbage
// Collector, "GOGC"; runtime/mgcpacer.go). A cycle allocates about goal - live, so with the same rate of allocation the number
// of cycles a second is proportional to 1/(goal - live).
func adviseGOGC(stats *process.Stats) (advice gogcAdvice, ok bool) {
	gc := &stats.GC
	if gc.MeasuredCycles < 3 || stats.SpanNS <= 0 || gc.LiveBytes <= 0 || gc.GoalBytes <= gc.LiveBytes {
		return advice, false
	}
	seconds := float64(stats.SpanNS) / 1e9
	unforced := gc.Cycles - gc.Forced
	room := float64(gc.GoalBytes - gc.LiveBytes)
	advice.perSecond = float64(unforced) / seconds
	advice.effectiveGOGC = 100 * room / float64(gc.LiveBytes)
	advice.markShare = float64(gc.MarkNS) / float64(stats.SpanNS)
	if unforced < 3 || advice.markShare < threshold.MinorShare {
		return advice, false
	}
	if advice.effectiveGOGC > lowGOGC && (gc.GoalBytes > smallHeap || advice.perSecond < manyCycles) {
		return advice, false
	}
	if advice.gogc = usualGOGC; advice.effectiveGOGC > lowGOGC {
		advice.gogc = largestGOGC
	}
	advice.enlarge(gc)
	return advice, advice.newPerSecond < 0.7*advice.perSecond
}

// enlarge doubles the advised GOGC while it is below 400 and the next doubling costs less than a quarter of affordable. It then
// computes the new rate of cycles and the additional heap.
func (advice *gogcAdvice) enlarge(gc *process.GC) {
	room := float64(gc.GoalBytes - gc.LiveBytes)
	roomWith := func(gogc int) float64 {
		return max(float64(gc.LiveBytes)*float64(gogc)/100, minHeap*float64(gogc)/100-float64(gc.LiveBytes))
	}
	for advice.gogc < 400 && roomWith(2*advice.gogc)-room < affordable/4 {
		advice.gogc *= 2
	}
	newRoom := roomWith(advice.gogc)
	advice.newPerSecond = advice.perSecond * room / newRoom
	advice.extraBytes = int64(newRoom - room)
}

// gainText describes the effect of the advised GOGC: cycles a second before and after, and the additional heap.
func (advice *gogcAdvice) gainText() string {
	return textOf("phrase gogc-gain", "factor", fmt.Sprintf("%.2g", advice.perSecond/advice.newPerSecond), "heap", words.Bytes(advice.extraBytes))
}

// isLimitFull reports whether the live heap fills the memory limit, so that a collection begins as soon as the last one ends. A
// larger GOGC has no effect then.
func isLimitFull(stats *process.Stats) bool {
	gc := &stats.GC
	return gc.FullCycles >= 3 && gc.FullCycles > gc.MeasuredCycles && !isMostlyForced(gc) && stats.SpanNS > 0 && float64(gc.MarkNS) >= threshold.MinorShare*float64(stats.SpanNS)
}

// isGoalLow reports whether a setting, GOGC or a memory limit, holds the goal so close to the live heap that collections are due to it and
// not to the garbage of some code.
func isGoalLow(stats *process.Stats) bool {
	advice, ok := adviseGOGC(stats)
	return ok && advice.effectiveGOGC <= lowGOGC || isLimitFull(stats)
}

// growthAdvice returns advice to let the heap grow, and the change that predictions assume. If the goal is close to the live
// heap, a memory limit probably bounds it and a larger GOGC has no effect: the advice is to raise the limit. Otherwise it is
// twice the usual GOGC or more, with a number if enough cycles were measured.
func growthAdvice(stats *process.Stats) (text string, changes []predict.Change) {
	gc := &stats.GC
	half := []predict.Change{predict.Halve(report.FamilyGC, "")}
	if gc.FullCycles > 0 || gc.MeasuredCycles > 0 && gc.LiveBytes > 0 && 100*(gc.GoalBytes-gc.LiveBytes) <= lowGOGC*gc.LiveBytes {
		return textOf("phrase raise-limit"), half
	}
	advice, _ := adviseGOGC(stats)
	advice.gogc = 2 * usualGOGC
	if gc.MeasuredCycles < threshold.Repeats || gc.LiveBytes <= 0 || advice.perSecond == 0 {
		return textOf("phrase raise-gogc"), half
	}
	if advice.enlarge(gc); advice.newPerSecond >= 0.7*advice.perSecond {
		return textOf("phrase raise-gogc"), half
	}
	return textOf("phrase raise-gogc-to", "gogc", advice.gogc, "gain", advice.gainText()), []predict.Change{predict.Set(predict.GOGC, float64(advice.gogc))}
}
