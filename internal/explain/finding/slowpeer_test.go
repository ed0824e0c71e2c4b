package finding

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestOwnPeer checks that the finding names the group of this process that answers and its largest cause, and leaves
// the fault to that group. If the network takes most of the wait, or the peer is uncertain, the fault stays here.
func TestOwnPeer(t *testing.T) {
	site := func(f string) *report.Site { return &report.Site{Func: f, File: "/src/main.go", Line: 7} }
	for _, c := range []struct {
		name string
		peer *report.Peer
		want report.Severity
		fix  string
	}{
		{"another process", nil, report.SeverityLow, "ask the owner of the peer that main.go:7 calls (whylate record shows its address) why its answers take so long"},
		{"this process, which took most of the wait", &report.Peer{Group: "b", Name: "main.put", Waits: 100, Held: 98, WaitNS: 20e6, ServedNS: 15e6, Confidence: 0.95}, report.SeverityInfo, "look at main.put in this report: 90% of its slow requests' time is syscall at main.sync"},
		{"this process, but the network took most", &report.Peer{Group: "b", Name: "main.put", Waits: 100, Held: 98, WaitNS: 20e6, ServedNS: 1e6, Confidence: 0.95}, report.SeverityHigh, "served for 1ms of the 20ms"},
		{"perhaps this process", &report.Peer{Group: "b", Name: "main.put", Waits: 500, Held: 490, WaitNS: 20e6, ServedNS: 15e6, Confidence: 0.6}, report.SeverityLow, "ask the owner of the peer that main.go:7 calls (whylate record shows its address) why its answers take so long (19.8ms); or ask for several things at once, or in parallel. The process's sockets show whether the peer is this process itself"},
	} {
		band := func(name report.CauseName, location *report.Site, share float64) []report.Band {
			return []report.Band{{Band: report.BandAll, Count: 100, Causes: []report.Cause{{Cause: name, Kind: "outbound", Site: location, TotalNS: int64(share * 2.2e9), Share: share, Requests: 100}}}}
		}
		r := &report.Report{Groups: []report.Group{
			{ID: "a", Name: "main.gateway", Count: 100, TotalNS: 2.2e9, Bands: band("network", site("main.(*client).call"), 0.9), Peer: c.peer},
			{ID: "b", Name: "main.put", Count: 100, TotalNS: 1.6e9, Bands: band("syscall", site("main.sync"), 0.9)},
		}}
		got := findWithBounds(t, &Input{Report: r}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == c.want && strings.Contains(got[0].Fix, c.fix), "%s: %+v", c.name, got)
	}
}

// TestBlockedSender: a request that waits for a goroutine that cannot hand over a message needs another receiver, not another peer. One that
// itself cannot hand over a message queues for the receiver. A goroutine that cannot hand over to one that writes keeps the messages of all.
func TestBlockedSender(t *testing.T) {
	for _, c := range []struct {
		call  string
		waits []report.WaitKind
		title string
	}{
		{"", []report.WaitKind{report.WaitSelect, report.WaitChanSend, report.WaitSelect}, "requests wait behind messages that main.wait1 (x.go:7) cannot hand over: their receiver waits for a peer's answer at main.call"},
		{"", []report.WaitKind{report.WaitChanSend, report.WaitSelect}, "requests wait for a peer's answer"},
		{"net.(*conn).Write", []report.WaitKind{report.WaitChanSend, report.WaitSelect}, "requests wait behind messages that main.wait1 (x.go:7) cannot hand over: their receiver waits for a peer to read what is sent at main.call"},
		{"net.(*conn).Write", []report.WaitKind{report.WaitChanSend, report.WaitCond}, "requests wait for a peer to read what is sent"},
		{"net.(*conn).Write", []report.WaitKind{report.WaitSelect}, "requests wait for a peer to read what is sent"},
	} {
		var via []report.Via
		for i, wait := range c.waits {
			via = append(via, report.Via{Wait: wait, Site: siteOf(fmt.Sprintf("main.wait%d", i))})
		}
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.rate", Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: c.call, Site: siteOf("main.call"), Via: via, TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		got := findAll(t, &Input{Report: r}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Title, c.title), "%v: %+v", c.waits, got)
	}
}

// TestSharedReader: calls whose answers come in order on one connection queue there, if the service itself or a library with advice about
// it reads them. What a loop of this process answers, one message at a time, waits for that loop.
func TestSharedReader(t *testing.T) {
	broker := siteOf("dep.org/nats.(*Conn).read")
	broker.Module = "dep.org/nats"
	for _, c := range []struct {
		name       string
		site       *report.Site
		aheadShare float64
		goroutines int
		title, fix string
	}{
		{"the service's reader", siteOf("main.(*client).read"), 0.8, 0, "queue on one connection, which answers in the order of the calls", "use several connections"},
		{"little of the time", siteOf("main.(*client).read"), 0.1, 0, "wait for a peer's answer", "ask the owner"},
		{"a library's reader", broker, 0.8, 0, "wait for a peer's answer", "ask the owner"},
		{"an own loop", broker, 0.8, 1, "wait for answers of this process's own main.post, which works on one message at a time, 5ms each", "hand each message to another goroutine"},
		{"an own loop of 16 goroutines", broker, 0.8, 16, "wait for answers of this process's own main.post", "let the 16 goroutines of main.post work at the same time"},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.convert", Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Site: c.site, TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		service := queues.ServiceStats{Cause: "network", Site: c.site, AheadShare: c.aheadShare}
		if c.goroutines > 0 {
			service.Worker = &queues.OwnWorker{Name: "main.post", Goroutines: c.goroutines, MeanNS: 5e6, AnswerShare: 0.95}
		}
		in := &Input{Report: r, Services: []queues.ServiceStats{service}}
		if c.goroutines == 1 {
			// A loop that is proven to answer needs no suspicion.
			in.MessageLoops = []MessageLoop{{Name: "main.post", StartFunc: "dep.org/nats.(*Conn).deliver", Count: 100, MeanNS: 5e6}}
			in.Predict = func(string, []predict.Change) *report.Predicted {
				return &report.Predicted{P50NS: report.Estimate{Est: 1e6, Low: 1e6, High: 2e6}, P99NS: report.Estimate{Est: 2e6, Low: 1e6, High: 3e6}}
			}
			service.Worker.MaxNS = 8e6
		}
		got := findAll(t, in, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && strings.Contains(got[0].Title, c.title) && strings.Contains(got[0].Fix, c.fix), "%s: %+v", c.name, got)
		if c.goroutines == 1 {
			p := got[0].Predicted
			check.True(t, p.P50NS == report.Estimate{Est: 6e6, Low: 6e6, High: 7e6} && p.P99NS == report.Estimate{Est: 7e6, Low: 6e6, High: 11e6}, "%s: %+v", c.name, p)
		}
	}
}

