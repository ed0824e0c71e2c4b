package validate

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestRequestRules breaks each rule about requests once.
func TestRequestRules(t *testing.T) {
	whole := func() *path.WalkResult {
		return &path.WalkResult{
			Req: &request.Request{Kind: request.HTTP1, Start: 100, End: 200, G: 7}, Weight: 1, Start: 100, PathStart: 100, ReadyNS: 20,
			Segments: []cause.Segment{{Start: 100, End: 130}, {Start: 130, End: 200}}, CauseTimes: []path.CauseTime{{Cause: 1, NS: 30}, {Cause: 2, NS: 70}},
		}
	}
	for _, tc := range []struct {
		rule  string
		spoil func(*path.WalkResult)
	}{
		{"", func(*path.WalkResult) {}},
		{"", func(w *path.WalkResult) { w.Start = 50; w.Req.Open = true }}, // began before the part of the trace that is left
		{"weights", func(w *path.WalkResult) { w.Weight = 0 }},
		{"bounds", func(w *path.WalkResult) { w.PathStart = 90 }},
		{"bounds", func(w *path.WalkResult) { w.Req.End = 99 }},
		{"segments", func(w *path.WalkResult) { w.Segments[1].Start = 131 }},
		{"segments", func(w *path.WalkResult) { w.Segments[1].End = 199 }},
		{"segments", func(w *path.WalkResult) { w.Segments[0].End = 100 }},
		{"sums", func(w *path.WalkResult) { w.CauseTimes[0].NS = 29 }},
		{"sums", func(w *path.WalkResult) { w.CauseTimes = append(w.CauseTimes, path.CauseTime{Cause: 3}) }},
		{"ready", func(w *path.WalkResult) { w.ReadyNS = 101 }},
	} {
		var v Requests
		w := whole()
		tc.spoil(w)
		v.NewAdder(nil).Add(w)
		v.merge()
		switch {
		case tc.rule == "" && v.Total > 0:
			t.Errorf("a sound request breaks %v", v.Err())
		case tc.rule != "" && (v.Total != 1 || v.List[0].Rule != tc.rule):
			t.Errorf("of a request that breaks %q it says: %v", tc.rule, v.Err())
		}
	}
}

// TestCounts: a report that lost a request or a nanosecond, or that counts a request twice, breaks a rule.
func TestCounts(t *testing.T) {
	for _, tc := range []struct {
		group report.Group
		right bool
	}{
		{report.Group{Kind: report.KindHTTP1, Count: 2, TotalNS: 200, Open: report.Open{Count: 1}}, true},
		{report.Group{Kind: report.KindHTTP1, Count: 1, TotalNS: 200, Open: report.Open{Count: 1}}, false},
		{report.Group{Kind: report.KindHTTP1, Count: 2, TotalNS: 199, Open: report.Open{Count: 1}}, false},
		{report.Group{Kind: report.KindHTTP1, Count: 2, TotalNS: 200}, false},
		{report.Group{Kind: report.KindHTTP1, Count: 2, TotalNS: 200, Open: report.Open{Count: 1}, CutAtStart: 1}, false},
		{report.Group{Kind: report.KindLoop, Count: 1, TotalNS: 10}, false},
	} {
		var v Requests
		for i := range 3 {
			v.NewAdder(nil).Add(&path.WalkResult{
				Req: &request.Request{Kind: request.HTTP1, Start: 100, End: 200, Open: i == 2}, Weight: 1, Start: 100, PathStart: 100,
				Segments: []cause.Segment{{Start: 100, End: 200}}, CauseTimes: []path.CauseTime{{Cause: 1, NS: 100}},
			})
		}
		v.Report(&report.Report{Groups: []report.Group{tc.group}}, true)
		check.True(t, (v.Total == 0) == tc.right, "%+v: %v", tc.group, v.Err())
	}
}

// TestBandsRule breaks the rule about bands: a cause has more time in a part of the requests than in all.
func TestBandsRule(t *testing.T) {
	cause := func(name report.CauseName, line int, ns int64) report.Cause {
		return report.Cause{Cause: name, Site: &report.Site{Func: "main.f", Line: line}, TotalNS: ns}
	}
	for _, tc := range []struct {
		says              string
		all, p50, p99     int64
		name              report.CauseName
		otherLine, broken bool
	}{
		{says: "as much together as all", all: 10e6, p50: 4e6, p99: 6e6, name: report.CauseCPU},
		{says: "more in one", all: 2e6, p50: 0, p99: 6e6, name: report.CauseCPU, broken: true},
		{says: "running time by function", all: 10e6, p50: 4e6, p99: 6e6, name: report.CauseCPU, otherLine: true},
		{says: "a line that all do not have", all: 10e6, p50: 4e6, p99: 6e6, name: report.CauseSleep, otherLine: true, broken: true},
	} {
		line := 1
		if tc.otherLine {
			line = 2
		}
		var v Requests
		v.checkBands(&report.Report{Groups: []report.Group{{Name: "main.f", Bands: []report.Band{
			{Causes: []report.Cause{cause(tc.name, 1, tc.all)}}, {Causes: []report.Cause{cause(tc.name, line, tc.p50)}}, {Causes: []report.Cause{cause(tc.name, line, tc.p99)}},
		}}}})
		check.True(t, (v.Err() != nil) == tc.broken, "%s: %v", tc.says, v.Err())
	}
}

// TestChecks: the problems of all checks and of the report are in one list.
func TestChecks(t *testing.T) {
	var c Checks
	c.timelines.add("gaps", "a gap")
	c.requests.add("sums", "a sum")
	c.requests.Walked = 3
	rep := new(report.Report)
	rep.Runtime.Throttle.Verdict = "perhaps"
	c.Report(rep, true)
	err := c.Err()
	for _, text := range []string{"gaps: a gap", "sums: a sum", "report: "} {
		check.True(t, err != nil && strings.Contains(err.Error(), text), "%q is not among the problems: %v", text, err)
	}
	if s := c.String(); !strings.HasSuffix(s, "3 requests") {
		t.Errorf("it says that it checked %s", s)
	}
}
