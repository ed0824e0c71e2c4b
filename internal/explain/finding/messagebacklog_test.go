package finding

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestLockShare: a cause that one wait chain leads to has no list of routes. It fails if its waits for locks do not count: then more
// consumers are advised that would wait for each other.
func TestLockShare(t *testing.T) {
	locked := []report.Via{{Wait: report.WaitLock, Site: site("store@6")}}
	r := oneGroup(report.Cause{Cause: report.CauseCPU, Site: site("handle@7"), Via: locked, TotalNS: 60}, report.Cause{Cause: report.CauseCPU, Site: site("handle@8"), TotalNS: 40})
	check.Equal(t, lockShare(&r.Groups[0]), 0.6, "share of waits for the lock")
	r.Groups[0].Saturated = &report.Saturated{Site: site("consume@4"), Consumers: 2, PerSecond: 99.5, EachNS: 10e6}
	check.Equal(t, len(checkSaturated(&Input{Report: r}, &r.Groups[0])), 0, "verdicts")
}
