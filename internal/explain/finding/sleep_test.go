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

// TestDescribePolling: a goroutine that sleeps polls; one that waits for a timer between its polls does both.
func TestDescribePolling(t *testing.T) {
	for _, c := range []struct{ call, function, want string }{
		{"time.Sleep", "main.get", "requests wait while their own goroutine polls at main.get (main.go:7) every 10ms for an event that comes after 50ms on average"},
		{"time.Sleep", "main.sleeps at", "requests wait while their own goroutine polls at main.sleeps at (main.go:7) every 10ms for an event that comes after 50ms on average"},
		{"runtime.selectgo", "main.get", "requests wait while their own goroutine waits for a timer or ticker at main.get (main.go:7) every 10ms for an event that comes after 50ms on average"},
	} {
		route := &causeRoute{Cause: &report.Cause{Cause: report.CauseSleep, Call: c.call, Site: &report.Site{Func: c.function, File: "/src/main.go", Line: 7}}}
		var v Verdict
		rewriteForPolling(&Input{}, &v, route, &predict.Pauses{IsPoll: true, Number: 5, EachNS: 10e6, TotalNS: 50e6})
		check.Equal(t, v.Title, c.want, "%s", c.call)
	}
}

// TestRest: a timer for which few iterations of a loop wait themselves is the loop's rest, and at most low. A pause of most iterations is not.
func TestRest(t *testing.T) {
	for _, c := range []struct {
		kind   report.Kind
		call   string
		count  int // iterations with the wait, of 1000
		isRest bool
	}{
		{report.KindLoop, "runtime.chanrecv1", 20, true}, {report.KindLoop, "runtime.chanrecv1", 500, false},
		{report.KindLoop, "time.Sleep", 20, false}, {report.KindHTTP1, "runtime.chanrecv1", 20, false},
	} {
		rep := oneGroup(report.Cause{Cause: report.CauseSleep, Call: c.call, Site: site("run@5"), TotalNS: ms(30_000), Requests: c.count, Share: 0.9})
		rep.Groups[0].Kind, rep.Groups[0].Count = c.kind, 1000
		got := findAll(t, &Input{Report: rep}, rulesByCode(report.RuleSleep))
		check.True(t, len(got) == 1 && got[0].Severity.IsMajor() != c.isRest, "%+v: %+v", c, got)
	}
}

// TestPolledWorker: requests that poll every 50 ms wait for a loop that begins every 150 ms if their waits are as long as if they arrived at
// random in its interval, and only one loop fits.
func TestPolledWorker(t *testing.T) {
	loop := func(id string, count int) report.Group {
		return report.Group{ID: id, Count: count, Entry: site(id + "@134")}
	}
	for _, c := range []struct {
		name   string
		number float64
		p90NS  int64
		loops  []report.Group
		want   bool
	}{
		{"evenly spread waits", 2, 160e6, []report.Group{loop("work", 40), loop("report", 6)}, true},
		{"all wait equally long", 2, 100e6, []report.Group{loop("work", 40)}, false},
		{"longer waits", 5, 160e6, []report.Group{loop("work", 40)}, false},
		{"two loops", 2, 160e6, []report.Group{loop("work", 40), loop("scan", 39)}, false},
		{"a loop for which others wait", 2, 160e6, []report.Group{loop("awaited", 40)}, false},
	} {
		in := &Input{Report: &report.Report{Input: report.Input{DurationNS: 6e9}}, AllGroups: c.loops, UnawaitedGroups: map[string]bool{"work": true, "scan": true, "report": true}}
		attr := &attribution{in: in, group: &report.Group{LatencyNS: report.Latency{P90: &c.p90NS}}}
		v := Verdict{Finding: report.Finding{Site: site("wait@123")}}
		check.Equal(t, attr.rewriteForPolledWorker(&v, &predict.Pauses{Number: c.number, EachNS: 50e6}), c.want, "%s", c.name)
		check.Equal(t, v.Title == "requests poll every 50ms at main.wait (main.go:123) for the work of a goroutine that itself begins only every 150ms, at main.work (main.go:134)", c.want, "%s: %s", c.name, v.Title)
	}
}

