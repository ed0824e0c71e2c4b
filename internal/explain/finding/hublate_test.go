package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestHubSends: a hub that runs late after a send to a full channel sends to one subscriber, another request, while the others wait. All of their
// time behind that send counts. A receiver that serves no request is a worker.
func TestHubSends(t *testing.T) {
	replay := inModule("github.com/r3labs/sse/v2.(*EventLog).Replay@36", "github.com/r3labs/sse/v2")
	for name, c := range map[string]struct {
		send              *report.Site
		otherRequestShare float64
		title, fix        string
		share             float64
	}{
		"subscribers":              {site("publish@36"), 0.9, "the goroutine of main.hub waits at main.publish (main.go:36) until one receiver takes what it sends, and 3.0 requests", "do not wait for one receiver at main.publish (main.go:36)", 0.75},
		"subscribers of a library": {replay, 0.9, "the goroutine of main.hub waits at sse/v2.(*EventLog).Replay (main.go:36) until one receiver", "in r3labs/sse: set Server.AutoReplay to false", 0.75},
		"workers":                  {site("publish@36"), 0, "the goroutine of main.hub runs late", "reduce what competes", 0.25},
	} {
		behindSend := []report.Via{{Wait: report.WaitChan, Site: site("events@7")}, {Wait: report.WaitChanSend, Site: c.send}}
		in := &Input{Process: &process.Stats{}, Report: oneGroup(
			report.Cause{Cause: report.CauseSched, Site: c.send, Via: behindSend[:1], TotalNS: ms(1000)},
			report.Cause{Cause: report.CauseSchedWake, Site: c.send, Via: behindSend[:1], TotalNS: ms(1000)},
			report.Cause{Cause: report.CauseSyscall, Call: "net.(*netFD).Write", Site: site("write@9"), Via: behindSend, TotalNS: ms(1000)},
			report.Cause{Cause: report.CauseSleep, Site: site("feed@3"), Via: behindSend[:1], TotalNS: ms(1000)}),
			Services: []queues.ServiceStats{{Cause: "syscall", Site: site("write@9"), OtherRequestShare: c.otherRequestShare, Requests: 100, BatchSize: 1}},
			Hubs:     []queues.Hub{{G: 9, Start: "main.hub", Sites: []*report.Site{c.send}, LateRuns: 100, DelayedRequests: 300, LateNS: 1e9, MaxNS: 4e7}}}
		found := findAll(t, in, rulesByCode(report.RuleHubLate))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Title, c.title) && strings.Contains(found[0].Fix, c.fix) && found[0].Share == c.share, "%s: %+v", name, found)
	}
}