// TestTimeLimit: calls that end when a peer has something, or after a time that the service chose, are no fault. A peer that takes as long
// for each answer, and one that gives up while others answer at once, are not like that.
func TestTimeLimit(t *testing.T) {
	for _, c := range []struct {
		name      string
		limitNS   int64
		histogram [][2]int64
		severity  report.Severity
	}{
		{"a blocking call", 2e9, [][2]int64{{5e6, 20}, {5e8, 10}, {1.5e9, 10}, {2e9, 60}}, report.SeverityInfo},
		{"a limit that nobody would notice", 2e8, [][2]int64{{5e5, 20}, {5e7, 10}, {1.5e8, 10}, {2e8, 60}}, report.SeverityLow},
		{"answers that take as long", 2e9, [][2]int64{{2e9, 100}}, report.SeverityLow},
		{"a peer that gives up", 2e9, [][2]int64{{5e6, 40}, {2e9, 60}}, report.SeverityLow},
	} {
		r := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: siteOf("main.next"), TotalNS: 50 * c.limitNS})
		p90, most := c.limitNS-c.limitNS/1000, c.limitNS
		r.Groups[0].LatencyNS.P90, r.Groups[0].LatencyNS.Max, r.Groups[0].Histogram = &p90, &most, c.histogram
		got := findAll(t, &Input{Report: r}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == c.severity && strings.Contains(got[0].Title, "until a peer has something for them or 2s have passed") == (c.severity == report.SeverityInfo), "%s: %+v", c.name, got)
	}
}

// TestBlockingCall: a call that waits for what may come later is as intended, unless the requests first ask the same peer for something.
func TestBlockingCall(t *testing.T) {
	site := &report.Site{Func: "dep.org/redis.read", File: "read.go", Line: 9, Module: "dep.org/redis", CalledFrom: &report.Caller{Func: "main.next", File: "main.go", Line: 5}}
	push := &report.Site{Func: "dep.org/redis.read", File: "read.go", Line: 9, Module: "dep.org/redis", CalledFrom: &report.Caller{Func: "main.push", File: "main.go", Line: 3}}
	for _, c := range []struct {
		name     string
		calls    []queues.PeerCalls
		periodNS int64
		severity report.Severity
		title    string
	}{
		{"a long poll", nil, 0, report.SeverityInfo, "until a peer has something for them"},
		{"a few also ask", []queues.PeerCalls{{Site: push, Requests: 20, Calls: 20}}, 0, report.SeverityInfo, "until a peer has something for them"},
		{"a result of what is asked before", []queues.PeerCalls{{Site: push, Requests: 100, Calls: 100}}, 0, report.SeverityLow, "for a message, which a peer sends when it has one"},
		{"results that a poller makes", []queues.PeerCalls{{Site: push, Requests: 100, Calls: 100}}, 1e9, report.SeverityHigh, "for messages that come only every 1s"},
		{"events at ticks", nil, 1e9, report.SeverityInfo, "until a peer has something for them"},
	} {
		in := &Input{Report: oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site, TotalNS: 100e9})}
		calls := append(c.calls, queues.PeerCalls{Site: site, Requests: 100, Calls: 100, BlockingNS: 100e9, AnswerNS: 100e9, TotalNS: 100e9, TickPeriodNS: c.periodNS})
		in.PeerCalls = map[string][]queues.PeerCalls{in.Report.Groups[0].ID: calls}
		got := findAll(t, in, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == c.severity && strings.Contains(got[0].Title, c.title), "%s: %+v", c.name, got)
	}
}

// TestFewAnswers: few requests for one answer each show that a peer can be faster only if their times differ.
func TestFewAnswers(t *testing.T) {
	for _, c := range []struct {
		p50, longest int64
		severity     report.Severity
	}{{60e6, 100e6, report.SeverityLow}, {60e6, 300e6, report.SeverityMedium}} {
		r := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: siteOf("main.report"), TotalNS: 8e8, Requests: 10})
		r.Groups[0].Count, r.Groups[0].Bands[0].Count, r.Groups[0].LatencyNS.P50, r.Groups[0].LatencyNS.Max = 10, 10, &c.p50, &c.longest
		got := findAll(t, &Input{Report: r}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == c.severity, "%+v: %+v", c, got)
	}
}

// TestUnreadWrite checks the title of a write that the other end does not read. In a loop that only writes, no request
// waits for it, so it is low.
func TestUnreadWrite(t *testing.T) {
	for _, c := range []struct {
		kind  report.Kind
		call  string
		want  report.Severity
		title string
	}{
		{report.KindHTTP1, "net.(*conn).Write", report.SeverityHigh, "a peer to read what is sent"},
		{report.KindLoop, "net.(*conn).Write", report.SeverityLow, "a peer to read what is sent"},
		{report.KindLoop, "net.(*conn).Read", report.SeverityLow, "a peer's answer"},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.write", Kind: c.kind, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: c.call, Site: siteOf("main.write"), TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		got := findAll(t, &Input{Report: r}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == c.want && strings.Contains(got[0].Title, c.title),
			"%s of %s: %+v", c.call, c.kind, got)
	}
}

// TestReaderRanLate checks that the delay of a goroutine that reads answers is also subtracted from the peer's time,
// because the sender was probably as late. A request on its own goroutine sends before it waits, and a reader without
// delay shows nothing about the sender.
func TestReaderRanLate(t *testing.T) {
	reader, via := siteOf("http2.readFrameHeader"), []report.Via{{Wait: report.WaitSelect, Site: siteOf("main.ask")}}
	causeAt := func(cause report.CauseName, ns int64, via []report.Via) report.Cause {
		c := report.Cause{Cause: cause, Site: reader, TotalNS: ns, Via: via}
		if cause == report.CauseNetwork {
			c.Kind = "outbound"
		}
		return c
	}
	for name, tt := range map[string]struct {
		causes []report.Cause
		want   report.Severity
	}{
		"a reader that is late for as long as it waits": {[]report.Cause{causeAt("network", 6e6, via), causeAt("sched", 3e6, via), causeAt("sched-poll", 4e6, via)}, ""},
		"a reader that is hardly late":                  {[]report.Cause{causeAt("network", 8e6, via), causeAt("sched", 1e5, via)}, report.SeverityLow},
		"the request's own wait":                        {[]report.Cause{causeAt("network", 8e6, nil), causeAt("sched", 6e6, nil)}, report.SeverityLow},
		"other goroutines are late elsewhere":           {[]report.Cause{causeAt("network", 8e6, via), {Cause: "sched", Site: siteOf("main.other"), TotalNS: 6e6, Via: via}}, report.SeverityLow},
	} {
		got := findAll(t, newInput(process.Stats{}, groupWith(tt.causes...)), rulesByCode(report.RuleSlowPeer))
		severity := report.Severity("")
		if len(got) > 0 {
			severity = got[0].Severity
		}
		check.True(t, severity == tt.want, "%s: severity %q, want %q: %+v", name, severity, tt.want, got)
	}
}

