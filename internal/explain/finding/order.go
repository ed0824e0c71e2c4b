package finding

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// What explains what. A cause that others follow from comes before these, and takes its time from them:
//
//  1. The process did not run: a quota held it (WL4001), or others had the CPUs (WL1009).
//  2. Its threads did not run: there are more Ps than CPUs (WL1005), or it is not known who had the CPUs (WL5011).
//  3. Ps were taken, or late (the other rules of WL1).
//  4. The garbage collector (WL3), and what computing takes (WL1008).
//
// Where these causes together take the larger part of what a later one blames, it is at most low.
//
// The service's own waits (WL2) are what they are whoever runs: of those the order is by what requests lose. Only an answer from the network
// (WL2005) is not a peer's while a quota holds the one who asked and reads it.

// An explanation is a verdict that explains others.
type explanation struct {
	by *Verdict // nil if the certain part is a fact alone
	// explains reports which rules come after it, and part how much of the time that one of these blames on a cause is its own.
	explains func(report.RuleCode) bool
	part     func(report.CauseName) float64
	// whole says that the order holds whatever requests lose: what is blamed there would not be without it.
	whole bool
	// quieter says that none may be louder, whatever requests lose.
	quieter bool
	why     string
}

// explanations returns those that there are, by the order above.
func explanations(in *Input, all []Verdict) (out []explanation) {
	add := func(code report.RuleCode, e explanation) {
		for i := range all {
			if v := &all[i]; v.Code == code && !v.Fact && (e.by == nil || cmp.Or(-cmp.Compare(rank(v.Severity), rank(e.by.Severity)), cmp.Compare(v.Won.TotalNS, e.by.Won.TotalNS)) > 0) {
				e.by = v
			}
		}
		if e.by != nil {
			out = append(out, e)
		}
	}
	held := heldBack(in.Report)
	if held >= scale.Half {
		add(report.RuleThrottled, explanation{
			explains: func(code report.RuleCode) bool {
				return isScheduling(code) || isCollector(code) || code == report.RuleSlowPeer
			},
			part: func(c report.CauseName) float64 {
				switch c {
				case report.CauseSched, report.CauseSchedWake, report.CauseSchedPoll, report.CauseNetwork:
					return held // who waited for a P, to be woken, or for an answer that nobody could read, waited for the quota
				}
				return 0 // what stood still is frozen time already
			},
			whole: true, why: "less than it seems: a CPU quota throttled the process in that time, see WL4001",
		})
	}
	n, others := measureOtherLoad(in)
	if others {
		add(report.RuleBusyMachine, explanation{
			explains: func(code report.RuleCode) bool { return isScheduling(code) || isCollector(code) },
			part: func(c report.CauseName) float64 {
				switch c {
				case report.CauseSchedWake:
					return n.wakeShare
				case report.CauseCPU, report.CauseSched, report.CauseSchedPoll, report.CauseGCAssist, report.CauseGCWait, report.FamilyGC:
					return n.lostShare
				}
				return 0
			},
			quieter: in.Report.Runtime.Throttle.Verdict.HeldBack(), // it may be the quota's doing
			why:     "less than it seems: other processes had the CPUs, see WL1009",
		})
	}
	off := ownLost(in)
	if off >= scale.Much {
		add(report.RuleTooManyPs, explanation{
			explains: func(code report.RuleCode) bool { return code == report.RuleComputes || isCollector(code) },
			// A collection has a worker on each idle P. Who waits behind others for a P would wait as long behind fewer.
			part:  func(report.CauseName) float64 { return off },
			whole: true, why: "less than it seems: the service's own threads waited for each other's CPUs, see WL1005",
		})
	}
	if without := in.Report.WithoutCPU(); without >= scale.Much && off < scale.Much && !others { // else it is known who had the CPUs
		out = append(out, explanation{
			explains: func(code report.RuleCode) bool {
				return isScheduling(code) && code != report.RuleTooManyPs || isCollector(code)
			},
			part: func(c report.CauseName) float64 {
				switch c {
				case report.CauseSchedWake:
					return 0
				case report.CauseSched, report.CauseSchedPoll:
					if held >= scale.Half {
						return 0 // the quota has its part, and its threads that are released together wait for each other
					}
				}
				return without
			},
			why: "less than it seems: threads had no CPU, perhaps because of a quota, other processes or more Ps than CPUs, see WL5011",
		})
	}
	return out
}

// isScheduling reports whether a rule is about who of the service has the Ps.
func isScheduling(code report.RuleCode) bool {
	return strings.HasPrefix(string(code), "WL1") && !code.OfMachine()
}

func isCollector(code report.RuleCode) bool { return strings.HasPrefix(string(code), "WL3") }

// heldBack returns in which part of its periods a CPU quota held the process back, by the kernel's counters or by the trace's freezes.
func heldBack(r *report.Report) float64 {
	if h := r.Host; h != nil && h.Quota.Periods > 0 {
		return min(1, float64(h.Quota.ThrottledPeriods)/float64(h.Quota.Periods))
	}
	if t := &r.Runtime.Throttle; r.Host == nil && t.Verdict.HeldBack() && t.PeriodNS > 0 && r.Input.DurationNS > 0 {
		return min(1, float64(t.Freezes)*float64(t.PeriodNS)/float64(r.Input.DurationNS))
	}
	return 0
}

