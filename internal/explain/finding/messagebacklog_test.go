package finding

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
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

// TestBacklogOfEventLoops: the title has the library's word for the goroutines that read the messages.
func TestBacklogOfEventLoops(t *testing.T) {
	mean := int64(5e6)
	for fn, want := range map[string]string{
		"github.com/panjf2000/gnet/v2/pkg/netpoll.(*Poller).Polling": "messages queue for one of the 2 event loops of main.OnTraffic, slow ones for 20ms, because each of them waits for the network at main.usage (main.go:7)",
		"main.read": "messages queue for one of the 2 goroutines of main.OnTraffic, slow ones for 20ms, because each of them waits for the network at main.usage (main.go:7)",
	} {
		r := oneGroup(report.Cause{Cause: report.CauseNetwork, Site: site("usage@7"), TotalNS: 60, Requests: 1})
		loop := &report.Site{Func: fn, File: "/src/poller.go", Line: 9}
		r.Groups[0].Name = "main.OnTraffic"
		r.Groups[0].Backlog = &report.Backlog{Site: loop, Messages: 100, Queued: 40, Consumers: 2, Load: 0.5, Sufficient: 3, HandlingNS: 1e6, WaitNS: report.Latency{Mean: &mean, Max: &mean, P90: &mean}, Slow: report.BacklogBand{WaitNS: 20e6}}
		found := checkBacklog(&Input{Report: r}, &r.Groups[0])
		must.Equal(t, len(found), 1, "verdicts")
		check.Equal(t, found[0].Title, want, "%s", fn)
	}
}
