package finding

import (
	"cmp"
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

// TestDeadline: what does not come before a deadline is named. If the other answers at that line take far less, the deadline to set
// follows from them. A short one of a call in parallel with others is a budget, as is one that ends a wait for several
// answers, or for that of a goroutine which continues, or is very short.
func TestDeadline(t *testing.T) {
	line := siteOf("main.ask")
	parallel := []report.Via{{Wait: "chan-receive", Site: siteOf("main.handle")}}
	for _, c := range []struct {
		answerNS   int64 // of all 100 requests; 0: there is no answer
		deadlineNS int64
		waits      int // requests that wait until the deadline
		via        []report.Via
		timer      string // the call that waits until the deadline, if it is not a context's
		gathered   int    // requests that wait at that line for another goroutine's answer; 0: the goroutine itself asks
		severity   report.Severity
		title, fix string
	}{
		{500e6, 150e6, 100, nil, "", 0, report.SeverityHigh, "requests wait 150ms at main.ask (x.go:7) for a peer's answer (HTTP) that does not come before a deadline", "find out why the peer (HTTP) at 10.0.0.5:80 does not answer, and shorten the deadline from 150ms to 15ms, as an answer usually takes 5ms"},
		{4e9, 150e6, 20, parallel, "", 0, report.SeverityLow, "20 of 100 requests wait 150ms at main.ask (x.go:7) for a peer's answer (HTTP) until a deadline ends the wait: a budget", "if that deadline is intended, nothing"},
		{4e9, 150e6, 100, parallel, "", 0, report.SeverityHigh, "for a peer's answer (HTTP) that does not come", "find out why the peer (HTTP) at 10.0.0.5:80 does not answer, and stop asking it"},
		{500e6, 150e6, 100, parallel, "", 0, report.SeverityHigh, "for a peer's answer (HTTP) that does not come", "find out why the peer (HTTP) at 10.0.0.5:80 does not answer, and shorten the deadline"},
		{4e9, 150e6, 100, nil, "", 0, report.SeverityHigh, "for a peer's answer (HTTP) that does not come", "find out why the peer (HTTP) at 10.0.0.5:80 does not answer"},
		{4e9, 150e6, 20, nil, "", 100, report.SeverityLow, "20 of 100 requests wait 150ms at main.ask (x.go:7) for a peer's answer (HTTP)", "if that deadline is intended, nothing"},
		{4e9, 60e6, 20, nil, "", 80, report.SeverityLow, "20 of 100 requests wait 60ms at main.ask (x.go:7) for a peer's answer (HTTP)", "if that deadline is intended, nothing"},
		{4e9, 150e6, 20, nil, "", 80, report.SeverityHigh, "for a peer's answer (HTTP) that does not come", "find out why the peer (HTTP) at 10.0.0.5:80 does not answer"},
		{0, 150e6, 100, nil, "", 0, report.SeverityHigh, "requests wait 150ms at main.ask (x.go:7) for what does not come before a deadline", "find out why what is awaited at main.ask (x.go:7) does not come"},
		{4e9, 150e6, 20, nil, "runtime.selectgo", 80, report.SeverityLow, "20 of 100 requests wait 150ms at main.ask (x.go:7) for a peer's answer (HTTP) until a deadline ends the wait: a budget", "if that deadline is intended, nothing"},
		{500e6, 150e6, 20, nil, "runtime.selectgo", 80, report.SeverityHigh, "for a peer's answer (HTTP) that does not come before a deadline", "find out why the peer (HTTP) at 10.0.0.5:80 does not answer, and shorten the deadline"},
		{4e9, 150e6, 20, nil, "time.Sleep", 80, report.SeverityHigh, "requests wait while their own goroutine sleeps", ""}, // a pause
	} {
		causes := []report.Cause{{Cause: "sleep", Call: cmp.Or(c.timer, "context.WithDeadlineCause.func2"), Site: line, Via: c.via, TotalNS: 6e9, Requests: c.waits}}
		answer := report.Cause{Cause: "network", Kind: "outbound", Call: "net/http.(*persistConn).roundTrip", Site: line, Via: c.via, TotalNS: c.answerNS, Requests: 100}
		if c.gathered > 0 {
			answer.Site, answer.Via, answer.Requests = siteOf("main.call"), []report.Via{{Wait: "select", Site: line}}, c.gathered
		}
		if c.answerNS > 0 {
			causes = append(causes, answer)
		}
		in := &Input{Report: oneGroup(causes...), Process: &process.Stats{}, Pauses: func(string, []predict.Change) *predict.Pauses {
			return &predict.Pauses{Number: 1, EachNS: c.deadlineNS}
		}}
		in.Report.Host = &report.Host{Network: report.HostNetwork{Peers: []string{"10.0.0.5:80"}}}
		in.SlotWaits = []queues.SlotWaits{{Wait: report.WaitSelect, Site: line, Call: "runtime.selectgo", ChildShare: 1}}
		found := findWithBounds(t, in, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && found[0].Severity == c.severity && strings.Contains(found[0].Title, c.title) && strings.HasPrefix(found[0].Fix, c.fix), "answers of %d ns: %+v", c.answerNS, found)
	}
}

// TestHeldUntilFloor: a pause that ends at one time after the start of each request is meant, unless something else also ends waits at its line: then
// it is a time-out.
func TestHeldUntilFloor(t *testing.T) {
	line := site("hold@9")
	for _, c := range []struct {
		name     string
		floorNS  int64
		via      []report.Via
		severity report.Severity
	}{
		{"a floor", 250e6, via("lock hold@4"), report.SeverityInfo},
		{"a time-out", 250e6, via("select hold@9"), report.SeverityHigh},
		{"a pause", 0, via("lock hold@4"), report.SeverityHigh},
	} {
		in := &Input{Report: oneGroup(report.Cause{Cause: report.CauseSleep, Call: "runtime.selectgo", Site: line, TotalNS: 6e9, Requests: 40}, report.Cause{Cause: report.CauseCPU, Site: site("send@3"), Via: c.via, TotalNS: 1e9}),
			Pauses: func(string, []predict.Change) *predict.Pauses {
				return &predict.Pauses{Number: 1, EachNS: 200e6, FloorNS: c.floorNS}
			}}
		found := findAll(t, in, rulesByCode(report.RuleSleep))
		isFloor := len(found) == 1 && strings.Contains(found[0].Title, "held at main.hold (main.go:9) until 250ms have passed")
		check.True(t, len(found) == 1 && found[0].Severity == c.severity && isFloor == (c.severity == report.SeverityInfo), "%s: %+v", c.name, found)
	}
}

// TestFailingCall: a pause before a second try leads to the call that fails, where the trace shows it: the one in a closure of the
// function that pauses, or the only one.
func TestFailingCall(t *testing.T) {
	pause := &report.Site{Func: "github.com/cenkalti/backoff/v5.Retry", File: "retry.go", Line: 1, Module: "dep.org/x", CalledFrom: &report.Caller{Func: "main.rank", File: "/src/x.go", Line: 90}}
	for want, requests := range map[string][][]string{
		"find out why the call at main.rank.func1 (x.go:7) fails":         {{"main.other", "main.rank.func1"}},
		"find out why the first try fails, and do not retry after errors": {{"main.other"}, {"main.another"}},
		"find out why the first try fails":                                {{}},
	} {
		rep := oneGroup(report.Cause{Cause: "sleep", Call: "runtime.selectgo", Site: pause, TotalNS: 6e9, Requests: 100}, report.Cause{Cause: "network", Kind: "outbound", Site: siteOf("main.other"), TotalNS: 1e9, Requests: 100})
		for _, calls := range requests {
			var segments []report.Segment
			for _, fn := range calls {
				segments = append(segments, report.Segment{Cause: "network", Kind: "outbound", Site: siteOf(fn)})
			}
			segments = append(segments, report.Segment{Cause: "sleep", Site: pause}, report.Segment{Cause: "network", Kind: "outbound", Site: siteOf("main.later")})
			rep.Groups[0].Slowest = append(rep.Groups[0].Slowest, report.Request{Segments: segments})
		}
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Fix, want) && strings.HasPrefix(found[0].Title, "requests wait at ") && strings.HasSuffix(found[0].Title, "because the first one fails"), "%s: %+v", want, found)
	}
}

