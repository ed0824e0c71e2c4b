package watch_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/judge/watch"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// explained is the report about a recording.
func explained(t *testing.T, name string) *report.Report {
	t.Helper()
	return must.Have(whylate.Explain(context.Background(), bytes.NewReader(testprog.Service(t, name).Trace), whylate.Options{}))(t)
}

var begin = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func budget() watch.Budget { return watch.Budget{Share: 0.02, MinInterval: 5 * time.Second} }

// poll returns a poll with a report, at a number of seconds after the beginning.
func poll(rep *report.Report, second int) watch.Poll {
	return watch.Poll{Time: begin.Add(time.Duration(second) * time.Second), Report: rep, Bytes: rep.Input.Bytes, Window: time.Second}
}

// TestStateIsTheReports: after one poll all figures are the report's: counts, percentiles, the largest cause of the slow
// requests.
func TestStateIsTheReports(t *testing.T) {
	for _, name := range []string{"hub-late", "hub", "lock-network"} {
		rep := explained(t, name)
		s := watch.New("svc:6060", budget())
		s.Add(poll(rep, 0), 0)
		state := s.State()
		if state.Polls != 1 || state.Bytes != rep.Input.Bytes || state.DurationNS != rep.Input.DurationNS || state.Observer != rep.Input.Observer || len(state.Groups) == 0 {
			t.Errorf("%s: %+v", name, state)
		}
		for _, g := range state.Groups {
			var of *report.Group
			for i := range rep.Groups {
				if r := &rep.Groups[i]; r.Kind == g.Kind && r.Role == report.RoleRequests && r.Count == g.Count && (of == nil || isNear(g.MaxNS, r.LatencyNS.Max)) {
					of = r
				}
			}
			if of == nil {
				t.Errorf("%s: the report has no group %q of %d", name, g.Name, g.Count)
				continue
			}
			if g.Count >= 100 && !(isNear(g.P99NS, of.LatencyNS.P99) && isNear(g.P50NS, of.LatencyNS.P50)) || g.Count > 0 && !isNear(g.MaxNS, of.LatencyNS.Max) || g.Count < 100 && g.P99NS != nil {
				t.Errorf("%s: %s has %v %v %v, the report %v %v %v", name, g.Name, ns(g.P50NS), ns(g.P99NS), ns(g.MaxNS), ns(of.LatencyNS.P50), ns(of.LatencyNS.P99), ns(of.LatencyNS.Max))
			}
			check.True(t, g.PercentileRequests == g.Count && len(g.History) == 1,
				"%s: %s is of %d requests, %d points", name, g.Name, g.PercentileRequests, len(g.History))
			for _, v := range rep.Verdict {
				if v.Group == of.ID && len(v.Causes) > 0 && (len(g.Causes) == 0 || g.Causes[0].Cause != v.Causes[0].Cause || g.Causes[0].Share != v.Causes[0].Share || g.Causes[0].Words == "") {
					t.Errorf("%s: the slow requests of %s: %+v, the verdict says %s", name, g.Name, g.Causes, v.Text)
				}
			}
		}
		for _, f := range state.Findings {
			check.True(t, f.State == watch.StateNew && f.SeenPolls == 1 && f.PollsSince == 1, "%s: %+v", name, f)
		}
		if data, err := json.Marshal(state); err != nil || bytes.Contains(data, []byte(`"groups":null`)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func ns(p *int64) string {
	if p == nil {
		return "-"
	}
	return time.Duration(*p).String()
}

// isNear reports whether two numbers are equal except for rounding.
func isNear(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return math.Abs(float64(*a-*b)) <= 1e-6*float64(*b)+1
}

// group is one of made-up reports: so many requests, all of the same latency.
func group(name string, count int, latency int64, cause report.CauseName) report.Group {
	g := report.Group{ID: name, Name: name, Kind: report.KindMark, Count: count, Histogram: [][2]int64{{latency, int64(count)}}, LatencyNS: report.Latency{Max: &latency}, TotalNS: int64(count) * latency}
	if count >= 100 {
		g.LatencyNS.P99 = &latency
	}
	row := report.Cause{Cause: cause, Site: &report.Site{Func: "main.work", File: "main.go", Line: 7}, Via: []report.Via{}, TotalNS: g.TotalNS, Share: 1, Requests: count}
	g.Bands = []report.Band{{Band: report.BandAll, ToNS: latency + 1, Count: count, Causes: []report.Cause{row}}}
	return g
}

func made(groups ...report.Group) *report.Report {
	return &report.Report{Groups: groups, Input: report.Input{DurationNS: 1e9, Events: 1000, GOMAXPROCS: 2}}
}

// TestFewRequestsAreSummed: percentiles of a group with few requests are of several polls, of no more than necessary and of
// none that is too old.
func TestFewRequestsAreSummed(t *testing.T) {
	s := watch.New("svc", budget())
	at := func(second, count int, latency int64) watch.Group {
		s.Add(poll(made(group("get", count, latency, report.CauseSleep)), second), 0)
		return s.State().Groups[0]
	}
	if g := at(0, 40, 5e6); g.P99NS != nil || g.P50NS == nil || *g.MaxNS != 5e6 || g.PercentileRequests != 40 {
		t.Errorf("40 requests: %+v", g)
	}
	if g := at(5, 40, 7e6); g.P99NS != nil || g.PercentileRequests != 80 || g.PercentilePolls != 2 || *g.MaxNS != 7e6 {
		t.Errorf("80 requests: %+v", g)
	}
	if g := at(10, 40, 3e6); g.P99NS == nil || *g.P99NS != 7e6 || *g.P50NS != 3e6 || g.PercentileRequests != 120 || g.Count != 40 {
		t.Errorf("120 requests: %+v", g)
	}
	// A poll with enough requests is used alone.
	if g := at(15, 1000, 2e6); *g.P99NS != 2e6 || *g.MaxNS != 2e6 || g.PercentilePolls != 1 {
		t.Errorf("a thousand requests: %+v", g)
	}
	if g := at(300, 40, 9e6); g.P99NS != nil || g.PercentileRequests != 40 {
		t.Errorf("five minutes later: %+v", g)
	}
	// A poll without requests is a gap in the line, and the earlier causes stay.
	if g := at(305, 0, 0); !g.Idle || g.PercentileRequests != 40 || len(g.Causes) != 1 || g.History[len(g.History)-1].NS != nil || g.History[len(g.History)-2].NS == nil {
		t.Errorf("no request: %+v", g)
	}
	s.Add(poll(made(), 310), 0)
	if g := s.State().Groups[0]; !g.Idle || g.Name != "get" {
		t.Errorf("not there: %+v", g)
	}
}

// TestFindingsComeAndGo follows one finding through polls with and without it.
func TestFindingsComeAndGo(t *testing.T) {
	s := watch.New("svc", budget())
	with := func(groups ...string) *report.Report {
		rep := made(group("a", 10, 1e6, report.CauseLock), group("b", 10, 1e6, report.CauseLock))
		for i, g := range groups {
			// The title changes between polls, and with the group.
			rep.Findings = append(rep.Findings, report.Finding{Code: "WL2001", Severity: report.SeverityHigh, Site: &report.Site{Func: "main.f", File: "f.go", Line: 3}, Group: g, Title: fmt.Sprint(i)})
		}
		return rep
	}
	for i, c := range []struct {
		second int
		groups []string
		want   watch.FindingState
		seen   int
		of     int
	}{
		{0, nil, "", 0, 0},
		{5, []string{"a"}, watch.StateNew, 1, 1},
		{10, []string{"b", "a"}, watch.StateStill, 2, 2},
		{15, nil, watch.StateGone, 2, 3},
		{20, []string{"b"}, watch.StateAgain, 3, 4},
		{25, []string{"b"}, watch.StateStill, 4, 5},
		{30, nil, watch.StateGone, 4, 6},
		{160, nil, "", 0, 0}, // removed
		{165, []string{"a"}, watch.StateNew, 1, 1},
	} {
		s.Add(poll(with(c.groups...), c.second), 0)
		list := s.State().Findings
		if c.want == "" && len(list) == 0 {
			continue
		}
		check.True(t, len(list) == 1 && list[0].State == c.want && list[0].SeenPolls == c.seen && list[0].PollsSince == c.of,
			"look %d: %+v", i, list)
	}
	// An ignored finding is not shown.
	rep := with("a")
	rep.Findings[0].Ignored, rep.Findings[0].Site.Line = "known", 9
	s.Add(poll(rep, 170), 0)
	for _, f := range s.State().Findings {
		check.True(t, f.Site.Line != 9, "an ignored finding is shown: %+v", f)
	}
}

// TestMemoryIsBounded: hours of polls with new names do not increase memory.
func TestMemoryIsBounded(t *testing.T) {
	s := watch.New("svc", budget())
	for i := range 3000 {
		rep := made(group("stays", 10, 1e6, report.CauseCPU), group(fmt.Sprint("get ", i), 10, 1e6, report.CauseCPU))
		for k := range 5 {
			rep.Findings = append(rep.Findings, report.Finding{Code: "WL2001", Severity: report.SeverityLow, Site: &report.Site{Func: "f", File: fmt.Sprint(i), Line: k}})
		}
		s.Add(poll(rep, i), 0)
	}
	state := s.State()
	check.True(t, len(state.Groups) <= 64 && len(state.Findings) <= 64, "%d groups, %d findings", len(state.Groups), len(state.Findings))
	found := false
	for _, g := range state.Groups {
		found = found || g.Name == "stays"
		check.True(t, len(g.History) <= 240, "%s has a line of %d points", g.Name, len(g.History))
	}
	check.True(t, found, "the group that is always there is not")
}

// TestProblem: the state contains the reason and the beginning of failures, and the last report.
func TestProblem(t *testing.T) {
	s := watch.New("svc", budget())
	s.Add(poll(made(group("get", 100, 1e6, report.CauseCPU)), 0), 0)
	var waits []time.Duration
	for i := range 8 {
		waits = append(waits, s.Add(watch.Poll{Time: begin.Add(time.Duration(5+i) * time.Second), Problem: "refused"}, 1))
	}
	state := s.State()
	check.True(t, state.DurationNS == 1e9 && state.Groups[0].PerSecond == 100, "the state before is %+v", state)
	if state.Failures != 8 || state.Problem != "refused" || !state.TriedSince.Equal(begin.Add(5*time.Second)) || !state.ReportAt.Equal(begin) || len(state.Groups) != 1 {
		t.Errorf("%+v", state)
	}
	for i, w := range waits {
		if w < 700*time.Millisecond || w > 38*time.Second || i > 0 && w < waits[i-1] {
			t.Errorf("waits %v", waits)
		}
	}
	// The delay for another client's trace is short, however many failures there were.
	if w := s.Add(watch.Poll{Time: begin.Add(20 * time.Second), Problem: "another trace", Busy: true}, 0); w > 3*time.Second {
		t.Errorf("a busy tracer is asked again after %v", w)
	}
	s.Add(poll(made(group("get", 100, 1e6, report.CauseCPU)), 60), 0)
	if state = s.State(); state.Failures != 0 || state.Problem != "" || state.TriedSince != nil || state.Polls != 2 {
		t.Errorf("afterwards %+v", state)
	}
}

// TestPartOfASnapshot: of a snapshot that contains the last one, only the rest counts.
func TestPartOfASnapshot(t *testing.T) {
	s := watch.New("svc", budget())
	rep := made(group("get", 100, 1e6, report.CauseCPU))
	rep.Input.DurationNS = 10e9
	l := poll(rep, 0)
	l.Snapshot, l.ShownPart = true, 4*time.Second
	s.Add(l, 0)
	if state := s.State(); state.DurationNS != 4e9 || state.Groups[0].PerSecond != 25 || !state.Snapshot {
		t.Errorf("%+v", state)
	}
}

// TestBudget compares costs with ones computed by hand.
func TestBudget(t *testing.T) {
	for _, c := range []struct {
		name          string
		events, bytes int64
		procs         int
		snapshot      bool
		every         time.Duration
		share         float64
		over          bool
	}{
		{"hardly anything", 1000, 5000, 2, false, 5 * time.Second, 1e-5, false},
		// 2,000,000 events take 200 ms of 2 CPUs: 10 % during the trace, and 2 % over 5 s.
		{"just within it", 2e6, 1e7, 2, false, 5 * time.Second, 0.02, false},
		{"four times that", 8e6, 4e7, 2, false, 20 * time.Second, 0.02, false},
		{"on more CPUs", 8e6, 4e7, 8, false, 5 * time.Second, 0.02, false},
		// 10 MB of a snapshot take 200 ms.
		{"a snapshot", 8e6, 1e7, 2, true, 5 * time.Second, 0.02, false},
		{"beyond all", 4e8, 2e9, 2, false, 5 * time.Minute, 20.0 / 300, true},
		{"of no known size", 0, 1e7, 0, false, 10 * time.Second, 0.02, false},
	} {
		rep := made()
		rep.Input.Events, rep.Input.GOMAXPROCS = c.events, c.procs
		l := poll(rep, 0)
		l.Bytes, l.Snapshot = c.bytes, c.snapshot
		s := watch.New("svc", budget())
		got := s.Add(l, 0)
		cost := s.State().Cost
		if got != c.every || cost.IntervalNS != int64(c.every) || math.Abs(cost.Share-c.share) > 1e-9 || cost.Exceeded != c.over || (cost.Share > 0.02+1e-9) != c.over {
			t.Errorf("%s: every %v, %+v", c.name, got, cost)
		}
	}
	// A trace never begins before the end of the last one.
	if got, _ := (watch.Budget{Share: 0.5, MinInterval: time.Second}).Interval(watch.Cost{CPU: time.Millisecond, Window: 3 * time.Second, Procs: 1}); got != 3*time.Second {
		t.Errorf("every %v", got)
	}
}

// TestShifts: the last polls are compared with those before, without polls that have no requests. Normal variation between
// polls is no evidence, a lasting doubling is, and a group with three polls has no shift. A comparison of single polls, which
// are too short for intervals, never had evidence.
func TestShifts(t *testing.T) {
	s := watch.New("svc", budget())
	second := 0
	see := func(groups ...report.Group) {
		s.Add(poll(made(groups...), second), 0)
		second += 5
	}
	shiftOf := func(name string) *watch.Shift {
		state := s.State()
		for _, x := range state.Shifts() {
			if x.Name == name {
				return &x
			}
		}
		return nil
	}
	wobble := []int64{100, 104, 97, 101, 99, 103, 98, 102}
	for i, v := range wobble {
		see(group("twice", 100, v*1e6, report.CauseSleep), group("same", 100, wobble[len(wobble)-1-i]*1e6, report.CauseSleep))
		if i == 3 {
			see() // without requests
		}
		if x := shiftOf("twice"); (x != nil) != (i >= 3) || x != nil && (x.Evidence || x.OldPolls+x.NewPolls != i+1) {
			t.Errorf("after %d looks: %+v", i+1, x)
		}
	}
	for _, v := range []int64{205, 198, 202} {
		see(group("twice", 100, v*1e6, report.CauseSleep), group("same", 100, 100e6, report.CauseSleep), group("new", 100, 1e6, report.CauseSleep))
	}
	x := shiftOf("twice")
	check.True(t, x != nil && x.Evidence && x.OldPolls == 8 && x.NewPolls == 3 && x.Est >= 0.9 && x.Est <= 1.1 && *x.Low >= 0.8 && *x.High <= 1.2,
		"twice as slow: %+v", x)
	if x := shiftOf("same"); x == nil || x.Evidence {
		t.Errorf("the same: %+v", x)
	}
	if x := shiftOf("new"); x != nil {
		t.Errorf("three looks tell %+v", x)
	}
}
