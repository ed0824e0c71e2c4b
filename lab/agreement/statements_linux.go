package main

import (
	"math"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// A statement is something that is inferred without the kernel's events.
type statement struct {
	text string
	// judge returns how often a report says it, how often the events show that this is true, and how often it does not say it
	// although it is true.
	judge   func(events, inferred *report.Report) (said, right, missed int)
	tallies [2]tally // samples, bare
}

// Bounds of what is judged.
const (
	quotaShare  = 0.01 // of the goroutines' running time: a quota that took less is none
	othersLimit = 0.10 // of the running time, as rule WL1009 asks
	closeTimes  = 0.25 // two times are equal if they differ by less
)

func newStatements() []statement {
	return []statement{
		{text: "a quota held the process back", judge: once(judgeQuota)},
		{text: "no quota held it back", judge: once(judgeNoQuota)},
		{text: "the CPU time that a quota took, within 25 %", judge: once(judgeLostTime)},
		{text: "a freeze, of which half was one", judge: judgeFreezes},
		{text: "other processes have the CPUs (WL1009)", judge: once(judgeBusy)},
		{text: "requests computed for so long, within 25 %", judge: once(judgeComputing)},
		{text: "the process was stopped (WL4003)", judge: once(judgeStopped)},
		{text: "first finding above low", judge: once(judgeFirst)},
	}
}

// once turns the judge of what a report says at most once into one that counts.
func once(judge func(events, inferred *report.Report) (isSaid, isRight, isMissed bool)) func(events, inferred *report.Report) (said, right, missed int) {
	return func(events, inferred *report.Report) (said, right, missed int) {
		isSaid, isRight, isMissed := judge(events, inferred)
		switch {
		case isSaid && isRight:
			return 1, 1, 0
		case isSaid:
			return 1, 0, 0
		case isMissed:
			return 0, 0, 1
		}
		return 0, 0, 0
	}
}

// judgeFreezes counts the intervals in which a report says that a quota froze the process. One is right if half of it was a
// freeze by the events, and one of the events is missed if no half of it is covered; those below 3 ms are too short to be found.
func judgeFreezes(events, inferred *report.Report) (said, right, missed int) {
	freezesOf := func(r *report.Report) [][2]int64 {
		if r.Runtime.Series == nil || !r.Runtime.Throttle.Verdict.HeldBack() {
			return nil
		}
		return r.Runtime.Series.Freezes
	}
	truth, claimed := freezesOf(events), freezesOf(inferred)
	for _, x := range claimed {
		if said++; 2*covered(x, truth) >= x[1] {
			right++
		}
	}
	for _, x := range truth {
		if x[1] >= 3e6 && 2*covered(x, claimed) < x[1] {
			missed++
		}
	}
	return said, right, missed
}

// covered returns how much of an interval, [start, length], others cover.
func covered(x [2]int64, others [][2]int64) (ns int64) {
	for _, y := range others {
		ns += max(0, min(x[0]+x[1], y[0]+y[1])-max(x[0], y[0]))
	}
	return ns
}

func tookQuota(r *report.Report) bool {
	return float64(r.Runtime.Throttle.LostCPUNS) > quotaShare*float64(r.Kernel.RunningNS)
}

func judgeQuota(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	isSaid = inferred.Runtime.Throttle.Verdict.HeldBack()
	return isSaid, events.Runtime.Throttle.LostCPUNS > 0, tookQuota(events)
}

func judgeNoQuota(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	return inferred.Runtime.Throttle.Verdict == report.ThrottleNone, !tookQuota(events), events.Runtime.Throttle.LostCPUNS == 0
}

func areClose(a, b int64) bool {
	return math.Abs(float64(a-b)) <= closeTimes*float64(max(a, b))
}

func judgeLostTime(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	t := &inferred.Runtime.Throttle
	return t.Verdict.HeldBack(), areClose(t.LostCPUNS, events.Runtime.Throttle.LostCPUNS), tookQuota(events)
}

func judgeBusy(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	return has(inferred, report.RuleBusyMachine), othersShare(events) >= othersLimit, has(events, report.RuleBusyMachine)
}

func judgeComputing(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	return computedNS(inferred) > 0, areClose(computedNS(inferred), causeNS(events, report.CauseCPU)), false
}

// computedNS returns for how long requests computed, as the first sentence says it: without the part of running time that had no
// CPU, if that is enough to be said.
func computedNS(r *report.Report) int64 {
	ns := causeNS(r, report.CauseCPU)
	if share := r.WithoutCPU(); share >= verdict.MinReportedWithoutCPU {
		ns = int64((1 - share) * float64(ns))
	}
	return ns
}

func judgeStopped(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	return has(inferred, report.RuleStopped), events.Kernel.StoppedNS > 0, events.Kernel.StoppedNS > 0
}

func judgeFirst(events, inferred *report.Report) (isSaid, isRight, isMissed bool) {
	said, want := firstFinding(inferred), firstFinding(events)
	return said != "-", said == want, want != "-"
}
