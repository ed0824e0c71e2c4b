package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestReuseAdvice: database/sql keeps 2 idle connections unless set, which is too few only where more are in use at once, and the service
// does not close the pools.
func TestReuseAdvice(t *testing.T) {
	for underWayNS, want := range map[int64]string{400e6: "check SetConnMaxLifetime", 4e9: "raise SetMaxIdleConns"} {
		in := &Input{Report: &report.Report{Input: report.Input{DurationNS: 1e9}, Groups: []report.Group{{TotalNS: underWayNS / 4}, {TotalNS: underWayNS * 3 / 4}}}}
		advice := in.reuseAdviceOf(stdPool("database/sql.(*DB).conn"))
		check.True(t, strings.HasPrefix(advice, want), "%d ns of requests in one second: %s", underWayNS, advice)
		in.HasFunction = func(prefix string) bool { return prefix == "database/sql.(*DB).Close" }
		advice = in.reuseAdviceOf(stdPool("database/sql.(*DB).conn"))
		check.True(t, strings.HasPrefix(advice, "keep one sql.DB open for each database"), "closed pools: %s", advice)
	}
}

// TestWaitsBehindHandshakes: the waits for a P while other requests compute in their handshakes go away with the openings. The finding
// about these comes first, and the one about the waits is low. It does not hold if something else runs.
func TestWaitsBehindHandshakes(t *testing.T) {
	for _, c := range []struct {
		occupant    string
		severity    report.Severity // of the finding about the waits
		changeCount int
	}{{"crypto/tls.(*Conn).HandshakeContext", report.SeverityLow, 2}, {"main.count", report.SeverityHigh, 1}} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Call: "net.(*conn).Read", Site: site("ask@5"), TotalNS: ms(900), Requests: 100},
			report.Cause{Cause: report.CauseSched, Site: site("ask@5"), TotalNS: ms(700), RanMeanwhile: []report.Share{{Site: siteOf(c.occupant), Share: 1}}})
		calls := queues.PeerCalls{Site: site("ask@5"), Requests: 100, Calls: 100, AnswerNS: ms(900), TotalNS: ms(900), ConnOpenNS: ms(800), ConnOpenRequests: 100, ConnOpenFunc: "net/http.(*Transport).getConn"}
		input := &Input{Report: rep, Process: &process.Stats{Procs: 2, SpanNS: 1e9, BusyNS: 2e9}, PeerCalls: map[string][]queues.PeerCalls{rep.Groups[0].ID: {calls}}}
		findings := findAll(t, input, rulesByCode(report.RuleSlowPeer, report.RulePsTaken))
		check.True(t, len(findings) == 2 && findings[0].Code == report.RuleSlowPeer && len(findings[0].Changes) == c.changeCount && findings[1].Severity == c.severity, "%s: %+v", c.occupant, findings)
	}
}

// TestMergeReuses: two lines open connections of one pool, which one option keeps open: that is one finding. Other advice, or a change that
// each line needs for itself, is not.
func TestMergeReuses(t *testing.T) {
	verdictAt := func(fn, fix string, change predict.Change) Verdict {
		return Verdict{Gain: Gain{All: Loss{Share: 0.2, NS: 5e6}}, Changes: []predict.Change{change}, Finding: report.Finding{Title: "requests open connections", Fix: fix, Site: siteOf(fn), Group: "g", Share: 0.2}}
	}
	got := mergeReuses(&Input{}, []Verdict{
		verdictAt("main.visits", "check it", predict.Reuse("main.visits")), verdictAt("main.member", "check it", predict.Reuse("main.member")),
		verdictAt("main.other", "raise it", predict.Reuse("main.other")), verdictAt("main.calls", "check it", predict.Calls("main.calls", 1)),
	})
	check.Equal(t, len(got), 3, "verdicts")
	check.True(t, strings.HasSuffix(got[0].Title, ", and at main.member (x.go:7)") && got[0].Gain.All == Loss{Share: 0.4, NS: 10e6} && got[0].Share == 0.4 && len(got[0].Changes) == 2, "%+v", got[0])
}

// TestFreshConnections: hardly any time is for opening connections, but each call opens one, and its peer may set up a session for it.
func TestFreshConnections(t *testing.T) {
	for openers, want := range map[int64]report.Severity{90: report.SeverityMedium, 70: report.SeverityLow} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: siteOf("main.ask"), TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		calls := queues.PeerCalls{Site: siteOf("main.ask"), Requests: 100, Calls: 100, TotalCalls: 100, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 2e9, ConnOpenNS: 2e7, ConnOpenRequests: openers}
		got := findWithBounds(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {calls}}}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == want && got[0].InService == strings.HasPrefix(got[0].Title, "requests open a connection for each call"), "%d: %+v", openers, got)
	}
}