// TestCallPatterns checks the advice for sequential, parallel and unanswered calls and for new connections. Parallel
// calls get no advice to run in parallel, and no prediction if no answer is far slower than the others.
func TestCallPatterns(t *testing.T) {
	for _, c := range []struct {
		name  string
		asks  queues.PeerCalls
		want  report.Severity
		title string
		fix   string
	}{
		{"one call", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9}, report.SeverityLow, "wait for a peer's answer", "(whylate record shows its address) why its answers take so long (20ms): each request makes one call here; or keep answers for a while, or check the filter or breaker that should avoid it"},
		{"sequential", queues.PeerCalls{Requests: 100, Calls: 600, AnswerNS: 2e9, LongestNS: 5e8}, report.SeverityHigh, "6 calls one after the other", "ask for several in one call, or make the calls in parallel"},
		{"parallel", queues.PeerCalls{Requests: 100, Calls: 600, AnswerNS: 2e9, LongestNS: 2e9, FanOut: 600, FanOutLastNS: 2e9, FanOutOthersNS: 15e8}, report.SeverityLow, "slowest of 6 calls", "why the slowest answer takes 20ms on average: the calls already run in parallel, and the others take 15ms"},
		{"limited", queues.PeerCalls{Requests: 100, Calls: 400, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 6e8, FanOut: 200, FanOutLastNS: 2e9, FanOutOthersNS: 19e8, FanOutCalls: 800, FanOutNS: 39e8}, report.SeverityHigh, "8 calls on 2 goroutines, each 4 one after the other", "make all 8 calls at the same time: start as many goroutines"},
		{"half at once", queues.PeerCalls{Requests: 100, Calls: 200, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 12e8, FanOut: 400, FanOutLastNS: 2e9, FanOutOthersNS: 19e8, FanOutCalls: 800, FanOutNS: 74e8}, report.SeverityMedium, "8 calls on 4 goroutines, each 2 one after the other", "make all 8 calls at the same time"},
		{"only one makes many", queues.PeerCalls{Requests: 100, Calls: 400, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 6e8, FanOut: 200, FanOutLastNS: 2e9, FanOutOthersNS: 19e8, FanOutCalls: 400, FanOutNS: 2e9}, report.SeverityLow, "slowest of 2 calls", "and the others take 19ms"},
		{"opens connections", queues.PeerCalls{Requests: 100, Calls: 600, AnswerNS: 2e9, LongestNS: 5e8, TotalNS: 2e9, ConnOpenNS: 12e8, ConnOpenRequests: 100, ConnOpenFunc: "database/sql.(*DB).conn"}, report.SeverityHigh, "open connections, then wait for a peer's answer", "raise SetMaxIdleConns"},
		{"closes bodies early", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, TotalNS: 2e9, ConnOpenNS: 12e8, ConnOpenRequests: 100, EarlyCloses: 90, CloseSite: siteOf("main.pick"), ConnOpenFunc: "net/http.(*Transport).getConn"}, report.SeverityHigh, "open connections, then wait for a peer's answer", "read the rest of the answer's body before it is closed at main.pick (x.go:7)"},
		{"closes few bodies early", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, TotalNS: 2e9, ConnOpenNS: 12e8, ConnOpenRequests: 100, EarlyCloses: 10, CloseSite: siteOf("main.pick"), ConnOpenFunc: "net/http.(*Transport).getConn"}, report.SeverityHigh, "open connections, then wait for a peer's answer", "share one Transport that keeps connections alive"},
		{"opens some, parallel", queues.PeerCalls{Requests: 100, Calls: 600, AnswerNS: 2e9, LongestNS: 2e9, FanOut: 600, FanOutLastNS: 2e9, FanOutOthersNS: 15e8, TotalNS: 2e9, ConnOpenNS: 5e8, ConnOpenRequests: 90}, report.SeverityMedium, "open connections, then wait for the slowest of 6 calls", "share one client instead of one for each call"},
		{"few open one", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, TotalNS: 2e9, ConnOpenNS: 12e8, ConnOpenRequests: 40}, report.SeverityLow, "open connections, then", "share one client instead of one for each call"},
		{"opens hardly any", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, TotalNS: 2e9, ConnOpenNS: 3e8, ConnOpenRequests: 100}, report.SeverityLow, "wait for a peer's answer", "(whylate record shows its address) why its answers take so long (20ms): each request makes one call here; or keep answers for a while, or check the filter or breaker that should avoid it"},
		{"checks connections", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 1e9, TotalNS: 2e9, Checks: 100, CheckNS: 1e9, CheckSite: siteOf("main.pool")}, report.SeverityHigh, "check each connection by a call of its own before they use it, at main.ask", "check connections in the background or after a long idle time, not whenever main.pool (x.go:7) needs one"},
		{"checks some connections", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 19e8, TotalNS: 2e9, Checks: 10, CheckNS: 1e8}, report.SeverityLow, "wait for a peer's answer", "should avoid it"},
		{"calls again soon", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, Hedges: queues.Hedges{Requests: 90, Calls: 180, DelayNS: 72e7, AnswerNS: 18e8, Pause: siteOf("main.ask")}}, report.SeverityMedium, "90% of the requests make the same call again after 8ms, though an answer takes 20ms, at main.ask", "raise the delay from 8ms"},
		{"seldom calls again", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, Hedges: queues.Hedges{Requests: 5, Calls: 5, DelayNS: 4e7, AnswerNS: 1e8, Pause: siteOf("main.ask")}}, report.SeverityLow, "wait for a peer's answer", "should avoid it"},
		{"no answer", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, Unanswered: 20, UnansweredNS: 19e8}, report.SeverityHigh, "a peer that does not answer", "make that deadline shorter"},
		{"lost answers", queues.PeerCalls{Requests: 100, Calls: 104, TotalCalls: 104, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 19e8, Unanswered: 4, UnansweredNS: 18e8, Resent: 4}, report.SeverityHigh, "wait 450ms for answers that are lost, and then ask again", "ask again after 20ms instead of 450ms"},
		{"lost answers, soon asked for", queues.PeerCalls{Requests: 100, Calls: 104, TotalCalls: 104, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 19e8, Unanswered: 4, UnansweredNS: 8e8, Resent: 4}, report.SeverityLow, "wait 200ms for answers that are lost, and then ask again", "find out where answers of the peer"},
		{"late answers", queues.PeerCalls{Requests: 100, Calls: 104, TotalCalls: 104, AnswerNS: 2e9, TotalNS: 2e9, LongestNS: 19e8, Unanswered: 4, UnansweredNS: 18e8, Resent: 1}, report.SeverityLow, "wait for a peer's answer", "should avoid it"},
		{"one without an answer", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, Unanswered: 1, UnansweredNS: 19e8}, report.SeverityLow, "wait for a peer's answer", "(whylate record shows its address) why its answers take so long (20ms): each request makes one call here; or keep answers for a while, or check the filter or breaker that should avoid it"},
		{"delayed acknowledgements", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 4e9, LongestNS: 4e9, TotalNS: 4e9, LaterParts: 100, AckDelays: 90, ShortAckDelays: 20, AckDelayNS: 38e8}, report.SeverityHigh, "held back by Nagle's algorithm", "on the peer's side, write head and body"},
		{"pauses of any length", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 4e9, LongestNS: 4e9, TotalNS: 4e9, LaterParts: 100, AckDelays: 40, ShortAckDelays: 20, AckDelayNS: 16e8}, report.SeverityLow, "wait for a peer's answer", "(whylate record shows its address) why its answers take so long (20ms): each request makes one call here; or keep answers for a while, or check the filter or breaker that should avoid it"},
		{"deadlocks", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, Deadlocks: queues.Deadlocks{Count: 3, WaitNS: 125e6, OtherNS: 5e6}, Pause: siteOf("main.retry")}, report.SeverityHigh, "wait for each other's locks at a peer, 125ms until it ends one", "the one that is ended pauses at main.retry (x.go:7) and begins again"},
		{"parallel, one far slower", queues.PeerCalls{Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, FanOut: 600, FanOutLastNS: 2e9, FanOutOthersNS: 1e8}, report.SeverityHigh, "slowest of 6 calls", "find out why that peer is slow"},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: siteOf("main.ask"), TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		c.asks.Site = siteOf("main.ask")
		got := findWithBounds(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {c.asks}}}, rulesByCode(report.RuleSlowPeer))
		if len(got) != 1 || got[0].Severity != c.want || !strings.Contains(got[0].Title, c.title) || !strings.HasPrefix(got[0].Fix, c.fix) && !strings.HasSuffix(got[0].Fix, c.fix) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// TestParallelUntilDeadline: one of several parallel calls is far slower, and a deadline ends some of them, or one at another line.