// TestPauseOfRetry: a pause between two calls at one line is that of a retry, which is loud only if it is long. If most requests pause, they
// may ask whether something is ready. A loop that pauses in its body does so at an interval.
func TestPauseOfRetry(t *testing.T) {
	pause := siteOf("main.wait")
	for _, c := range []struct {
		kind     report.Kind
		wait     string
		call     string
		requests int
		eachNS   int64
		severity report.Severity
		title    string
	}{
		{report.KindHTTP1, "runtime.selectgo", "main.ask", 40, 750e6, report.SeverityHigh, "requests pause 1.5s at main.wait (x.go:7) before they make the call at main.ask (x.go:7) again: a retry"},
		{report.KindHTTP1, "runtime.selectgo", "main.ask", 90, 750e6, report.SeverityHigh, "requests wait while their own goroutine waits for a timer"},
		{report.KindHTTP1, "time.Sleep", "main.ask", 40, 20e6, report.SeverityLow, "requests pause 40ms at"},
		{report.KindHTTP1, "runtime.selectgo", "main.tell", 40, 750e6, report.SeverityHigh, "requests wait while their own goroutine waits for a timer"},
		{report.KindLoop, "runtime.selectgo", "main.ask", 40, 750e6, report.SeverityHigh, "iterations wait while their own goroutine waits for a timer"},
	} {
		rep := oneGroup(report.Cause{Cause: report.CauseSleep, Call: c.wait, Site: pause, TotalNS: 6e9, Requests: c.requests})
		for range 3 {
			rep.Groups[0].Slowest = append(rep.Groups[0].Slowest, report.Request{Segments: []report.Segment{{Cause: report.CauseNetwork, Kind: "outbound", Site: siteOf("main.ask")},
				{Cause: report.CauseSleep, Site: pause}, {Cause: report.CauseNetwork, Kind: "outbound", Site: siteOf(c.call)}}})
		}
		rep.Groups[0].Kind, rep.Groups[0].Entry = c.kind, pause
		found := findAll(t, &Input{Report: rep, Pauses: func(string, []predict.Change) *predict.Pauses { return &predict.Pauses{Number: 2, EachNS: c.eachNS} }}, rulesByCode(report.RuleSleep))
		check.True(t, len(found) == 1 && found[0].Severity == c.severity && strings.HasPrefix(found[0].Title, c.title), "%s after %d ns: %+v", c.call, c.eachNS, found)
	}
	rep := oneGroup(report.Cause{Cause: report.CauseSleep, Call: "runtime.selectgo", TotalNS: 6e9, Requests: 40})
	rep.Groups[0].Kind, rep.Groups[0].Entry = report.KindLoop, pause
	found := findAll(t, &Input{Report: rep, Pauses: func(string, []predict.Change) *predict.Pauses { return nil }}, rulesByCode(report.RuleSleep))
	check.True(t, len(found) == 1, "a pause at no known place: %+v", found)
}

