package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// Which finding explains which. A cause comes before its effects, and its time is subtracted from theirs:
//
//  1. The process did not run: a quota throttled it (WL4001), or other processes used the CPUs (WL1009).
//  2. Its threads did not run: there are more Ps than CPUs (WL1005), or it is unknown what used the CPUs (WL5011).
//  3. Ps were occupied, or started late (the other rules of WL1).
//  4. The garbage collector (WL3), and the time of computing (WL1008).
//
// If earlier causes explain at least half of a later finding's time, its severity is at most low.
//
// The service's own waits (WL2) do not depend on what runs: they are ordered by the loss of requests. The one exception is
// a peer's answer (WL2005): while a quota throttles the process that reads the answer, the time is not the peer's.

// An explanation is a verdict, or a fact, that explains time of other verdicts.
type explanation struct {
	explainer *Verdict // nil if only a fact explains the time
	// appliesTo reports whether a rule's time can be explained. explainedShare returns the share of the time that the
	// rule attributes to a cause.
	appliesTo      func(report.RuleCode) bool
	explainedShare func(report.CauseName) float64
	// isAlwaysFirst means that the explainer precedes the others whatever requests lose, because they would not exist
	// without it.
	isAlwaysFirst bool
	// capsSeverity means that no other may be more severe, whatever requests lose.
	capsSeverity bool
	evidence     textKey
}

// explanations returns which of the four explanations above apply to the trace: a quota, other processes, more Ps than CPUs, or
// threads off the CPU for an unknown reason. Each has the most severe verdict of its rule as the explainer, the rules to which it
// applies, and the share of their time that it explains.
func explanations(in *Input, all []Verdict) (out []explanation) {
	add := func(code report.RuleCode, e explanation) {
		for v := range each(all) {
			if v.Code == code && !v.Fact && (e.explainer == nil || cmp.Or(-cmp.Compare(severityRank(v.Severity), severityRank(e.explainer.Severity)), cmp.Compare(v.Gain.TotalNS, e.explainer.Gain.TotalNS)) > 0) {
				e.explainer = v
			}
		}
		if e.explainer != nil {
			out = append(out, e)
		}
	}
	heldShare := throttledShare(in.Report)
	if heldShare >= threshold.HalfShare {
		add(report.RuleThrottled, explanation{
			appliesTo: func(code report.RuleCode) bool {
				return isSchedulingRule(code) || isGCRule(code) || code == report.RuleSlowPeer
			},
			explainedShare: func(c report.CauseName) float64 {
				switch c {
				case report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseNetwork:
					return heldShare // without the quota, the process would have run the goroutine, woken it or read its answer
				}
				return 0 // time during freezes is not part of other causes
			},
			isAlwaysFirst: true, evidence: "evidence less-by-quota",
		})
	}
	load, hasOtherLoad := measureOtherLoad(in)
	if hasOtherLoad {
		add(report.RuleBusyMachine, explanation{
			appliesTo: func(code report.RuleCode) bool { return isSchedulingRule(code) || isGCRule(code) },
			explainedShare: func(c report.CauseName) float64 {
				switch c {
				case report.CauseSchedWake:
					return load.wakeShare
				case report.CauseCPU, report.CauseGCAssist:
					return load.lostShare * oneIf(!load.isObserved)
				case report.CauseSched, report.CauseSchedPoll, report.CauseGCWait, report.FamilyGC:
					return load.lostShare
				}
				return 0
			},
			capsSeverity: in.Report.Runtime.Throttle.Verdict.HeldBack(), // the quota may be the reason
			evidence:     "evidence less-by-other-processes",
		})
	}
	ownLostShare := lostToOwnThreads(in)
	if ownLostShare >= threshold.MajorShare {
		add(report.RuleTooManyPs, explanation{
			appliesTo: func(code report.RuleCode) bool { return code == report.RuleComputes || isGCRule(code) },
			// A collection has a worker on each idle P. A wait behind other goroutines would be as long with fewer Ps.
			explainedShare: func(report.CauseName) float64 { return ownLostShare },
			isAlwaysFirst:  true, evidence: "evidence less-by-own-threads",
		})
	}
	if offCPUShare := in.Report.WithoutCPU(); offCPUShare >= threshold.MajorShare && ownLostShare < threshold.MajorShare && !hasOtherLoad { // else the reason is known
		out = append(out, explanation{
			appliesTo: func(code report.RuleCode) bool {
				return isSchedulingRule(code) && code != report.RuleTooManyPs || isGCRule(code)
			},
			explainedShare: func(c report.CauseName) float64 {
				switch c {
				case report.CauseSchedWake:
					return 0
				case report.CauseSched, report.CauseSchedPoll:
					if heldShare >= threshold.HalfShare {
						return 0 // the quota explains it: threads released at the same time wait for each other
					}
				}
				return offCPUShare
			},
			evidence: "evidence less-by-threads-off-cpu",
		})
	}
	return out
}

