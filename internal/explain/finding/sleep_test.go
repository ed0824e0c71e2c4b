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