func TestParallelUntilDeadline(t *testing.T) {
	for line, want := range map[string]report.Severity{"main.ask": report.SeverityLow, "main.tell": report.SeverityHigh} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: siteOf("main.ask"), TotalNS: 2e9, Share: 0.9, Requests: 100},
				{Cause: "sleep", Call: "context.WithDeadlineCause.func2", Site: siteOf(line), TotalNS: 1e8, Requests: 5}}}}}}}
		calls := queues.PeerCalls{Site: siteOf("main.ask"), Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, FanOut: 600, FanOutLastNS: 2e9, FanOutOthersNS: 1e8}
		got := findAll(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {calls}}}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && got[0].Severity == want && strings.HasPrefix(got[0].Fix, "find out why that peer is slow"), "a deadline at %s: %+v", line, got)
	}
}

// TestPrepares: the statements of two lines are prepared before they are executed, and one finding is about both, with the option of the driver.
// A line of which hardly any time is for that has its own finding.
func TestPrepares(t *testing.T) {
	for _, c := range []struct {
		driver      string
		prepareNS   int64 // of the second line
		findings    int
		fix, change string
	}{
		{"github.com/go-sql-driver/mysql.(*mysqlConn).readPacket", 4e8, 1, "in go-sql-driver/mysql: set InterpolateParams",
			"network@github.com/go-sql-driver/mysql.(*mysqlConn).readPacket:7 from main.one:5=50%, network@github.com/go-sql-driver/mysql.(*mysqlConn).readPacket:7 from main.two:5=60%"},
		{"dep.org/driver.(*conn).read", 1e8, 2, "prepare each statement once (sql.Stmt)", "network@dep.org/driver.(*conn).read:7 from main.one:5=50%"},
	} {
		group := report.Group{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100}}}
		var calls []queues.PeerCalls
		for i, caller := range []string{"main.one", "main.two"} {
			site := &report.Site{Func: c.driver, File: "/mod/dep.org/driver@v1.2.0/c.go", Line: 7, Module: "dep.org/driver", CalledFrom: &report.Caller{Func: caller, File: "/src/main.go", Line: 5, Calls: "database/sql.(*DB).QueryContext"}}
			group.Bands[0].Causes = append(group.Bands[0].Causes, report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: site, TotalNS: 1e9, Share: 0.45, Requests: 100})
			calls = append(calls, queues.PeerCalls{Site: site, Requests: 100, Calls: 100, TotalCalls: 200, AnswerNS: 5e8, TotalNS: 1e9, Prepares: 100, PrepareNS: []int64{5e8, c.prepareNS}[i]})
		}
		input := &Input{Report: &report.Report{Groups: []report.Group{group}}, PeerCalls: map[string][]queues.PeerCalls{"a": calls}, Predict: func(_ string, changes []predict.Change) *report.Predicted {
			var texts []string
			for _, change := range changes {
				texts = append(texts, change.String())
			}
			return &report.Predicted{Change: strings.Join(texts, ", ")}
		}}
		got := findAll(t, input, rulesByCode(report.RuleSlowPeer))
		k := slices.IndexFunc(got, func(f report.Finding) bool {
			return strings.Contains(f.Title, "two round trips for each statement, one only to prepare it, at main.one")
		})
		must.True(t, k >= 0 && len(got) == c.findings, "%+v", got)
		check.True(t, strings.HasPrefix(got[k].Fix, c.fix) && got[k].Predicted.Change == c.change, "%+v %+v", got[k], got[k].Predicted)
	}
}

// TestNoPromiseOfAnswers: each request waits for one answer of a peer. A finding has the time of usual answers and of slow ones, and promises no gain
// unless some answers take far longer than the usual ones. What makes them late decides how long they would take.
func TestNoPromiseOfAnswers(t *testing.T) {
	for _, c := range []struct {
		slowNS  int64
		lock    queues.PeerLock
		caller  *report.Site // of slow requests only
		times   string
		promise int64 // what each answer takes; 0: none
	}{
		{22e6, queues.PeerLock{}, nil, "why its answers take so long (20ms): each", 0},
		{30e6, queues.PeerLock{}, nil, "why its answers take so long (20ms, slow ones 30ms): each", 0},
		{200e6, queues.PeerLock{}, nil, "take far longer than the usual 20ms", 20e6},
		{200e6, queues.PeerLock{}, site("fallback@84"), "find out why slow requests make the call at main.fallback (main.go:84), which others do not", 20e6},
		{200e6, queues.PeerLock{Release: siteOf("main.commit"), Waits: 90, Long: 100, AloneNS: 1e6}, nil, "main.commit", 1e6},
	} {
		band := func(name report.BandName, n int, eachNS int64) report.Band {
			return report.Band{Band: name, Count: n, Causes: []report.Cause{{Cause: "network", Kind: "outbound", Site: siteOf("main.ask"), TotalNS: int64(n) * eachNS, Share: 0.9, Requests: n}}}
		}
		bands := []report.Band{band(report.BandAll, 1000, 20e6), band(report.Band5090, 400, 20e6), band(report.Band9099, 90, c.slowNS), band(report.Band99, 10, c.slowNS)}
		in := &Input{Report: &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 1000, TotalNS: 22e9, Bands: bands}}}}
		in.PeerCalls = map[string][]queues.PeerCalls{"a": {{Site: siteOf("main.ask"), Requests: 1000, Calls: 1000, AnswerNS: 20e9, TotalNS: 20e9, LongestNS: 20e9, Lock: c.lock}}}
		in.CallCounts = map[string][]queues.CallCounts{"a": {{File: siteOf("main.ask").File, Line: siteOf("main.ask").Line, SlowCaller: c.caller}}}
		in.Predict = func(_ string, changes []predict.Change) *report.Predicted {
			return &report.Predicted{P50NS: report.Estimate{Est: int64(changes[0].To)}, P99NS: report.Estimate{Est: int64(changes[0].To)}}
		}
		got := findAll(t, in, rulesByCode(report.RuleSlowPeer))
		must.True(t, len(got) == 1 && strings.Contains(got[0].Fix, c.times) && len(got[0].Changes) == 1, "slow answers of %d ns: %+v", c.slowNS, got)
		if p := got[0].Predicted; (p != nil) != (c.promise > 0) || p != nil && p.P99NS.Est != c.promise {
			t.Errorf("slow answers of %d ns: %+v, %+v", c.slowNS, got, p)
		}
	}
}