// TestPollingWorker: a goroutine polls for work if it sleeps before requests come, and nothing that these do wakes it. One that ends several
// waits at a tick serves a batch; one that requests wake at times, or send to, only pauses.
func TestPollingWorker(t *testing.T) {
	const polls = "requests wait for a goroutine that polls for work only every 80ms, at main.work (main.go:110)"
	for _, c := range []struct {
		name, wait string
		handedOver float64
		service    queues.ServiceStats
		want       string
	}{
		{"work of varying length", "chan", 0, queues.ServiceStats{BegunEarlyShare: 1}, polls},
		{"woken at times", "chan", 0.5, queues.ServiceStats{BegunEarlyShare: 1}, "requests wait while another goroutine sleeps"},
		{"sent to", "chan send", 0, queues.ServiceStats{BegunEarlyShare: 1}, "requests wait while another goroutine sleeps"},
		{"sleeps for the request", "chan", 0, queues.ServiceStats{}, "requests wait while another goroutine sleeps"},
		{"one request at a tick", "chan", 1, queues.ServiceStats{BegunEarlyShare: 1, PeriodNS: 80e6, BatchSize: 1}, polls},
		{"a batch at a tick", "chan", 1, queues.ServiceStats{BegunEarlyShare: 1, PeriodNS: 80e6, BatchSize: 3}, "requests wait for the next tick of a 80ms interval"},
	} {
		pause := report.Cause{Cause: report.CauseSleep, Call: "time.Sleep", Site: site("work@110"), Via: []report.Via{{Wait: report.WaitKind(c.wait), Site: site("handle@122")}}, TotalNS: ms(4000)}
		c.service.Cause, c.service.Site, c.service.Requests, c.service.Servers, c.service.Sleeps, c.service.SleepNS, c.service.WaitersPerServer = "sleep", site("work@110"), 100, 1, 100, 80e6, 1
		found := findAll(t, &Input{Report: oneGroup(pause), Process: &process.Stats{}, Services: []queues.ServiceStats{c.service},
			LongWaits: []queues.LongWaits{{Site: site("handle@122"), WokenShare: 1, HandoverShare: c.handedOver}}}, rulesWithPrefix("WL2"))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Title, c.want), "%s: %+v", c.name, found)
	}
}

// TestBatchWindow: requests wait for timers of which each ends the waits of several: they have joined a batch. A goroutine that pauses for all
// of them is another thing.
func TestBatchWindow(t *testing.T) {
	for _, c := range []struct {
		call    string
		servers int
		isBatch bool
	}{{"", 40, true}, {"", 1, false}, {"runtime.selectgo", 40, false}} {
		pause := report.Cause{Cause: report.CauseSleep, Call: c.call, Site: site("flush@157"), Via: via("chan load@168"), TotalNS: ms(6000), Requests: 100}
		found := findAll(t, &Input{Report: oneGroup(pause), Process: &process.Stats{}, Services: []queues.ServiceStats{
			{Cause: "sleep", Site: site("flush@157"), BatchSize: 2.5, Servers: c.servers, ServiceNS: 25e6, Requests: 100},
		}}, rulesWithPrefix("WL2001"))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Title, "requests wait for others to join their batch, until 25ms after its first one, at main.flush") == c.isBatch, "%+v", found)
	}
}

// TestPauseBeforeRetry: where slow requests call a peer before a pause, it may be one before a second try, and the call is the first one to
// look at. The pause's caller is named if a helper pauses.
func TestPauseBeforeRetry(t *testing.T) {
	pause := site("sleep@129")
	pause.CalledFrom = &report.Caller{Func: "main.lookup", File: "/src/main.go", Line: 118, Calls: "main.sleep"}
	call, sleep := report.Segment{Cause: report.CauseNetwork, Kind: "outbound", Site: site("ask@85")}, report.Segment{Cause: report.CauseSleep, Site: pause}
	for want, segments := range map[string][]report.Segment{
		"if it is a retry's pause, find out why the call at main.ask (main.go:85) fails; else shorten the pause at main.sleep (main.go:129), called from main.lookup (main.go:118)": {call, sleep, call},
		"shorten the pause at main.sleep (main.go:129), called from main.lookup (main.go:118), if it is not intended, or also wait for the event itself":                            {sleep, call},
	} {
		rep := oneGroup(report.Cause{Cause: report.CauseSleep, Call: "runtime.selectgo", Site: pause, TotalNS: ms(6000)}, report.Cause{Cause: report.CauseNetwork, Kind: "outbound", Site: site("ask@85"), TotalNS: ms(3000)})
		rep.Groups[0].Slowest = []report.Request{{Segments: segments}}
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesWithPrefix("WL2001"))
		check.True(t, len(found) == 1 && found[0].Remedy == want, "%+v", found)
	}
}

