package cgroup

import (
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
)

func TestCompare(t *testing.T) {
	const all = HasBandwidth | HasLocal | HasAncestors
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, tt := range []struct {
		name         string
		from, to     Stat
		want         Verdict
		ownTime, anc time.Duration
	}{
		{"nothing grew", Stat{Has: all, Throttled: ms(5), Local: ms(9)}, Stat{Has: all, Throttled: ms(5), Local: ms(9)}, VerdictNone, 0, 0},
		{"own", Stat{Has: all}, Stat{Has: all, ThrottledPeriods: 3, Throttled: ms(150), Local: ms(150)}, VerdictOwn, ms(150), 0},
		{"own, the two clocks a little apart", Stat{Has: all}, Stat{Has: all, ThrottledPeriods: 3, Throttled: ms(150), Local: ms(155)}, VerdictOwn, ms(150), 0},
		{"own, and the local clock slower", Stat{Has: all}, Stat{Has: all, ThrottledPeriods: 3, Throttled: ms(150), Local: ms(140)}, VerdictOwn, ms(150), 0},
		{"ancestor, own group has no quota", Stat{Has: all}, Stat{Has: all, Local: ms(80)}, VerdictAncestor, 0, ms(80)},
		{"both, ancestor more", Stat{Has: all}, Stat{Has: all, ThrottledPeriods: 1, Throttled: ms(10), Local: ms(100)}, VerdictAncestor, ms(10), ms(90)},
		{"both, own more", Stat{Has: all}, Stat{Has: all, ThrottledPeriods: 9, Throttled: ms(90), Local: ms(100)}, VerdictOwn, ms(90), ms(10)},
		{"a visible ancestor throttled others while we slept", Stat{Has: all}, Stat{Has: all, AncestorThrottledPeriods: 4, AncestorThrottled: ms(300)}, VerdictNone, 0, 0},
		{"no local, own", Stat{Has: HasBandwidth}, Stat{Has: HasBandwidth, ThrottledPeriods: 2, Throttled: ms(20)}, VerdictOwn, ms(20), 0},
		{"no local any more, own", Stat{Has: HasBandwidth, Local: ms(9)}, Stat{Has: HasBandwidth, ThrottledPeriods: 2, Throttled: ms(20)}, VerdictOwn, ms(20), 0},
		{"local went back", Stat{Has: all, Local: ms(9)}, Stat{Has: all, Local: ms(5)}, VerdictUnknown, 0, 0},
		{"no local, a visible ancestor", Stat{Has: HasBandwidth}, Stat{Has: HasBandwidth, AncestorThrottledPeriods: 2, AncestorThrottled: ms(20)}, VerdictAncestor, 0, ms(20)},
		{"no local, everything visible and still", Stat{Has: HasBandwidth | HasAncestors}, Stat{Has: HasBandwidth | HasAncestors}, VerdictNone, 0, 0},
		{"no local, ancestors hidden", Stat{Has: HasBandwidth}, Stat{Has: HasBandwidth, Periods: 50}, VerdictUnknown, 0, 0},
		{"usage alone", Stat{Has: HasUsage}, Stat{Has: HasUsage, Usage: ms(900)}, VerdictUnknown, 0, 0},
		{"local alone grew", Stat{Has: HasLocal}, Stat{Has: HasLocal, Local: ms(10)}, VerdictUnknown, 0, 0},
		{"a field appeared between the samples", Stat{Has: HasUsage}, Stat{Has: all, Local: ms(50)}, VerdictUnknown, 0, 0},
		{"the group was replaced", Stat{Has: all, Throttled: ms(50)}, Stat{Has: all}, VerdictUnknown, 0, 0},
		{"the ancestor was replaced", Stat{Has: all, AncestorThrottled: ms(50)}, Stat{Has: all, Local: ms(7)}, VerdictUnknown, 0, 0},
	} {
		got := Compare(&tt.from, &tt.to)
		check.True(t, got.Verdict == tt.want && got.Own == tt.ownTime && got.Ancestor == tt.anc && got.Evidence != "",
			"%s: %+v, want %s, own %v, ancestor %v", tt.name, got, tt.want, tt.ownTime, tt.anc)
	}
}