// TestOwnTimes: a peer's slow answers that are the tail of its usual ones are no more than medium, and the advice says so. Those that a gap
// separates, or that are late together, are high.
func TestOwnTimes(t *testing.T) {
	for _, c := range []struct {
		name    string
		gap     int // in steps of 10 %
		moments map[string]int
		isOwn   bool
	}{{"a tail", 0, nil, true}, {"separate moments", 0, map[string]int{"g": 30}, true}, {"a gap", 5, nil, false}, {"late together", 0, map[string]int{"g": 3}, false}} {
		rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: site("ask@5"), TotalNS: ms(4000)})
		g := &rep.Groups[0]
		g.Bands = append(g.Bands, report.Band{Band: report.Band9099, Count: 30, Causes: []report.Cause{{Cause: "network", Kind: "outbound", Site: site("ask@5"), TotalNS: ms(6000), Share: 1, Requests: 30}}}, report.Band{Band: report.BandOutliers, Count: 30})
		latencyNS := 20e6
		for i := range 50 {
			if latencyNS *= 1.1; i == 40 {
				latencyNS *= math.Pow(1.1, float64(c.gap))
			}
			g.Histogram = append(g.Histogram, [2]int64{int64(latencyNS), 2})
		}
		got := findAll(t, &Input{Report: rep, OutlierMoments: c.moments}, rulesByCode(report.RuleSlowPeer))
		must.True(t, len(got) == 1, "%s: %+v", c.name, got)
		check.True(t, (got[0].Severity == report.SeverityMedium) == c.isOwn && (got[0].Severity == report.SeverityHigh) != c.isOwn && strings.Contains(got[0].Remedy, "that is the peer's own time") == c.isOwn, "%s: %+v", c.name, got[0])
	}
}

// TestSeveralCalls: different calls over HTTP through one function, one after the other. A database's statements depend on each other,
// unless several come from one line: then perhaps only these can be sent at the same time.
func TestSeveralCalls(t *testing.T) {
	for _, c := range []struct {
		call              string
		calls, totalCalls int64
		answerNS          int64 // of the calls with one stack
		severity          report.Severity
		title             string
	}{
		{"net/http.(*persistConn).roundTrip", 100, 299, 7e8, report.SeverityLow, "3 calls one after the other through main.fetch"},
		{"net/http.(*persistConn).roundTrip", 100, 200, 1e9, report.SeverityLow, "wait for a peer's answer"},
		{"net/http.(*persistConn).roundTrip", 100, 300, 18e8, report.SeverityLow, "wait for a peer's answer"}, // the others take hardly any time
		{"net.(*conn).Read", 100, 300, 7e8, report.SeverityLow, "wait for a peer's answer"},
		{"net.(*conn).Read", 400, 1100, 7e8, report.SeverityHigh, "11 calls one after the other through main.fetch"},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: c.call, Site: siteOf("main.fetch"), TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		calls := queues.PeerCalls{Site: siteOf("main.fetch"), Requests: 100, Calls: c.calls, TotalCalls: c.totalCalls, AnswerNS: c.answerNS, LongestNS: 3e8, LongestOfStacksNS: 1e9, TotalNS: 2e9,
			Callers: []*report.Site{siteOf("main.page"), siteOf("main.item")}}
		got := findWithBounds(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {calls}}}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && strings.Contains(got[0].Title, c.title) && got[0].Severity == c.severity && !strings.Contains(got[0].Fix, "makes one call here"), "%+v: %+v", c, got)
	}
}

// TestCallsThroughParser: one line makes all calls, whose answers a library's reader reads at several lines of its parser. The change is one
// call, with all that belongs to it, in place of all.
func TestCallsThroughParser(t *testing.T) {
	wait, parser := inModule("github.com/go-ldap/ldap/v3.(*Conn).Search@9", "github.com/go-ldap/ldap/v3"), inModule("github.com/go-asn1-ber/asn1-ber.readByte@7", "github.com/go-asn1-ber/asn1-ber")
	parser.CalledFrom = &report.Caller{Func: "main.search", File: "/src/main.go", Line: 43, OtherGoroutine: true}
	rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: parser, TotalNS: ms(3000), Requests: 100, Via: []report.Via{{Wait: report.WaitSelect, Site: wait}}})
	calls := queues.PeerCalls{Site: parser, Via: wait, Requests: 100, Calls: 900, TotalCalls: 2500, AnswerNS: ms(1000), LongestNS: ms(200), LongestOfStacksNS: ms(400), TotalNS: ms(3000)}
	findings := findAll(t, &Input{Report: rep, PeerCalls: map[string][]queues.PeerCalls{rep.Groups[0].ID: {calls}}}, rulesByCode(report.RuleSlowPeer))
	check.True(t, len(findings) == 1 && strings.HasSuffix(findings[0].Title, "make 25 calls one after the other at main.search (main.go:43)") && strings.HasPrefix(findings[0].Fix, "in go-ldap: search once") &&
		len(findings[0].Changes) == 1 && findings[0].Changes[0].Text == "main.search:43=4%", "%+v", findings)
}

// TestSequenceAdvice: several calls below a function of package io are pieces of one thing. Some libraries have advice for calls in turn
// only, of which none is about a single call.
func TestSequenceAdvice(t *testing.T) {
	for _, c := range []struct{ function, calls, seriesFix, singleFix string }{
		{"dep.org/remote.(*File).Read", "io.ReadAll", "ask for larger pieces than io.ReadAll does", "ask the owner of the peer"},
		{"dep.org/remote.(*File).Stat", "dep.org/remote.(*File).Stat", "ask for several in one call", "ask the owner of the peer"},
		{"github.com/pkg/sftp.(*clientConn).sendPacket", "io.ReadAll", "in pkg/sftp: read a file with its WriteTo", "ask the owner of the peer"},
		{"github.com/miekg/dns.(*Conn).Read", "github.com/miekg/dns.(*Client).Exchange", "in miekg/dns: ask only for the absolute name", "ask the owner of the peer"},
		{"github.com/redis/go-redis/v9/internal/proto.(*Reader).ReadLine", "github.com/redis/go-redis/v9.cmdable.Get", "in go-redis: send several commands at once", "in go-redis: check what the server is slow at"},
	} {
		for i, fix := range []string{c.singleFix, c.seriesFix} {
			n := int64(1 + 5*i)
			asks := &report.Site{Func: c.function, File: "x.go", Line: 7, Module: "dep.org/x", CalledFrom: &report.Caller{Func: "main.load", File: "/src/main.go", Line: 5, Calls: c.calls}}
			r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
				Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: asks, TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
			calls := queues.PeerCalls{Site: asks, Requests: 100, Calls: 100 * n, AnswerNS: 2e9, LongestNS: 2e9 / n}
			got := findWithBounds(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {calls}}}, rulesByCode(report.RuleSlowPeer))
			check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, fix), "%d calls at %s: %+v", n, c.function, got)
		}
	}
}

