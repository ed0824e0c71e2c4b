package cgroup

import "time"

// A Verdict names the quota that throttled a process's group.
type Verdict string

const (
	// VerdictOwn: the quota of the process's own group.
	VerdictOwn Verdict = "own"
	// VerdictAncestor: the quota of a group above it.
	VerdictAncestor Verdict = "ancestor"
	// VerdictNone: no quota; the counters did not grow.
	VerdictNone Verdict = "none"
	// VerdictUnknown: the counters cannot be read or do not decide.
	VerdictUnknown Verdict = "unknown"
)

// Verdicts returns all of them, those that name a quota first.
func Verdicts() []Verdict {
	return []Verdict{VerdictOwn, VerdictAncestor, VerdictNone, VerdictUnknown}
}

// Throttling is the growth of the throttling counters between two samples.
type Throttling struct {
	Verdict Verdict `json:"verdict"`
	// Evidence is a phrase about the evidence for the verdict.
	Evidence string `json:"how"`
	// Own and Ancestor are the time for which the quota of the process's group
	// and an ancestor's throttled it, summed over CPUs: they may exceed wall
	// time. Without cpu.stat.local, Ancestor is the throttled time of the
	// visible ancestors as a whole, which is more than this process's part.
	Own      time.Duration `json:"own_ns"`
	Ancestor time.Duration `json:"ancestor_ns"`
	// Periods and ThrottledPeriods are those of the process's own group.
	Periods          int64 `json:"periods"`
	ThrottledPeriods int64 `json:"throttled_periods"`
}

// Compare returns the throttling between two samples of one Sampler, the earlier
// first, and its verdict. It does not allocate.
//
// The kernel counts a throttled interval when it ends, so one that has not ended
// belongs to the next comparison.
func Compare(from, to *Stat) Throttling {
	common := from.Has & to.Has
	t := Throttling{Verdict: VerdictUnknown}
	ancestors := to.AncestorThrottled - from.AncestorThrottled
	ancestorPeriods := to.AncestorThrottledPeriods - from.AncestorThrottledPeriods
	if common&HasBandwidth != 0 {
		t.Own = to.Throttled - from.Throttled
		t.Periods = to.Periods - from.Periods
		t.ThrottledPeriods = to.ThrottledPeriods - from.ThrottledPeriods
	}
	if t.Own < 0 || t.Periods < 0 || t.ThrottledPeriods < 0 || ancestors < 0 || ancestorPeriods < 0 || to.Local < from.Local && common&HasLocal != 0 {
		return Throttling{Verdict: VerdictUnknown, Evidence: "counters went backwards: the group was replaced between the samples"}
	}
	ownThrottled := t.Own > 0 || t.ThrottledPeriods > 0

	if common&HasLocal != 0 {
		local := to.Local - from.Local
		switch {
		case common&HasBandwidth == 0 && local > 0:
			t.Evidence = "cpu.stat.local shows throttling; the own cpu.stat, which would show whose, cannot be read"
		case local == 0 && !ownThrottled:
			t.Verdict, t.Evidence = VerdictNone, "cpu.stat.local did not grow"
		default:
			// The part that the own quota does not explain is an ancestor's. The
			// kernel starts and stops the two clocks at slightly different points
			// of the scheduler, so a difference of a twentieth is no evidence.
			t.Ancestor = max(0, local-t.Own)
			if ownThrottled && t.Ancestor < local/20 {
				t.Ancestor = 0
			}
			t.Verdict, t.Evidence = VerdictOwn, "the own cpu.stat"
			if t.Ancestor > t.Own {
				t.Verdict, t.Evidence = VerdictAncestor, "cpu.stat.local grew by more than the own cpu.stat explains"
			}
		}
		return t
	}

	t.Ancestor = ancestors
	switch {
	case ownThrottled && ancestors <= t.Own:
		t.Verdict, t.Evidence = VerdictOwn, "the own cpu.stat"
	case ancestors > 0 || ancestorPeriods > 0:
		t.Verdict, t.Evidence = VerdictAncestor, "the cpu.stat of a visible ancestor"
	case common&HasBandwidth != 0 && common&HasAncestors != 0:
		t.Verdict, t.Evidence = VerdictNone, "cpu.stat of the group and of all its ancestors did not grow"
	case common&HasBandwidth != 0:
		t.Evidence = "the own quota throttled nothing; groups above are not visible and this kernel has no cpu.stat.local"
	default:
		t.Evidence = "no throttling counter can be read"
	}
	return t
}