// explained takes from verdicts the time that others explain, drops those that are not worth a word without it, and makes none louder
// than what explains it, unless it is more by far.
func explained(in *Input, all []Verdict) []Verdict {
	gone, taken := make([]bool, len(all)), make([]float64, len(all))
	for _, e := range explanations(in, all) {
		for i := range all {
			v := &all[i]
			if v.Fact || gone[i] || e.by != nil && v.Code == e.by.Code || !e.explains(v.Code) {
				continue
			}
			before, less := v.Won.TotalNS, taken[i]
			if part := min(e.part(v.Cause), 1-taken[i]); part > 0 && v.FixedSeverity == "" {
				v.Won = v.Won.times((1 - taken[i] - part) / (1 - taken[i]))
				taken[i] += part
				if v.Severity, v.Decided = in.judge(v); v.Severity == "" {
					gone[i] = true
					continue
				}
			}
			if taken[i] >= scale.Half {
				if less < scale.Half {
					v.addEvidence(report.Evidence{Text: e.why})
				}
				if v.Code != report.RuleForcedGC {
					v.capSeverity(report.SeverityLow)
				}
				continue
			}
			if v.Code == report.RuleForcedGC || // code forces it whoever has the CPUs: what is left of it counts
				e.by == nil || !e.whole && !e.quieter && before > scale.Far*e.by.Won.TotalNS {
				continue
			}
			louder := rank(v.Severity) < rank(e.by.Severity)
			v.capSeverity(e.by.Severity)
			if louder || rank(v.Severity) == rank(e.by.Severity) && e.whole {
				v.addEvidence(report.Evidence{Text: e.why})
			}
			if e.whole && rank(v.Severity) == rank(e.by.Severity) {
				e.by.Won.TotalNS, e.by.Won.Slow.NS = max(e.by.Won.TotalNS, v.Won.TotalNS+1), max(e.by.Won.Slow.NS, v.Won.Slow.NS)
			}
		}
	}
	out := all[:0:0]
	for i := range all {
		if !gone[i] {
			out = append(out, all[i])
		}
	}
	return out
}

// inOrder sorts verdicts, the loudest first, and of one severity the weightiest: by what the slow requests lose, of which the first
// sentence speaks. A busy machine comes before what it makes look worse, unless that is more by far: where requests compute for far longer
// than others had the CPUs, it is a fact beside that. The service's own waits are the same on any machine.
func inOrder(all []Verdict) {
	ofMachine := func(v Verdict) bool { return v.Code.OfMachine() }
	if m := slices.IndexFunc(all, ofMachine); m >= 0 && slices.ContainsFunc(all, func(v Verdict) bool {
		return v.Code == report.RuleComputes && v.Won.TotalNS > scale.Far*all[m].Won.TotalNS
	}) && !all[m].Severity.Loud() {
		all[m].capSeverity(report.SeverityInfo)
	}
	slices.SortStableFunc(all, func(a, b Verdict) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(b.Won.Slow.NS, a.Won.Slow.NS), cmp.Compare(b.Won.TotalNS, a.Won.TotalNS), cmp.Compare(a.Code, b.Code), strings.Compare(a.ID, b.ID))
	})
	at := slices.IndexFunc(all, ofMachine)
	if at < 0 {
		return
	}
	m := all[at]
	to := at
	for ; to > 0; to-- {
		v, most := &all[to-1], m.Won.TotalNS
		if isScheduling(v.Code) || isCollector(v.Code) {
			most *= scale.Far
		}
		if v.Severity != m.Severity || v.Won.TotalNS > most {
			break
		}
	}
	copy(all[to+1:at+1], all[to:at])
	all[to] = m
}

// oneFault adds to a finding about what holders do that other requests queue behind them meanwhile: one fix removes both.
// If the holders are turns of a loop, for which requests wait only through that queue, the finding becomes info.
func oneFault(in *Input, all []Verdict) {
	for i := range all {
		v := &all[i]
		if v.Code != report.RuleSleep && v.Code != report.RuleSlowPeer && v.Code != report.RuleBlockingSyscall || v.Site == nil {
			continue
		}
		for k := range all {
			q := &all[k]
			if (q.Code == report.RuleLockConvoy || q.Code == report.RulePoolTooSmall) && q.Group != v.Group && q.Cause == v.Cause && q.Site != nil && q.Site.Key() == v.Site.Key() {
				v.Evidence = append(v.Evidence, report.Evidence{Text: "the same fault as " + string(q.Code) + ": its requests queue behind this, and stop queueing once it is done without what they queue for"})
				if g := in.Report.Group(v.Group); g != nil && g.Kind == report.KindLoop && rank(q.Severity) <= rank(v.Severity) {
					v.Severity, v.Decided = report.SeverityInfo, nil
				}
				break
			}
		}
	}
}