// TestUnansweredOpening: an address or a name server does not answer. The advice must not be to keep connections or addresses alone.
func TestUnansweredOpening(t *testing.T) {
	for _, c := range [][2]string{{"net.(*Dialer).DialContext", "stop calling a peer that did not answer"}, {"net.(*Resolver).lookupIPAddr", "the name server that does not answer"}} {
		call, want := c[0], c[1]
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: call, Site: siteOf("main.ask"), TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		calls := queues.PeerCalls{Site: siteOf("main.ask"), Requests: 100, Calls: 100, AnswerNS: 2e9, LongestNS: 2e9, Unanswered: 20, UnansweredNS: 19e8}
		got := findWithBounds(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {calls}}}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && strings.Contains(got[0].Fix, want), "%s: %+v", call, got)
	}
}

// TestPeerSetUp: each request calls a constructor of a library, which asks a peer, and the new object asks again at its first use. That is
// one finding. It is none if few requests do so, or if the function's name shows that each request may need its own.
func TestPeerSetUp(t *testing.T) {
	const oidc = "github.com/coreos/go-oidc/v3/oidc."
	from := func(fn, calls string, line int) *report.Site {
		return &report.Site{Func: oidc + fn, Line: line, Module: "github.com/coreos/go-oidc/v3", CalledFrom: &report.Caller{Func: "main.login", File: "/src/main.go", Line: line, Calls: oidc + calls}}
	}
	for _, c := range []struct {
		constructor string
		requests    int
		isSetUp     bool
	}{{"NewProvider", 100, true}, {"NewProvider", 15, false}, {"NewReader", 100, false}} {
		g := report.Group{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100}}}
		for _, s := range []*report.Site{from("doRequest", c.constructor, 57), from("(*RemoteKeySet).keysFromRemote", "(*IDTokenVerifier).Verify", 91)} {
			g.Bands[0].Causes = append(g.Bands[0].Causes, report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: s, TotalNS: 1e9, Share: 0.45, Requests: c.requests})
		}
		got := findAll(t, &Input{Report: &report.Report{Groups: []report.Group{g}}}, rulesByCode(report.RuleSlowPeer))
		if !c.isSetUp {
			check.True(t, len(got) == 2 && !strings.Contains(got[0].Title, "set-up"), "%+v: %+v", c, got)
			continue
		}
		check.True(t, len(got) == 1 && got[0].Severity == report.SeverityHigh && got[0].Share == 0.9 && strings.Contains(got[0].Title, "oidc.NewProvider asks a peer for it, at main.login (main.go:57)"), "%+v: %+v", c, got)
	}
}

// TestKeysPerRequest: middleware of a library asks for what it could keep, at two of its lines, below no line of the service. The advice is
// that library's, and all of these calls go away.
func TestKeysPerRequest(t *testing.T) {
	const library = "github.com/auth0/go-jwt-middleware/v2"
	wait := func(fn string) report.Route {
		return report.Route{TotalNS: 1e9, Via: []report.Via{{Wait: report.WaitSelect, Call: "net/http.(*persistConn).roundTrip", Site: inModule(library+fn+"@84", library)}}}
	}
	keys, configuration := wait("/jwks.(*Provider).KeyFunc"), wait("/internal/oidc.GetWellKnownEndpointsFromIssuerURL")
	rep := oneGroup(report.Cause{Cause: "network", Kind: "outbound", Call: "bufio.(*Reader).Peek", Site: site("net/http.(*persistConn).readLoop@2330"), Via: keys.Via, Routes: []report.Route{keys, configuration}, TotalNS: 2e9, Requests: 100})
	got := findAll(t, &Input{Report: rep}, rulesByCode(report.RuleSlowPeer))
	check.True(t, len(got) == 1 && got[0].Severity == report.SeverityHigh && len(got[0].Changes) == 2 && strings.HasPrefix(got[0].Fix, "in go-jwt-middleware: use jwks.NewCachingProvider"), "%+v", got)
}

// TestConnectionPerRequest checks that requests which open a gRPC connection each are reported at the line that creates it, with all
// of that time, though hardly any of it is the wait of the finding. If another goroutine created it, they share it already.
func TestConnectionPerRequest(t *testing.T) {
	own := func(line int, fn string) *report.Site {
		return &report.Site{Func: fn, Line: 3, Module: "google.golang.org/grpc", CalledFrom: &report.Caller{Func: "main.ask", File: "/src/main.go", Line: line, Calls: "google.golang.org/grpc.NewClient"}}
	}
	wait := own(9, "google.golang.org/grpc.(*pickerWrapper).pick")
	asks := queues.PeerCalls{Site: siteOf("main.ask"), Requests: 100, Calls: 100, AnswerNS: 3e8, TotalNS: 3e8, ConnOpenNS: 3e7, ConnOpenRequests: 100}
	opens := queues.ConnOpens{Wait: wait, NS: 25e7, Count: 100, TotalNS: 6e8, Requests: 100}
	for _, c := range []struct {
		created   *report.Site
		count     int64
		entry     *report.Site
		isOpening bool
		change    predict.Change
	}{
		{own(4, "google.golang.org/grpc.NewClient"), 100, siteOf("main.page"), true, predict.Reuse("main.page")},
		{own(4, "google.golang.org/grpc.NewClient"), 100, nil, true, predict.Reuse("main.ask")},
		{nil, 100, nil, false, predict.Change{}}, {own(4, "google.golang.org/grpc.NewClient"), 40, nil, false, predict.Change{}},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.page", Entry: c.entry, Kind: report.KindHTTP1, Count: 100, TotalNS: 6e8, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: siteOf("main.ask"), TotalNS: 3e8, Share: 0.5, Requests: 100}}}}}}}
		opens.Site, opens.Count = c.created, c.count
		got := findAll(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {asks}}, ConnOpens: map[string]queues.ConnOpens{"a": opens}}, rulesByCode(report.RuleSlowPeer))
		if len(got) != 1 || (got[0].Severity == report.SeverityHigh && got[0].Site.Line == 4 && strings.Contains(got[0].Fix, "make one ClientConn and share it")) != c.isOpening {
			t.Errorf("%+v: %+v", c, got)
		}
		check.True(t, !c.isOpening || len(got[0].Changes) == 1 && got[0].Changes[0].Text == c.change.String(), "%+v: %+v", c, got[0].Changes)
	}
}

