package rows

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestHeadroom: a headroom is the load at the first limit, relative to the recorded one, with all limits that are not judged.
// Where the recorded load is no load of today's clients, the reason is given instead.
func TestHeadroom(t *testing.T) {
	limit := report.Limit{Kind: report.LimitLock, Servers: 1, Site: &report.Site{Func: "main.(*journal).append", File: "/src/main.go", Line: 126}, SaturatesPerS: 130, SaturatesLow: 120, SaturatesHigh: 140}
	hostile := limit
	hostile.SaturatesPerS, hostile.SaturatesHigh, hostile.SaturatesLow = math.NaN(), math.Inf(1), math.Inf(-1)
	pool := report.NotJudged{Kind: report.LimitPool, Site: &report.Site{Func: "main.f", File: "/src/main.go", Line: 3}, Reason: "x"}
	for situation, c := range map[string]struct {
		capacity *report.Capacity
		want     Headroom
	}{
		"no load":          {nil, Headroom{Reason: "no client waits for a request"}},
		"few requests":     {&report.Capacity{LoadPerS: 9, Limits: []report.Limit{limit}}, Headroom{Reason: "too few requests (18) in a recording"}},
		"enough requests":  {&report.Capacity{LoadPerS: 10, Limits: []report.Limit{limit}}, Headroom{Times: 13, Low: 12, High: 14, Limit: "lock main.(*journal).append main.go:126"}},
		"closed":           {&report.Capacity{LoadPerS: 100, ClosedClients: 4, Limits: []report.Limit{limit}}, Headroom{Reason: "each client sends the next request when it has an answer, so the load cannot rise by itself"}},
		"no limit":         {&report.Capacity{LoadPerS: 100, NotJudged: []report.NotJudged{pool}}, Headroom{Reason: "no limit shows", NotJudged: "pool main.f main.go:3"}},
		"a lock":           {&report.Capacity{LoadPerS: 100, Limits: []report.Limit{limit}}, Headroom{Times: 1.3, Low: 1.2, High: 1.4, Limit: "lock main.(*journal).append main.go:126"}},
		"a lock and pools": {&report.Capacity{LoadPerS: 100, Limits: []report.Limit{limit}, NotJudged: []report.NotJudged{pool, {Reason: "others"}}}, Headroom{Times: 1.3, Low: 1.2, High: 1.4, Limit: "lock main.(*journal).append main.go:126", NotJudged: "pool main.f main.go:3"}},
		"no number":        {&report.Capacity{LoadPerS: 100, Limits: []report.Limit{hostile}}, Headroom{High: maxTimes, Limit: "lock main.(*journal).append main.go:126", Reason: "no limit shows"}},
	} {
		check.Equal(t, headroomOf(&report.Report{Input: report.Input{DurationNS: 2e9}, Capacity: c.capacity}), c.want, "%s", situation)
	}
}

// TestLengths: texts of a recording are cut, so that a hostile one cannot fill the store.
func TestLengths(t *testing.T) {
	long := strings.Repeat("x", 5000)
	site := &report.Site{Func: long, File: "/src/main.go", Line: 1}
	rep := &report.Report{Groups: []report.Group{{ID: "g", Name: long, Histogram: [][2]int64{{8, 1}}, HistogramCauses: map[report.CauseName][]int64{report.CauseName(long): {5}},
		Slowest: []report.Request{{ID: long, TraceID: long, Segments: []report.Segment{{DurationNS: 1, Cause: report.CauseName(long), Site: site}}}}}},
		Findings: []report.Finding{{Group: "g", Code: report.RuleCode(long), Cause: report.CauseName(long), Severity: report.Severity(long), Title: long, Fix: long, Site: site}, {Group: long}}}
	r := FromReport(Labels{Service: "a"}, time.Now(), rep)
	f, q := &r.Findings[0], &r.SlowRequests[0]
	var got []int
	for _, text := range []string{r.Sums[1].Group, r.Sums[1].Cause, r.Cause, q.Request, q.Group, q.Trace, q.Cause, q.Site, f.Group, f.Code, f.Cause, f.Severity, f.Title, f.Site, f.Fix, r.Findings[1].Group} {
		got = append(got, len(text))
	}
	check.Equal(t, fmt.Sprint(got), "[256 64 64 64 256 64 64 1024 256 64 64 16 1024 1024 2048 256]", "lengths")
	check.Equal(t, len(f.Problem), 16, "the length of an id")
}