// TestComputingTransaction: the finding names the line at which a function computes during its transaction, not a line before the transaction.
func TestComputingTransaction(t *testing.T) {
	begin := func(line int) *report.Site { return &report.Site{Func: "main.add", File: "/src/x.go", Line: line} }
	busy := &report.Site{Func: "modernc.org/sqlite.busyHandler", File: "busy.go", Line: 82, Module: "modernc.org/sqlite", CalledFrom: &report.Caller{Func: "main.add", File: "/src/x.go", Line: 35}}
	for line, says := range map[int]bool{48: true, 30: false} {
		in := &Input{Process: &process.Stats{}, Report: oneGroup(report.Cause{Cause: "sleep", Call: "time.Sleep", Site: busy, TotalNS: 6e9, Requests: 100}, report.Cause{Cause: "cpu", Site: begin(line), TotalNS: 2e9, Requests: 100}),
			LockedWaits: []queues.LockedWait{{Site: busy, Begin: begin(35), Share: 0.9}}}
		found := findAll(t, in, rulesByCode(report.RuleSleep))
		if must.Equal(t, len(found), 1, "%+v", found); strings.Contains(found[0].Fix, "main.add (x.go:48) computes for") != says {
			t.Errorf("line %d: %s", line, found[0].Fix)
		}
	}
}