// TestSequentialCallsOfOneCaller checks that calls through one line of a library are counted for each caller: one
// calls sequentially, the other once.
func TestSequentialCallsOfOneCaller(t *testing.T) {
	from := func(line int) *report.Site {
		return &report.Site{Func: "dep.org/db.read", Line: 3, Module: "dep.org/db", CalledFrom: &report.Caller{Func: "main.page", File: "/src/main.go", Line: line, Calls: "dep.org/db.Query"}}
	}
	g := report.Group{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100}}}
	var asks []queues.PeerCalls
	for line, calls := range []int64{600, 100} {
		g.Bands[0].Causes = append(g.Bands[0].Causes, report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: from(line), TotalNS: 1e9, Share: 0.45, Requests: 100})
		asks = append(asks, queues.PeerCalls{Site: from(line), Requests: 100, Calls: calls, AnswerNS: 1e9, LongestNS: 5e8})
	}
	got := findAll(t, &Input{Report: &report.Report{Groups: []report.Group{g}}, PeerCalls: map[string][]queues.PeerCalls{"a": asks}}, rulesByCode(report.RuleSlowPeer))
	must.Equal(t, len(got), 2, "findings: %+v", got)
	for i := range got {
		if inRow := strings.Contains(got[i].Title, "one after the other"); inRow != (got[i].Site.CalledFrom.Line == 0) {
			t.Errorf("from line %d: %s", got[i].Site.CalledFrom.Line, got[i].Title)
		}
	}
}

// TestLinesOfOneLoop: calls at two lines of one function, as many at each or some for each, are one series with one finding, whose changes and
// gain are those of both lines. Lines with other counts, or of another function, have separate findings.
func TestLinesOfOneLoop(t *testing.T) {
	for _, c := range []struct {
		name, otherFunc    string
		otherCalls         int64
		findings, combined int
	}{{"one loop", "main.page", 610, 1, 2}, {"a loop in another", "main.page", 310, 1, 2}, {"other counts", "main.page", 400, 2, 1}, {"another function", "main.total", 600, 2, 1}} {
		g := report.Group{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100}}}
		var calls []queues.PeerCalls
		for i, o := range []queues.PeerCalls{{Calls: 600, AnswerNS: 12e8}, {Calls: c.otherCalls, AnswerNS: 8e8}} {
			o.Site = &report.Site{Func: "dep.org/db.read", Line: 3, Module: "dep.org/db", CalledFrom: &report.Caller{Func: []string{"main.page", c.otherFunc}[i], File: "/src/main.go", Line: 10 + i, Calls: "dep.org/db.Query"}}
			o.Requests, o.TotalNS, o.LongestNS = 100, o.AnswerNS, o.AnswerNS/4
			g.Bands[0].Causes = append(g.Bands[0].Causes, report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: o.Site, TotalNS: o.AnswerNS, Share: float64(o.AnswerNS) / 2.2e9, Requests: 100})
			calls = append(calls, o)
		}
		got := findAll(t, &Input{Report: &report.Report{Groups: []report.Group{g}}, PeerCalls: map[string][]queues.PeerCalls{"a": calls}}, rulesByCode(report.RuleSlowPeer))
		must.Equal(t, len(got), c.findings, "%s: %+v", c.name, got)
		check.Equal(t, len(got[0].Changes), c.combined, "%s", c.name)
		check.Equal(t, strings.Contains(got[0].Title, fmt.Sprintf("%.0f calls one after the other", float64(600+c.otherCalls)/100)), c.combined == 2, "%s: %s", c.name, got[0].Title)
		check.Equal(t, got[0].Share > 0.9, c.combined == 2, "%s: %f", c.name, got[0].Share)
	}
}

// TestSecondAnswer: a wait for one answer is low, however long it is, because an answer takes some time. Where requests also ask another
// peer several times in a row, they need not wait for both, one after the other, and a fifth of their time is worth a change.
func TestSecondAnswer(t *testing.T) {
	const ask, introspect = "main.ask", "main.introspect"
	for _, c := range []struct {
		calls    int64
		secondNS int64
		severity report.Severity
	}{{1000, 8e8, report.SeverityMedium}, {100, 8e8, report.SeverityLow}, {1000, 4e8, report.SeverityLow}} {
		g := report.Group{ID: "a", Name: "main.page", Kind: report.KindHTTP1, Count: 100, TotalNS: 2.4e9, Bands: []report.Band{{Band: report.BandAll, Count: 100}}}
		var asks []queues.PeerCalls
		for i, ns := range []int64{24e8 - c.secondNS, c.secondNS} {
			fn := []string{ask, introspect}[i]
			g.Bands[0].Causes = append(g.Bands[0].Causes, report.Cause{Cause: "network", Kind: "outbound", Call: "net.(*conn).Read", Site: siteOf(fn), TotalNS: ns, Share: float64(ns) / 24e8, Requests: 100})
			calls := queues.PeerCalls{Site: siteOf(fn), Requests: 100, Calls: 100, AnswerNS: ns, TotalNS: ns, LongestNS: ns / 8}
			if fn == ask {
				calls.Calls = c.calls
			}
			asks = append(asks, calls)
		}
		found := findAll(t, &Input{Report: &report.Report{Groups: []report.Group{g}}, PeerCalls: map[string][]queues.PeerCalls{"a": asks}}, rulesByCode(report.RuleSlowPeer))
		i := slices.IndexFunc(found, func(f report.Finding) bool { return f.Site.Func == introspect })
		if must.True(t, i >= 0, "%+v: %+v", c, found); found[i].Severity != c.severity || strings.Contains(found[i].Fix, ask) != (c.severity == report.SeverityMedium) {
			t.Errorf("%+v: %s: %s", c, found[i].Severity, found[i].Fix)
		}
	}
}

// TestAcquireTimeout checks that a wait for a slot until the request's own deadline is a fault of the pool. A deadline
// elsewhere ends another wait.
func TestAcquireTimeout(t *testing.T) {
	for _, c := range []struct {
		fn, call string
		want     string
	}{
		{"golang.org/x/sync/semaphore.(*Weighted).Acquire", "context.WithDeadlineCause.func2", "WL2003 requests wait for a golang.org/x/sync/semaphore until their own deadline"},
		{"main.query", "database/sql.(*DB).conn", "WL2003 requests wait for a connection of a database/sql pool until their own deadline"},
		{"main.ask", "context.WithDeadlineCause.func2", "WL2001 requests wait while their own goroutine waits for a context's deadline"},
	} {
		got := findAll(t, newInput(process.Stats{}, groupWith(report.Cause{Cause: "sleep", Call: c.call, Site: siteOf(c.fn), TotalNS: 20e6})), rulesByCode(report.RulePoolTooSmall, report.RuleSleep))
		check.True(t, len(got) == 1 && strings.HasPrefix(string(got[0].Code)+" "+got[0].Title, c.want), "%s in %s: %+v", c.call, c.fn, got)
	}
}

