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

// explanations returns the explanations that apply, in the order above.
func explanations(in *Input, all []Verdict) (out []explanation) {
	add := func(code report.RuleCode, e explanation) {
		for i := range all {
			if v := &all[i]; v.Code == code && !v.Fact && (e.explainer == nil || cmp.Or(-cmp.Compare(severityRank(v.Severity), severityRank(e.explainer.Severity)), cmp.Compare(v.Gain.TotalNS, e.explainer.Gain.TotalNS)) > 0) {
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

func isGCRule(code report.RuleCode) bool { return strings.HasPrefix(string(code), "WL3") }

// throttledShare returns the share of a CPU quota's periods in which it throttled the process, from the kernel's
// counters or the freezes in the trace.
func throttledShare(r *report.Report) float64 {
	if h := r.Host; h != nil && h.Quota.Periods > 0 {
		return min(1, float64(h.Quota.ThrottledPeriods)/float64(h.Quota.Periods))
	}
	if t := &r.Runtime.Throttle; r.Host == nil && t.Verdict.HeldBack() && t.PeriodNS > 0 && r.Input.DurationNS > 0 {
		return min(1, float64(t.Freezes)*float64(t.PeriodNS)/float64(r.Input.DurationNS))
	}
	return 0
}

// subtractExplained subtracts from each verdict the time that explanations cover and drops it if the rest is below all
// thresholds. A verdict is not more severe than its explanation, unless its own time is far larger.
func subtractExplained(in *Input, all []Verdict) []Verdict {
	isDropped, takenShares := make([]bool, len(all)), make([]float64, len(all))
	for _, reason := range explanations(in, all) {
		for i := range all {
			v := &all[i]
			if v.Fact || isDropped[i] || reason.explainer != nil && v.Code == reason.explainer.Code || !reason.appliesTo(v.Code) {
				continue
			}
			beforeNS, takenBefore := v.Gain.TotalNS, takenShares[i]
			if share := min(reason.explainedShare(v.Cause), 1-takenShares[i]); share > 0 && v.FixedSeverity == "" {
				v.Gain = v.Gain.scaled((1 - takenShares[i] - share) / (1 - takenShares[i]))
				takenShares[i] += share
				if v.Severity, v.Decided = in.decideSeverity(v); v.Severity == "" {
					isDropped[i] = true
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
	out := all[:0:0]
	for i := range all {
		if !isDropped[i] {
			out = append(out, all[i])
		}
	}
	return out
}

// sortVerdicts orders verdicts as orderByLoss does, but a process that did not run comes first, because all clients waited for it, and
// then requests that hang.
func sortVerdicts(all []Verdict) {
	orderByLoss(all)
	moveToFront(all, func(v *Verdict) bool { return v.Code == report.RuleHung && v.Severity == report.SeverityHigh })
	moveToFront(all, func(v *Verdict) bool { return v.Code == report.RuleStopped && v.Severity.IsMajor() })
}

// moveToFront makes the first verdict that matches the first of all.
func moveToFront(all []Verdict, matches func(*Verdict) bool) {
	for i := range all {
		if matches(&all[i]) {
			first := all[i]
			copy(all[1:i+1], all[:i])
			all[0] = first
			return
		}
	}
}

// orderByLoss sorts verdicts by severity, then by the loss of the slow requests, which the report's first sentence
// describes. A busy machine comes before the verdicts that it makes worse, unless their loss is far larger. If
// requests compute for far longer than other processes used the CPUs, the busy machine is only a fact. The service's
// own waits are the same on any machine.
func orderByLoss(all []Verdict) {
	isOfMachine := func(v Verdict) bool { return v.Code.OfMachine() }
	if index := slices.IndexFunc(all, isOfMachine); index >= 0 && slices.ContainsFunc(all, func(v Verdict) bool {
		return v.Code == report.RuleComputes && v.Gain.TotalNS > threshold.FarFactor*all[index].Gain.TotalNS
	}) && !all[index].Severity.IsMajor() {
		all[index].capSeverity(report.SeverityInfo)
	}
	slices.SortStableFunc(all, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)), cmp.Compare(b.Gain.Slow.NS, a.Gain.Slow.NS), cmp.Compare(b.Gain.TotalNS, a.Gain.TotalNS), cmp.Compare(a.Code, b.Code), strings.Compare(a.ID, b.ID))
	})
	machineIndex := slices.IndexFunc(all, isOfMachine)
	if machineIndex < 0 {
		return
	}
	machine := all[machineIndex]
	target := machineIndex
	for ; target > 0; target-- {
		v, maxNS := &all[target-1], machine.Gain.TotalNS
		if isSchedulingRule(v.Code) || isGCRule(v.Code) {
			maxNS *= threshold.FarFactor
		}
		if v.Severity != machine.Severity || v.Gain.TotalNS > maxNS {
			break
		}
	}
	copy(all[target+1:machineIndex+1], all[target:machineIndex])
	all[target] = machine
}

// linkHolderFindings adds to a finding about holders that other requests queue behind them: one fix removes both. If
// the holders are iterations of a loop, requests wait for them only through that queue, and the finding becomes info.
func linkHolderFindings(in *Input, all []Verdict) {
	for i := range all {
		v := &all[i]
		if v.Code != report.RuleSleep && v.Code != report.RuleSlowPeer && v.Code != report.RuleBlockingSyscall || v.Site == nil {
			continue
		}
		for k := range all {
			queueVerdict := &all[k]
			if (queueVerdict.Code == report.RuleLockConvoy || queueVerdict.Code == report.RulePoolTooSmall) && queueVerdict.Group != v.Group && queueVerdict.Cause == v.Cause && queueVerdict.Site != nil && queueVerdict.Site.Key() == v.Site.Key() {
				v.Evidence = append(v.Evidence, statementOf("evidence same-fault", "code", queueVerdict.Code))
				if g := in.Report.Group(v.Group); g != nil && g.Kind == report.KindLoop && severityRank(queueVerdict.Severity) <= severityRank(v.Severity) {
					v.Severity, v.Decided = report.SeverityInfo, nil
				}
				break
			}
		}
	}
}
