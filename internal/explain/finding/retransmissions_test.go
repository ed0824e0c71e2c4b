package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestRemoteNames checks that the other end is named whichever end retransmitted, and that no network is reported
// between two ends on this host.
func TestRemoteNames(t *testing.T) {
	for _, c := range []struct {
		sockets []string
		names   string
		isLocal bool
	}{
		{[]string{"10.0.0.1:40000 -> 10.0.0.2:5432"}, "to 10.0.0.2:5432", false},
		{[]string{"10.0.0.1:40000 <- 10.0.0.2:5432"}, "from 10.0.0.2:5432", false},
		{[]string{"127.0.0.1:40000 -> 127.0.0.1:5432", "[::1]:4 -> [::1]:6379"}, "to 127.0.0.1:5432 and to [::1]:6379", true},
		{[]string{"127.0.0.1:40000 -> 127.0.0.1:5432", "10.0.0.1:4 -> 10.0.0.3:6379"}, "to 127.0.0.1:5432 and to 10.0.0.3:6379", false},
		{nil, "of its peers", false},
	} {
		waits := []*report.HostWait{{Sockets: c.sockets}}
		if names, isLocal := remoteNames(waits), areOnThisHost(waits); names != c.names || isLocal != c.isLocal {
			t.Errorf("%s: %q, on this host %v", strings.Join(c.sockets, ", "), names, isLocal)
		}
	}
}

// TestLossIsNotThePeers checks that the time until a retransmission is not the peer's, but only if answers follow
// right after it more often than by chance. A slow peer keeps its finding if the network loses other segments.
func TestLossIsNotThePeers(t *testing.T) {
	for _, c := range []struct {
		name            string
		retransmitTimes [3]int64 // after the start of a wait; each takes 207 ms
		verdict         report.NetworkVerdict
		peer, losses    report.Severity
	}{
		{"retransmitted, then answered", [3]int64{205e6, 203e6, 207e6}, report.NetworkLost, "", report.SeverityHigh},
		{"retransmitted at any time", [3]int64{40e6, 150e6, 100e6}, report.NetworkLost, report.SeverityHigh, report.SeverityHigh},
		{"nothing retransmitted", [3]int64{}, report.NetworkCleared, report.SeverityHigh, ""},
	} {
		site := siteOf("http2.readFrameHeader")
		g := report.Group{ID: "a", Name: "main.txn", Count: 1000, TotalNS: 50e9, Bands: []report.Band{}}
		for _, b := range []report.BandName{report.BandAll, report.Band99} {
			n, ns := 1000, int64(50e9)
			if b == report.Band99 {
				n, ns = 10, 2.07e9
			}
			g.Bands = append(g.Bands, report.Band{Band: b, Count: n, Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: site, TotalNS: ns, Share: 1, Requests: n}}})
		}
		h := &report.Host{IntervalNS: 20e6, ToNS: 4e9, Network: report.HostNetwork{Verdict: c.verdict}}
		for i, delay := range c.retransmitTimes {
			id := string(rune('x' + i))
			g.Slowest = append(g.Slowest, report.Request{ID: id, LatencyNS: 208e6, Segments: []report.Segment{{Cause: report.CauseNetwork, Kind: "outbound", StartNS: int64(i) * 1e9, DurationNS: 207e6, Site: site}}})
			if delay > 0 {
				h.Network.Retransmitted += 14
				h.Network.Requests = append(h.Network.Requests, report.HostWait{Group: "a", Request: id, StartNS: int64(i) * 1e9, DurationNS: 207e6, Site: site, Retransmitted: 2, AgainNS: delay, Sockets: []string{"10.0.0.1:4 -> 10.0.0.2:5"}})
			}
		}
		got := map[report.RuleCode]report.Severity{}
		for _, f := range findWithBounds(t, &Input{Report: &report.Report{Groups: []report.Group{g}, Host: h}}, rulesByCode(report.RuleSlowPeer, report.RuleRetransmissions)) {
			if f.Severity != report.SeverityLow {
				got[f.Code] = f.Severity
			}
		}
		check.True(t, got["WL2005"] == c.peer && got["WL2008"] == c.losses, "%s: %v", c.name, got)
	}
}