// TestMaybeCached: of requests that each ask a peer once, more or less than half of all, a cache ran or not. It fails if the advice
// names a cache that is not there, or one that most requests may well find their answer in.
func TestMaybeCached(t *testing.T) {
	line := siteOf("main.ask")
	for name, tt := range map[string]struct {
		function string
		unnamed  int
		isCached bool
	}{
		"a cache":                   {"github.com/coocood/freecache.(*Cache).Get", 0, true},
		"a cache, major version":    {"github.com/dgraph-io/ristretto/v2.(*Cache[...]).SetWithTTL", 0, true},
		"another library":           {"github.com/dgraph-io/badger/v4.(*DB).View", 0, false},
		"a cache that answers most": {"github.com/coocood/freecache.(*Cache).Get", 150, false},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.gateway", Named: true, Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: report.CauseNetwork, Kind: "outbound", Site: line, TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}, {ID: "b", Count: tt.unnamed, TotalNS: 1e6}}}
		got := findAll(t, &Input{
			Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": {{Site: line, Requests: 100, Calls: 100, AnswerNS: 2e9, TotalNS: 2e9}}},
			HasFunction: func(prefix string) bool { return strings.HasPrefix(tt.function, prefix) },
		}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && strings.Contains(got[0].Fix, "should keep these answers, look at its hits: 100% of the requests") == tt.isCached, "%s: %+v", name, got)
	}
}

// TestAdviceForCalls checks that requests which make one call are not advised to make fewer or parallel ones, and that those
// which make a second one elsewhere are.
func TestAdviceForCalls(t *testing.T) {
	line, other := siteOf("main.ask"), siteOf("main.askAnother")
	once := queues.PeerCalls{Site: line, Requests: 100, Calls: 100, AnswerNS: 2e9, TotalNS: 2e9}
	for name, tt := range map[string]struct {
		calls []queues.PeerCalls
		want  string
	}{
		"unknown calls":                  {nil, "why its answers take so long (20ms); or ask for several things at once"},
		"one call":                       {[]queues.PeerCalls{once}, "why its answers take so long (20ms): each request makes one call here"},
		"one call, and a call elsewhere": {[]queues.PeerCalls{once, {Site: other, Requests: 100, Calls: 100, AnswerNS: 1e9, TotalNS: 1e9}}, "in parallel"},
		"two calls with two stacks":      {[]queues.PeerCalls{{Site: line, Requests: 100, Calls: 100, AnswerNS: 1e9, TotalNS: 2e9}}, "in parallel"},
	} {
		r := &report.Report{Groups: []report.Group{{ID: "a", Name: "main.gateway", Count: 100, TotalNS: 2.2e9, Bands: []report.Band{{Band: report.BandAll, Count: 100,
			Causes: []report.Cause{{Cause: report.CauseNetwork, Kind: "outbound", Site: line, TotalNS: 2e9, Share: 0.9, Requests: 100}}}}}}}
		got := findAll(t, &Input{Report: r, PeerCalls: map[string][]queues.PeerCalls{"a": tt.calls}}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) == 1 && strings.Contains(got[0].Fix, tt.want), "%s: %+v", name, got)
	}
}

// TestUsualPeerTimes: requests wait for the beginning of an answer or for its rest, equally long; or a fifth of them asks for what the others have,
// and each waits as long or not; or a part of
// them, but no few, for a body that comes later. It fails if times that are the peer's usual ones are said to be late, or if late ones are not.
func TestUsualPeerTimes(t *testing.T) {
	head, rest := siteOf("main.ask"), siteOf("main.copyAnswer")
	cause := func(site *report.Site, requests int, ns int64) report.Cause {
		return report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: site, TotalNS: ns, Share: 0.9, Requests: requests}
	}
	body := func(requests int, ns int64) report.Cause {
		c := cause(head, requests, ns)
		c.Call = "net/http.(*body).Read"
		return c
	}
	for name, tt := range map[string]struct {
		all, usual, slow []report.Cause
		calls            queues.PeerCalls
		isLate           bool
	}{
		"another part of the answer": {
			[]report.Cause{cause(head, 100, 5e9), cause(rest, 50, 5e9)}, []report.Cause{cause(head, 40, 2e8), cause(rest, 40, 36e8)}, []report.Cause{cause(head, 10, 12e8)},
			queues.PeerCalls{Site: head, Requests: 100, Calls: 100, AnswerNS: 5e9, TotalNS: 10e9}, false,
		},
		"late answers": {
			[]report.Cause{cause(head, 100, 5e9)}, []report.Cause{cause(head, 40, 2e8)}, []report.Cause{cause(head, 10, 48e8)},
			queues.PeerCalls{Site: head, Requests: 100, Calls: 100, AnswerNS: 5e9, TotalNS: 5e9}, true,
		},
		"few calls": {
			[]report.Cause{cause(head, 20, 24e8)}, nil, []report.Cause{cause(head, 10, 12e8)},
			queues.PeerCalls{Site: head, Requests: 20, Calls: 20, AnswerNS: 24e8, TotalNS: 24e8}, false,
		},
		"few calls, some late": {
			[]report.Cause{cause(head, 20, 24e8)}, nil, []report.Cause{cause(head, 10, 23e8)},
			queues.PeerCalls{Site: head, Requests: 20, Calls: 20, AnswerNS: 24e8, TotalNS: 24e8}, true,
		},
		"long bodies": {
			[]report.Cause{cause(head, 100, 3e9), body(12, 42e8)}, []report.Cause{cause(head, 40, 12e8)}, []report.Cause{body(10, 36e8), cause(head, 10, 3e8)},
			queues.PeerCalls{Site: head, Requests: 100, Calls: 100, AnswerNS: 72e8, TotalNS: 72e8}, false,
		},
		"long bodies, some late": {
			[]report.Cause{cause(head, 100, 3e9), body(40, 8e9)}, []report.Cause{cause(head, 40, 12e8)}, []report.Cause{body(10, 7e9), cause(head, 10, 3e8)},
			queues.PeerCalls{Site: head, Requests: 100, Calls: 100, AnswerNS: 11e9, TotalNS: 11e9}, true,
		},
		"few long bodies": {
			[]report.Cause{cause(head, 100, 3e9), body(4, 42e8)}, []report.Cause{cause(head, 40, 12e8)}, []report.Cause{body(4, 42e8), cause(head, 10, 3e8)},
			queues.PeerCalls{Site: head, Requests: 100, Calls: 100, AnswerNS: 72e8, TotalNS: 72e8}, true,
		},
	} {
		g := report.Group{ID: "a", Name: "main.gateway", Named: true, Count: 100, TotalNS: 11e9, Bands: []report.Band{
			{Band: report.BandAll, Count: 100, Causes: tt.all}, {Band: report.Band5090, Count: 40, Causes: tt.usual}, {Band: report.Band9099, Count: 10, Causes: tt.slow},
		}}
		got := findAll(t, &Input{
			Report: &report.Report{Groups: []report.Group{g}}, PeerCalls: map[string][]queues.PeerCalls{"a": {tt.calls}},
			Predict: func(string, []predict.Change) *report.Predicted { return new(report.Predicted) },
		}, rulesByCode(report.RuleSlowPeer))
		check.True(t, len(got) > 0 && got[0].Severity.IsMajor() == tt.isLate && strings.Contains(got[0].Fix, "far longer") == (tt.isLate && tt.usual != nil), "%s: %+v", name, got)
	}
}
