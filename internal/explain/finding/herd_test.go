package finding

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestHerdIsNoQueue: a request waits for one goroutine of a herd, which another request's Broadcast woke and which runs late. It
// queues for no slot, unless the goroutines wait at the Cond for one.
func TestHerdIsNoQueue(t *testing.T) {
	atCond := via("select command@77", "cond next@51")
	herd := process.Herd{Start: "main.twin", Site: site("next@51"), Waker: site("send@41"), Times: 100, Wakes: 1e5, Largest: 1000}
	slots := queues.SlotWaits{Wait: report.WaitCond, Site: site("next@51"), Waits: 100, BatchSize: 1, FormerWaiterShare: 1}
	for _, c := range []struct {
		name    string
		herds   []process.Herd
		slots   []queues.SlotWaits
		isQueue bool
	}{
		{"no herd", nil, nil, true},
		{"a herd", []process.Herd{herd}, nil, false},
		{"a herd that waits for slots", []process.Herd{herd}, []queues.SlotWaits{slots}, true},
	} {
		in := &Input{Process: &process.Stats{Herds: c.herds}, SlotWaits: c.slots, Report: oneGroup(report.Cause{Cause: "cpu", Site: site("send@41"), Via: atCond, TotalNS: ms(1000)}),
			Services: []queues.ServiceStats{{Cause: "cpu", Site: site("next@51"), WaitersPerServer: 1, BatchSize: 1, OtherRequestShare: 1, Servers: 9, MaxServers: 9, ServiceNS: 1e6, Requests: 100}}}
		isQueue := slices.ContainsFunc(Find(in, rulesByCode(report.RulePoolTooSmall)), func(f report.Finding) bool { return f.Code == report.RulePoolTooSmall })
		check.Equal(t, isQueue, c.isQueue, "%s", c.name)
	}
}
