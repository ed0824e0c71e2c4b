package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// sortVerdicts puts verdicts into the order in which they are reported: by loss (orderByLoss), but first a process that did not
// run, because all clients waited for it, and then requests that hang.
func (in *Input) sortVerdicts(all []Verdict) {
	orderByLoss(all)
	for i := 1; i < len(all); i++ { // a change whose gain is known precedes one of the scheduler's whose gain is not
		if a, b := &all[i-1], &all[i]; isSchedulingRule(a.Code) && a.Predicted == nil && b.Predicted != nil && a.Group == b.Group && a.Severity == b.Severity {
			*a, *b = *b, *a
		}
	}
	for i := 1; i < len(all); i++ { // the name of a fault of several groups is not that of one with few requests
		if a, b := &all[i-1], &all[i]; a.Severity == b.Severity && verdict.IsSameFault(&a.Finding, &b.Finding) && in.isSmall(a.Group) && a.Gain.TotalNS < b.Gain.TotalNS {
			*a, *b = *b, *a
		}
	}
	for i := 1; i < len(all); i++ { // what can certainly be saved precedes an answer that perhaps could be faster
		if a, b := &all[i-1], &all[i]; a.Code == report.RuleSlowPeer && b.Code == report.RulePoolTooSmall && len(b.Changes) > 0 && a.Group == b.Group && a.Severity == b.Severity && a.Site.OwnLine().Equal(b.Site) {
			*a, *b = *b, *a // other messages need not wait for that peer
		}
		if a, b := &all[i-1], &all[i]; a.isOneAnswer && !b.isOneAnswer && a.Code == b.Code && a.Group == b.Group && a.Severity == b.Severity && b.Predicted != nil {
			*a, *b = *b, *a
		}
	}
	moveToFront(all, func(v Verdict) bool { return v.Code == report.RuleHung && v.Severity == report.SeverityHigh })
	moveToFront(all, func(v Verdict) bool { return v.Code == report.RuleStopped && v.Severity.IsMajor() })
}

// isSmall reports whether a group has too few requests for a statement about others.
func (in *Input) isSmall(group string) bool {
	g := in.Report.Group(group)
	return g != nil && g.Count < threshold.SmallSample
}

// moveToFront makes the first verdict that matches the first of all; the others keep their order.
func moveToFront(all []Verdict, matches func(Verdict) bool) {
	if i := slices.IndexFunc(all, matches); i > 0 {
		entry.MoveUp(all, i, 0)
	}
}

// orderByLoss sorts verdicts by severity, then by the loss of the slow requests, which the report's first sentence describes. A
// verdict on a busy machine moves before those of equal severity that it makes worse, unless their loss is threshold.FarFactor
// times as large. If it is low, it becomes info if requests compute for far longer than other processes used the CPUs.
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
	target := machineIndex
	for ; target > 0; target-- {
		v, machine := &all[target-1], &all[machineIndex]
		maxNS := machine.Gain.TotalNS
		if isSchedulingRule(v.Code) || isGCRule(v.Code) {
			maxNS *= threshold.FarFactor
		}
		if v.Severity != machine.Severity || v.Gain.TotalNS > maxNS {
			break
		}
	}
	if target >= 0 {
		entry.MoveUp(all, machineIndex, target)
	}
}

// preferWork finds pairs of verdicts about one group, one about computing or openings and one about what that causes according to its changes, the
// collections or the waits for a P: less of that work also saves these, which cannot be said of a setting. The verdict on the computing
// gets the higher severity of the two, and the other one becomes low, unless it saves more.
func preferWork(all []Verdict) {
	for work := range each(all) {
		evidence := map[report.RuleCode]textKey{report.RuleComputes: "evidence less-by-computing", report.RuleSlowPeer: "evidence less-by-openings"}[work.Code]
		if evidence == "" || work.Severity == report.SeverityInfo {
			continue
		}
		for effect := range each(all) {
			isCaused := slices.ContainsFunc(work.Changes, func(c predict.Change) bool {
				return c.Site == "" && (c.Cause == report.FamilyGC && isGCRule(effect.Code) || c.Cause == effect.Cause && isSchedulingRule(effect.Code))
			})
			if !isCaused || effect.Code == report.RuleForcedGC || effect.Group != work.Group || effect.Gain.TotalNS > work.Gain.TotalNS {
				continue
			}
			if severityRank(effect.Severity) < severityRank(work.Severity) {
				work.Severity, work.Decided = effect.Severity, nil
			}
			effect.capSeverity(report.SeverityLow)
			effect.addEvidence(statementOf(evidence))
		}
	}
}

// linkHolderFindings finds pairs of verdicts with the same site and cause, one about what the holders of a lock or slot do, one
// about the requests of another group that queue for them, and adds to the first that one fix removes both. If the holders are
// iterations of a loop, requests feel them only through that queue, so the holders' verdict becomes info.
func linkHolderFindings(in *Input, all []Verdict) {
	for v := range each(all) {
		if v.Code != report.RuleSleep && v.Code != report.RuleSlowPeer && v.Code != report.RuleBlockingSyscall || v.Site == nil {
			continue
		}
		for queueVerdict := range each(all) {
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
