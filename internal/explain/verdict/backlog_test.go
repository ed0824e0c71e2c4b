package verdict

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/report"
)

// TestVerdictOnMessages: a verdict on messages has the time in the queue, whose share is of the time from arrival to done. If the work
// itself takes longer than the queue, it says that the change of the queue is not about the largest part.
func TestVerdictOnMessages(t *testing.T) {
	site := func(line int) *report.Site { return &report.Site{Func: "main.serve", File: "/src/main.go", Line: line} }
	for waitNS, want := range map[int64]string{
		30e6: "75% queueing for one of the 2 goroutines that handle messages at main.serve main.go:28, behind others that are waiting for a peer on the network in main.serve main.go:52; 25% waiting for a peer",
		5e6:  "67% waiting for a peer on the network in main.serve main.go:52; 33% queueing for one of the 2 goroutines",
	} {
		p50 := int64(9e6)
		g := report.Group{
			ID: "g", Name: "main.serve", Named: true, Kind: report.KindLoop, Count: 500, TotalNS: 5e9,
			Bands: []report.Band{{Band: report.BandAll, Count: 500, Causes: []report.Cause{
				{Cause: report.CauseNetwork, Kind: "outbound", Site: site(52), Share: 1, TotalNS: 5e9, Requests: 500},
			}}},
			Backlog: &report.Backlog{
				Site: site(28), Consumers: 2, Messages: 500, TotalNS: report.Latency{P50: &p50},
				Slow: report.BacklogBand{Band: report.Band9099, FromNS: 20e6, ToNS: 50e6, Count: 45, WaitNS: waitNS, HandlingNS: 10e6},
			},
		}
		r := &report.Report{Groups: []report.Group{g}, Findings: []report.Finding{{
			Severity: report.SeverityMedium, Cause: report.CauseNetwork, Site: site(52), Group: "g",
			Queue: &report.Queue{For: BacklogName(g.Backlog), Waits: []report.Via{}},
		}}}
		v := Verdicts(r)[0]
		if !strings.Contains(v.Text, "From p90 to p99, messages of main.serve (20.0ms to 50.0ms from arrival to done, median of all 9.00ms)") || !strings.Contains(v.Text, want) {
			t.Errorf("got %s\nwant %s", v.Text, want)
		}
		if isSmall := waitNS < 10e6; isSmall != strings.Contains(v.Text, "about 33% of the time and not about the largest part") {
			t.Errorf("got %s", v.Text)
		}
	}
}