// isSchedulingRule reports whether a rule is about the goroutines of the service that occupy the Ps.
func isSchedulingRule(code report.RuleCode) bool {
	return strings.HasPrefix(string(code), "WL1") && !code.OfMachine()
}

// isGCRule reports whether a rule is about the garbage collector or stops of the world.
func isGCRule(code report.RuleCode) bool { return strings.HasPrefix(string(code), "WL3") }

// throttledShare returns the share of the CPU quota's periods in which the kernel throttled the process: from the kernel's
// counters, else from the freezes in the trace; 0 if neither shows throttling.
func throttledShare(r *report.Report) float64 {
	if h := r.Host; h != nil && h.Quota.Periods > 0 {
		return min(1, float64(h.Quota.ThrottledPeriods)/float64(h.Quota.Periods))
	}
	if t := &r.Runtime.Throttle; r.Host == nil && t.Verdict.HeldBack() && t.PeriodNS > 0 && r.Input.DurationNS > 0 {
		return min(1, float64(t.Freezes)*float64(t.PeriodNS)/float64(r.Input.DurationNS))
	}
	return 0
}

// subtractExplained reduces the gain of each verdict by the share that the explanations take. It changes the verdicts in place
// and returns those whose rest is above a threshold. If at least half is explained, the severity is at most low. Otherwise it is
// at most that of the explainer, unless the verdict costs threshold.FarFactor times as much.
func subtractExplained(in *Input, all []Verdict) []Verdict {
	takenShares := make([]float64, len(all))
	for _, reason := range explanations(in, all) {
		for i := range all {
			v := &all[i]
			if v.Fact || v.Severity == "" || reason.explainer != nil && v.Code == reason.explainer.Code || !reason.appliesTo(v.Code) {
				continue
			}
			beforeNS, takenBefore := v.Gain.TotalNS, takenShares[i]
			if share := min(reason.explainedShare(v.Cause), 1-takenShares[i]); share > 0 && v.FixedSeverity == "" {
				v.Gain = v.Gain.scaled((1 - takenShares[i] - share) / (1 - takenShares[i]))
				takenShares[i] += share
				if v.Severity, v.Decided = in.decideSeverity(v); v.Severity == "" {
					continue
				}
			}
			if takenShares[i] >= threshold.HalfShare {
				if takenBefore < threshold.HalfShare {
					v.addEvidence(statementOf(reason.evidence))
				}
				if v.Code != report.RuleForcedGC {
					v.capSeverity(report.SeverityLow)
				}
				continue
			}
			if v.Code == report.RuleForcedGC || // code forces the collection on any machine: its rest counts
				reason.explainer == nil || !reason.isAlwaysFirst && !reason.capsSeverity && beforeNS > threshold.FarFactor*reason.explainer.Gain.TotalNS {
				continue
			}
			wasLouder := severityRank(v.Severity) < severityRank(reason.explainer.Severity)
			v.capSeverity(reason.explainer.Severity)
			if wasLouder || severityRank(v.Severity) == severityRank(reason.explainer.Severity) && reason.isAlwaysFirst {
				v.addEvidence(statementOf(reason.evidence))
			}
			if reason.isAlwaysFirst && severityRank(v.Severity) == severityRank(reason.explainer.Severity) {
				reason.explainer.Gain.TotalNS, reason.explainer.Gain.Slow.NS = max(reason.explainer.Gain.TotalNS, v.Gain.TotalNS+1), max(reason.explainer.Gain.Slow.NS, v.Gain.Slow.NS)
			}
		}
	}
	return slices.DeleteFunc(all, func(v Verdict) bool { return v.Severity == "" })
}
