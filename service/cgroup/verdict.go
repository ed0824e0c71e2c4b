package cgroup

import "time"

// A Verdict says whose quota held a process's group back.
type Verdict string

const (
	// VerdictOwn: the quota of the process's own group.
	VerdictOwn Verdict = "own"
	// VerdictAncestor: the quota of a group above it.
	VerdictAncestor Verdict = "ancestor"
	// VerdictNone: measured, and zero.
	VerdictNone Verdict = "none"
	// VerdictUnknown: the counters do not say.
	VerdictUnknown Verdict = "unknown"
)

// Verdicts returns all of them, those that name a quota first.
func Verdicts() []Verdict {
	return []Verdict{VerdictOwn, VerdictAncestor, VerdictNone, VerdictUnknown}
}

// Throttling is what happened between two samples.
type Throttling struct {
	Verdict Verdict `json:"verdict"`
	// How says in a phrase what the verdict is based on.
	How string `json:"how"`
	// Own and Ancestor are the time for which the process's own quota and an
	// ancestor's held it back, summed over CPUs: they may exceed the time on
	// the clock. Without cpu.stat.local, Ancestor is what the visible
	// ancestors lost as a whole, which is more than this process's part.
	Own      time.Duration `json:"own_ns"`
	Ancestor time.Duration `json:"ancestor_ns"`
	// Periods and ThrottledPeriods are those of the process's own group.
	Periods          int64 `json:"periods"`
	ThrottledPeriods int64 `json:"throttled_periods"`
}

// Compare says who held the group back between two samples of one Sampler,
// the earlier first. It does not allocate.
//
// The kernel counts a throttled interval when it ends, so one that is still going
// on belongs to the next comparison.
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
		return Throttling{Verdict: VerdictUnknown, How: "counters went backwards: the group was replaced between the samples"}
	}
	ownThrottled := t.Own > 0 || t.ThrottledPeriods > 0

	if common&HasLocal != 0 {
		local := to.Local - from.Local
		switch {
		case common&HasBandwidth == 0 && local > 0:
			t.How = "cpu.stat.local shows throttling; the own cpu.stat, which would show whose, cannot be read"
		case local == 0 && !ownThrottled:
			t.Verdict, t.How = VerdictNone, "cpu.stat.local did not grow"
		default:
			// What the own quota does not explain is an ancestor's. The two
			// clocks are started and stopped at slightly different points of
			// the scheduler: a twentieth is not evidence.
			t.Ancestor = max(0, local-t.Own)
			if ownThrottled && t.Ancestor < local/20 {
				t.Ancestor = 0
			}
			t.Verdict, t.How = VerdictOwn, "the own cpu.stat"
			if t.Ancestor > t.Own {
				t.Verdict, t.How = VerdictAncestor, "cpu.stat.local grew by more than the own cpu.stat explains"
			}
		}
		return t
	}

	t.Ancestor = ancestors
	switch {
	case ownThrottled && ancestors <= t.Own:
		t.Verdict, t.How = VerdictOwn, "the own cpu.stat"
	case ancestors > 0 || ancestorPeriods > 0:
		t.Verdict, t.How = VerdictAncestor, "the cpu.stat of a visible ancestor"
	case common&HasBandwidth != 0 && common&HasAncestors != 0:
		t.Verdict, t.How = VerdictNone, "cpu.stat of the group and of all its ancestors did not grow"
	case common&HasBandwidth != 0:
		t.How = "the own quota throttled nothing; groups above are not visible and this kernel has no cpu.stat.local"
	default:
		t.How = "no throttling counter can be read"
	}
	return t
}