// TestSleepAdvice: a pause that is no part of a poll is not called one. It may be intended, in the service's code or in another package,
// and is no fault of a program that nothing waits for. A request that waits for another goroutine also waits for its earlier sleeps.
func TestSleepAdvice(t *testing.T) {
	awaited := []report.Via{{Wait: report.WaitChan}}
	for _, c := range []struct {
		kind   report.Kind
		fn     string
		via    []report.Via
		number float64
		want   string
	}{
		{report.KindHTTP1, "main.backoff", nil, 1, "remove or shorten the pause at main.go:7, if it is not intended (5ms in each request)"},
		{report.KindHTTP1, "main.backoff", nil, 2.9, "remove or shorten the pauses at main.go:7, if they are not intended (3 of 5ms in each request)"},
		{report.KindHTTP1, "example.org/hub.(*Hub).backoff", nil, 1, "remove or shorten the pause at main.go:7, if it is not intended (5ms in each request); if hub is not your code, look for its setting"},
		{report.KindHTTP1, "main.store", awaited, 1, "remove or shorten the pause at main.go:7, if it is not intended (5ms each); slow requests wait behind the pauses of others as well, 9ms together"},
		{report.KindRun, "main.pace", nil, 1, "nothing, if the program is meant to pause there; else remove or shorten the pause at main.go:7"},
	} {
		attr := attribution{group: &report.Group{Kind: c.kind, Entry: &report.Site{Func: "main.serve"}}}
		route := &causeRoute{Cause: &report.Cause{Cause: report.CauseSleep, Site: &report.Site{Func: c.fn, File: "/src/main.go", Line: 7}}, via: c.via}
		advice := strings.ReplaceAll(attr.sleepAdvice(route, &predict.Pauses{Number: c.number, EachNS: 5e6}, 9e6), remedyEnd, "")
		check.True(t, strings.HasPrefix(advice, c.want+"; if "), "%g pauses: %q, want %q", c.number, advice, c.want)
	}
}

// TestPolledLibrary: a user of a library cannot change its goroutine, whether a tick serves one request or several, but perhaps its options.
func TestPolledLibrary(t *testing.T) {
	const library = "have the library woken at once, instead of after up to 50ms"
	for _, c := range []struct {
		module string
		batch  float64
		want   string
	}{
		{"", 1, "wake the goroutine at main.poll (main.go:9) as soon as work arrives"}, {"", 3, "serve the batch as soon as"},
		{"example.org/jobs", 1, library}, {"example.org/jobs", 3, library}, {"github.com/nxadm/tail", 3, "in tail: set Poll of tail.Config to false"},
	} {
		poll := site("poll@9")
		if c.module != "" {
			poll = inModule(c.module+"/watch.poll@9", c.module)
		}
		pause := report.Cause{Cause: report.CauseSleep, Site: poll, Via: via("chan add@4"), TotalNS: ms(3000), Requests: 100}
		service := queues.ServiceStats{Cause: "sleep", Site: poll, BatchSize: c.batch, Servers: 1, Requests: 100, PeriodNS: 50e6, WaitedSleepNS: 25e6, BegunEarlyShare: 0.9}
		found := findAll(t, &Input{Report: oneGroup(pause), Process: &process.Stats{}, Services: []queues.ServiceStats{service}}, rulesWithPrefix("WL2004"))
		check.True(t, len(found) == 1 && strings.HasPrefix(found[0].Fix, c.want), "%+v: %+v", c, found)
	}
}