// TestSyncInLibrary: a sync in a library is a call of the service, which can ask for fewer.
func TestSyncInLibrary(t *testing.T) {
	sync := func(calls string) *report.Site {
		return &report.Site{Func: "dep.org/db.fsync", File: "db.go", Line: 3, Module: "dep.org/db", CalledFrom: &report.Caller{Func: "main.save", File: "/src/x.go", Line: 56, Calls: calls}}
	}
	for calls, want := range map[string]string{"dep.org/db.(*DB).Set": "commit several writes together at main.save (x.go:56) (one transaction, one sync): each db.(*DB).Set there waits for a sync", "": "sync once for several requests"} {
		found := findAll(t, &Input{Process: &process.Stats{}, Report: oneGroup(report.Cause{Cause: "syscall", Call: "syscall.Fdatasync", Site: sync(calls), TotalNS: 6e9, Requests: 100})}, rulesByCode(report.RuleBlockingSyscall))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Fix, want) && (len(found[0].Changes) == 0) == (calls != ""), "%q: %+v", calls, found)
	}
}

// TestSharedSync: a request that waits once for a goroutine that syncs for many requests pays for a durable write. Several such
// waits, a goroutine for each request, and a sync under a lock can be changed.
func TestSharedSync(t *testing.T) {
	for _, c := range []struct {
		service     queues.ServiceStats
		isUnchanged bool
	}{
		{queues.ServiceStats{Servers: 1, WaitsPerRequest: 1.04}, true},
		{queues.ServiceStats{Servers: 1, WaitsPerRequest: 3}, false},
		{queues.ServiceStats{Servers: 100, WaitsPerRequest: 1}, false},
		{queues.ServiceStats{Servers: 1, WaitsPerRequest: 1, BehindLockShare: 0.3}, false},
	} {
		c.service.Cause, c.service.Site, c.service.Requests, c.service.BatchSize, c.service.WaitersPerServer = "syscall", siteOf("main.flush"), 100, 1, 1
		in := &Input{Process: &process.Stats{}, Services: []queues.ServiceStats{c.service}, Report: oneGroup(report.Cause{Cause: "syscall", Call: "syscall.Fdatasync", Site: siteOf("main.flush"), Via: via("chan commit@7"), TotalNS: 6e9})}
		found := findAll(t, in, rulesByCode(report.RuleBlockingSyscall))
		if must.Equal(t, len(found), 1, "%+v: %+v", c.service, found); strings.HasPrefix(found[0].Fix, "nothing to change") != c.isUnchanged || (found[0].Severity == report.SeverityLow) != c.isUnchanged {
			t.Errorf("%+v: %s, %s", c.service, found[0].Severity, found[0].Fix)
		}
	}
}

