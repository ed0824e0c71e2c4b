package queues

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestDeadlocks: an answer after which its request pauses, and that comes with another one after a long wait, reports a deadlock. One that comes
// alone does not, nor does one that is not late.
func TestDeadlocks(t *testing.T) {
	const roundTrip, timeout = int64(5e6), int64(120e6)
	lines := func(partnerNS, waitNS int64) []PeerCalls {
		var c PeerCalls
		for i := range int64(100) {
			c.answers = append(c.answers, interval{i * 50e6, i*50e6 + roundTrip})
		}
		for i := range int64(3) {
			start := i*1e9 + 7e6
			victim := interval{start, start + waitNS}
			c.answers = append(c.answers, victim, interval{start + 4e6, victim.end + partnerNS})
			c.beforePauses = append(c.beforePauses, victim)
		}
		return []PeerCalls{c}
	}
	for name, c := range map[string]struct {
		partnerNS, waitNS int64
		want              Deadlocks
	}{
		"deadlocks":                         {20e3, timeout, Deadlocks{Count: 3, WaitNS: timeout, OtherNS: roundTrip}},
		"no other answer comes then":        {20e6, timeout, Deadlocks{}},
		"pauses without a wait before them": {20e3, 2 * roundTrip, Deadlocks{}},
	} {
		got := lines(c.partnerNS, c.waitNS)
		setDeadlocks(got)
		check.Equal(t, got[0].Deadlocks, c.want, "%s", name)
	}
}