// TestAffectedShare checks the share of slow requests that met a retransmission: requests are counted and not waits,
// and the share is at most 1.
func TestAffectedShare(t *testing.T) {
	for _, c := range []struct {
		requests []string
		want     float64
	}{
		{[]string{"a", "a"}, 0.25}, {[]string{"a", "b"}, 0.5}, {[]string{"a", "b", "c", "d", "gone"}, 1},
	} {
		g := report.Group{ID: "g", Name: "main.txn", Count: 4, TotalNS: 4e9, Slowest: make([]report.Request, 4)}
		cause := []report.Cause{{Cause: report.CauseNetwork, TotalNS: 4e9, Share: 1, Requests: 4}}
		g.Bands = []report.Band{{Band: report.BandAll, Count: 4, Causes: cause}, {Band: report.Band99, Count: 4, Causes: cause}}
		h := &report.Host{IntervalNS: 1e6, ToNS: 10e9, Network: report.HostNetwork{Verdict: report.NetworkLost, Retransmitted: 100}}
		for _, id := range c.requests {
			h.Network.Requests = append(h.Network.Requests, report.HostWait{Group: "g", Request: id, DurationNS: 1e9, Retransmitted: 1})
		}
		vs := rulesByCode(report.RuleRetransmissions)[0].Run(&Input{Report: &report.Report{Groups: []report.Group{g}, Host: h}})
		must.Equal(t, len(vs), 1, "%v: verdicts", c.requests)
		lines := func(sockets ...report.HostSocket) int {
			h.Network.Sockets = sockets
			vs := rulesByCode(report.RuleRetransmissions)[0].Run(&Input{Report: &report.Report{Groups: []report.Group{g}, Host: h}})
			return len(vs[0].Finding.Evidence)
		}
		with, without := report.HostSocket{Local: "a", Remote: "b", Retransmitted: 1}, report.HostSocket{Local: "a", Remote: "b"}
		check.True(t, lines(with, without, with) == lines()+1 && lines(with, with, with, with) == lines()+3, "sockets in %d lines", lines(with, with, with, with))
		i := slices.IndexFunc(vs[0].Finding.Evidence, func(e report.Evidence) bool { return e.Text == "share of the 4 slowest requests that met it" })
		check.True(t, i >= 0 && vs[0].Finding.Evidence[i].Value == c.want && vs[0].Gain.Slow.Share <= c.want,
			"%v: %+v, %v of slow requests", c.requests, vs[0].Finding.Evidence, vs[0].Gain.Slow.Share)
	}
}

// TestLossMakesWaitsLonger: four waits of 25 ms met no retransmission, a fifth of this or another length did. It fails if a wait that is as long
// as the others is said to be that of a lost segment.
func TestLossMakesWaitsLonger(t *testing.T) {
	for durationNS, want := range map[int64]int{24e6: 0, 37e6: 0, 230e6: 1} {
		site := siteOf("main.receive")
		cause := []report.Cause{{Cause: report.CauseNetwork, Site: site, TotalNS: 4e9, Share: 1, Requests: 1}}
		g := report.Group{ID: "g", Count: 4, TotalNS: 4e9, Bands: []report.Band{{Band: report.BandAll, Count: 4, Causes: cause}, {Band: report.Band99, Count: 4, Causes: cause}}}
		for i := range int64(4) {
			g.Slowest = append(g.Slowest, report.Request{Segments: []report.Segment{{Cause: report.CauseNetwork, Site: site, StartNS: i * 1e9, DurationNS: 25e6}}})
		}
		g.Slowest = append(g.Slowest, report.Request{ID: "r", Segments: []report.Segment{{Cause: report.CauseNetwork, Site: site, StartNS: 5e9, DurationNS: durationNS}}})
		h := &report.Host{IntervalNS: 1e6, ToNS: 10e9, Network: report.HostNetwork{Verdict: report.NetworkLost, Retransmitted: 1, Requests: []report.HostWait{{Group: "g", Request: "r", StartNS: 5e9, DurationNS: durationNS, Site: site}}}}
		verdicts := checkRetransmissions(&Input{Report: &report.Report{Groups: []report.Group{g}, Host: h}}, &g)
		check.Equal(t, len(verdicts), want, "verdicts on a wait of %d ns", durationNS)
	}
}