// TestTogether: the second change of a group is also predicted with the first one, whatever group comes between.
func TestTogether(t *testing.T) {
	in := &Input{Predict: func(_ string, changes []predict.Change) *report.Predicted {
		return &report.Predicted{P50NS: report.Estimate{Est: int64(len(changes))}}
	}}
	verdictOf := func(group, site string, severity report.Severity) Verdict {
		change := predict.Remove(report.CauseSleep, site)
		return Verdict{Changes: []predict.Change{change}, Finding: report.Finding{Group: group, Severity: severity, Predicted: in.predict(group, change)}}
	}
	all := []Verdict{verdictOf("a", "x", "high"), verdictOf("b", "y", "high"), verdictOf("a", "z", "medium"), verdictOf("a", "x", "medium"), verdictOf("a", "w", "low")}
	predictTogether(in, all)
	for i, want := range []int64{0, 0, 2, 0, 0} {
		got := int64(0)
		if all[i].Combined != nil {
			got = all[i].Combined.P50NS.Est
		}
		check.Equal(t, got, want, "verdict %d", i)
	}
}

// TestUncertainPeer: the first thing to do about a peer is to ask on its side. Where a busy machine makes it more likely than not that
// the wait is not the peer's, the first thing is to record again.
func TestUncertainPeer(t *testing.T) {
	for _, c := range []struct {
		waited       int64
		recordsAgain bool
	}{{1e9, true}, {1e8, false}} {
		in := &Input{Process: &process.Stats{}, Report: oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: siteOf("main.ask"), TotalNS: 6e9, Requests: 100})}
		busy, cpu, machine := int64(2e8), int64(2e8), int64(16e8)
		in.Report.Host = &report.Host{ToNS: 1e9, Facts: report.HostFacts{CPUs: 2}}
		in.Report.Host.Lost.BusyNS, in.Report.Host.Lost.CPUNS, in.Report.Host.Lost.RunDelayNS, in.Report.Host.Lost.MachineNS = &busy, &cpu, &c.waited, &machine
		found := findAll(t, in, rulesByCode(report.RuleSlowPeer))
		if must.Equal(t, len(found), 1, "%+v", found); !strings.Contains(found[0].Fix, "ask the owner of the peer") || strings.HasPrefix(found[0].Remedy, "record again on a free machine") != c.recordsAgain || (found[0].DoubtedBy != "") != c.recordsAgain || (found[0].Doubt != "") != (found[0].Confidence < trustedConfidence) {
			t.Errorf("waits of %d ns: %+v", c.waited, found[0])
		}
	}
}

// TestSeveralPeers: of several peers, each is named with the mean round trip of its connections, the longest first. It detects a slow
// peer that the advice does not distinguish from others.
func TestSeveralPeers(t *testing.T) {
	const fast, slow = "10.0.0.1:80", "10.0.0.2:80"
	for i, want := range []string{"at " + fast + " or " + slow + " why", "at " + slow + " (TCP round trip 5ms) or " + fast + " (2ms) why"} {
		in := &Input{Process: &process.Stats{}, Report: oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: siteOf("main.ask"), TotalNS: 6e9, Requests: 100})}
		in.Report.Host = &report.Host{Network: report.HostNetwork{Peers: []string{slow, fast}}}
		if i > 0 {
			in.Report.Host.Network.Sockets = []report.HostSocket{{Remote: fast, RTTNS: 2e6}, {Remote: slow, RTTNS: 4e6}, {Remote: slow, RTTNS: 6e6}}
		}
		found := findAll(t, in, rulesByCode(report.RuleSlowPeer))
		if must.Equal(t, len(found), 1, "%+v", found); !strings.Contains(found[0].Fix, want) {
			t.Errorf("%q, want %q", found[0].Fix, want)
		}
	}
}

// TestCallsBesideParallelOnes: a line at which requests make several calls in parallel and another one by itself has more than one call.
func TestCallsBesideParallelOnes(t *testing.T) {
	in := &Input{Process: &process.Stats{}, Report: oneGroup(report.Cause{Cause: "network", Kind: "outbound", Site: siteOf("main.ask"), TotalNS: 6e9, Requests: 100})}
	alone := queues.PeerCalls{Site: siteOf("main.ask"), Requests: 100, Calls: 100, AnswerNS: 4e9, TotalNS: 4e9}
	for i, want := range []string{"each request makes one call here", "about 6 calls here run in parallel"} {
		fanOut := int64(100 + 450*i)
		in.PeerCalls = map[string][]queues.PeerCalls{"g": {alone, {Site: siteOf("main.ask"), Via: siteOf("main.wait"), Requests: 100, Calls: 100, AnswerNS: 2e9, TotalNS: 2e9, FanOut: fanOut, FanOutLastNS: 2e9}}}
		found := findAll(t, in, rulesByCode(report.RuleSlowPeer))
		if must.Equal(t, len(found), 1, "%+v", found); !strings.Contains(found[0].Fix, want) {
			t.Errorf("%d goroutines: %q, want %q", fanOut, found[0].Fix, want)
		}
	}
}

// TestSmallSystemCalls: a write to a socket does not block, but thousands of small ones are a large part of a request.
func TestSmallSystemCalls(t *testing.T) {
	for _, c := range []struct {
		name  string
		count *queues.SyscallCount
		found bool
	}{
		{"not counted", nil, false},
		{"many small calls", &queues.SyscallCount{Requests: 100, Calls: 300_000, CallNS: 1e9, LatencyNS: 2e9}, true},
		{"few calls", &queues.SyscallCount{Requests: 100, Calls: 9_000, CallNS: 5e8, LatencyNS: 2e9}, false},
		{"long calls: the thread had no CPU", &queues.SyscallCount{Requests: 100, Calls: 10_000, CallNS: 1e9, LatencyNS: 2e9}, false},
		{"a small part of the requests", &queues.SyscallCount{Requests: 100, Calls: 300_000, CallNS: 3e8, LatencyNS: 2e9}, false},
	} {
		in := &Input{Process: &process.Stats{}, SyscallCounts: map[string]*queues.SyscallCount{"g": c.count},
			Report: oneGroup(report.Cause{Cause: "syscall", Call: "net.(*netFD).Write", Site: siteOf("main.export"), TotalNS: 6e9, Requests: 100})}
		found := findAll(t, in, rulesByCode(report.RuleBlockingSyscall))
		isSaid := len(found) > 0 && strings.Contains(found[0].Title, "at least 3,000 small system calls, together 10ms") && strings.Contains(found[0].Fix, "bufio.Writer")
		check.True(t, isSaid == c.found && (len(found) > 0) == c.found, "%s: %+v", c.name, found)
	}
}

// TestFileLookups: where many small calls ask for directories and files, advice is to remember the answers, at all lines that ask. A
// system call without a line is none of them.
func TestFileLookups(t *testing.T) {
	g := groupWith(
		report.Cause{Cause: "syscall", Call: "os.(*unixDirent).Info", Site: site("measure@4"), TotalNS: 4e9, Requests: 100},
		report.Cause{Cause: "syscall", Call: "path/filepath.WalkDir", Site: site("measure@2"), TotalNS: 2e9, Requests: 100},
		report.Cause{Cause: "syscall", TotalNS: 2e9, Requests: 100})
	in := newInput(process.Stats{}, g)
	in.SyscallCounts = map[string]*queues.SyscallCount{"g": {Requests: 100, Calls: 300_000, CallNS: 1e9, LatencyNS: 2e9}}
	found := findAll(t, in, rulesByCode(report.RuleBlockingSyscall))
	lookups := slices.DeleteFunc(found, func(f report.Finding) bool { return f.Site == nil })
	if len(lookups) != 1 || !strings.HasPrefix(lookups[0].Fix, "keep what requests look up in the file system") || len(lookups[0].Changes) != 2 {
		t.Errorf("%+v", found)
	}
}
