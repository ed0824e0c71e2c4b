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

// TestWin: the win exceeds neither the interpolated prediction nor the time of the cause.
func TestWin(t *testing.T) {
	ns := func(v int64) *int64 { return &v }
	predicted := func(was50, is50, was99, is99 int64) *report.Predicted {
		return &report.Predicted{WasP50NS: ns(was50), P50NS: report.Estimate{Est: is50}, WasP99NS: ns(was99), P99NS: report.Estimate{Est: is99}}
	}
	for _, c := range []struct {
		situation string
		p         *report.Predicted
		// The cause's share of 1,000 requests with 10 ms each.
		share float64
		want  int64
	}{
		{"no prediction", nil, 0.5, 0},
		{"all requests win 4 ms", predicted(10e6, 6e6, 10e6, 6e6), 0.5, 4e9},
		{"one in ten wins 40 ms: the cause has 40 % of the time", predicted(5e6, 5e6, 50e6, 10e6), 0.4, 4e9},
		{"the middle wins 2 ms, and the slow ones 10 ms", predicted(5e6, 3e6, 20e6, 10e6), 0.9, 1000 * (0.5*2e6 + 0.49*(2e6+10e6)/2 + 0.01*10e6)},
		{"the slow ones win 1 ms, and the middle 4 ms", predicted(9e6, 5e6, 20e6, 19e6), 0.9, 1000 * (0.5*4e6 + 0.49*(4e6+1e6)/2 + 0.01*1e6)},
		{"nothing is won", predicted(10e6, 10e6, 10e6, 10e6), 0.9, 0},
		{"a prediction of loss", predicted(10e6, 12e6, 10e6, 12e6), 0.9, 0},
	} {
		check.Equal(t, PredictedWin(&report.Finding{Predicted: c.p, Share: c.share}, &report.Group{Count: 1000, TotalNS: 10e9}), c.want,
			"%s", c.situation)
	}
}

// TestAdd: the sums hold all requests and times of a report, in buckets that are 12.5 % wide. Groups beyond the bound count as
// one.
func TestAdd(t *testing.T) {
	rep := new(report.Report)
	var count, totalNS int64
	for i := range maxGroups + 50 {
		g := report.Group{Name: fmt.Sprintf("g%03d", i), TotalNS: int64(1000 - i), HistogramCauses: map[report.CauseName][]int64{"cpu": nil}}
		for v := int64(1); v < 1e9; v *= 3 {
			g.Histogram = append(g.Histogram, [2]int64{v, v%7 + 1})
			g.HistogramCauses["cpu"] = append(g.HistogramCauses["cpu"], v)
			count += v%7 + 1
			totalNS += v
		}
		rep.Groups = append(rep.Groups, g)
	}
	received := time.Now()
	future := received.Add(time.Hour)
	rep.Input.Start = &future
	r := FromReport(Labels{Service: "a"}, received, rep)
	groups := make(map[string]bool)
	var n, ns int64
	for _, s := range r.Sums {
		groups[s.Group] = true
		n += s.N
		ns += s.NS
		check.True(t, s.Bucket >= 1 && s.Bucket <= 1.125e9, "bucket %d", s.Bucket)
	}
	if n != count || ns != totalNS || r.Requests != count || len(groups) != maxGroups+1 || !groups[OtherLabel] || r.Cause != "cpu" || !r.Start.Equal(received) {
		t.Errorf("%d of %d requests, %d of %d ns, %d groups, %+v", n, count, ns, totalNS, len(groups), r.Start)
	}
}

// TestIgnored: ignored findings and those of severity info are no findings of the fleet.
func TestIgnored(t *testing.T) {
	r := FromReport(Labels{Service: "a"}, time.Now(), &report.Report{Groups: []report.Group{{ID: "g1", Name: "GET /"}}, Findings: []report.Finding{
		{Group: "g1", Code: "WL2001", Severity: report.SeverityHigh, Ignored: "known"},
		{Group: "g1", Code: "WL2002", Severity: report.SeverityInfo},
		{Group: "g1", Code: "WL2003", Severity: report.SeverityLow},
		{Group: "g1", Code: "WL2004", Severity: report.SeverityHigh},
		{Group: "g1", Code: "WL2004", Severity: report.SeverityHigh},
	}})
	var got []string
	for _, f := range r.Findings {
		got = append(got, f.Code)
	}
	check.Equal(t, strings.Join(got, " "), "WL2003 WL2004", "%q", got)
}

// TestFromReport: the rows of a report besides its sums, and the finding of a problem.
func TestFromReport(t *testing.T) {
	site := func(line int) *report.Site { return &report.Site{Func: "main.f", File: "/src/main.go", Line: line} }
	received, start := time.Unix(2000, 0), time.Unix(1000, 0)
	rep := &report.Report{Input: report.Input{Start: &start}, Groups: []report.Group{{ID: "g1", TotalNS: 5, Histogram: [][2]int64{{1024, 1}}}, {ID: "g2", Name: "GET /", TotalNS: 9, Count: 7}}}
	for i := range maxSlow + 2 {
		rep.Groups[1].Slowest = append(rep.Groups[1].Slowest, report.Request{ID: fmt.Sprint("r", i), StartNS: 3e9, LatencyNS: int64(i), DatadogSpanID: "d"})
	}
	rep.Groups[0].Slowest = []report.Request{{ID: "r", TraceID: "t", LatencyNS: 100, DatadogSpanID: "d", Segments: []report.Segment{{DurationNS: 2, Cause: "cpu", Site: site(1)}, {DurationNS: 3, Cause: "lock", Site: site(2)}, {DurationNS: 3, Cause: "gc"}}}}
	rep.Findings = []report.Finding{{Group: "g1", Code: "WL2001", Severity: "low", Site: site(1)}, {Group: "g2", Code: "WL2001", Severity: "high", Site: site(2)}, {Group: "g2", Code: "WL2001", Severity: "high"}}
	l := Labels{Service: "a"}
	r := FromReport(l, received, rep)
	check.True(t, r.Start.Equal(start) && len(r.SlowRequests) == maxSlow && len(r.Findings) == 3, "%+v", r)
	check.Equal(t, r.Sums[0], Sum{Group: "(unnamed)", Bucket: 1024, N: 1}, "a bound of the report's buckets is one of the rows'")
	check.Equal(t, r.SlowRequests[0], SlowRequest{Request: "r", Group: "(unnamed)", Cause: "lock", Site: "main.f (main.go:2)", Trace: "t", Start: start, NS: 100}, "slowest")
	check.Equal(t, r.SlowRequests[1], SlowRequest{Request: fmt.Sprint("r", maxSlow+1), Group: "GET /", Trace: "d", Start: start.Add(3 * time.Second), NS: maxSlow + 1}, "second")
	check.Equal(t, r.Findings[1].Requests, 7, "requests of the finding's group")
	for i, f := range r.Findings {
		check.True(t, FindProblem(l, rep, f.Problem) == &rep.Findings[i] && FindProblem(Labels{Service: "b"}, rep, f.Problem) == nil, "%+v", f)
	}
	for _, unusable := range []time.Time{received.Add(1), time.Unix(0, 0)} {
		rep.Input.Start = &unusable
		check.True(t, FromReport(l, received, rep).Start.Equal(received), "%v", unusable)
	}
	rep.Input.Start = &received
	check.True(t, FromReport(l, received, rep).Start.Equal(received), "received at once")

	before := r.Findings[2].Problem
	r.SetProblemIDs(Labels{Service: "a", Environment: "live"})
	check.True(t, r.Findings[2].Problem != before, "the environment is not in the id")
	r.Findings[1].WinNS, r.Findings[2].WinNS, r.Findings[2].Requests = 4, 3, 9
	check.False(t, r.FoldFindings("a", func(*Finding) bool { return true }), "folded")
	folded := r.FoldFindings("a", func(f *Finding) bool { return f.Code == "WL2001" && f.Group == "" || f.Severity == "low" })
	check.True(t, folded && len(r.Findings) == 2 && r.Findings[1].Code == OtherLabel && r.Findings[1].WinNS == 4 && r.Findings[1].Requests == 9, "%+v", r.Findings)
	var visited []string
	(&Rows{Requests: 5, DurationNS: 6, Sums: []Sum{{Group: "s"}}, Findings: []Finding{{Problem: "p", Requests: 7, WinNS: 8}}}).VisitSums(func(s *Sum) { visited = append(visited, s.Group) }, func(problem string, n, requests, ns int64) {
		visited = append(visited, fmt.Sprint(problem, " ", n, requests, ns))
	})
	check.Equal(t, strings.Join(visited, ", "), "s,  1 5 6, p 1 7 8", "sums")
	check.Equal(t, LowerBound(1024), 960, "lower bound")
}

// TestBounds: for reports with extreme numbers, all rows are within their bounds.
func TestBounds(t *testing.T) {
	ns := func(v int64) *int64 { return &v }
	for _, extreme := range []int64{math.MaxInt64, math.MinInt64, 1 << 44 * 40_000} {
		g := report.Group{ID: "g1", Name: "GET /", Count: int(extreme), TotalNS: extreme, Histogram: [][2]int64{{1000, extreme}, {1001, extreme}, {extreme, extreme}},
			HistogramCauses: map[report.CauseName][]int64{"cpu": {extreme, extreme, extreme}}}
		start := time.Time{}
		rep := &report.Report{Input: report.Input{DurationNS: extreme, Start: &start}, Groups: []report.Group{g, g, g}, Findings: []report.Finding{{Group: "g1", Severity: report.SeverityHigh, Share: float64(extreme),
			Predicted: &report.Predicted{WasP50NS: ns(extreme), WasP99NS: ns(extreme), WasMaxNS: ns(extreme), MaxNS: &report.Estimate{}, P50NS: report.Estimate{Est: -extreme}}}}}
		received := time.Now()
		r := FromReport(Labels{Service: "a"}, received, rep)
		checkRange := func(quantity string, v, limit int64) {
			check.True(t, v >= 0 && v <= limit, "of %d, %s is %d", extreme, quantity, v)
		}
		checkRange("its duration", r.DurationNS, maxNS)
		checkRange("requests", r.Requests, maxCount)
		for _, s := range r.Sums {
			checkRange("a sum", s.NS, maxNS)
			checkRange("a number", s.N, maxCount)
			checkRange("a bucket", s.Bucket, math.MaxInt64)
		}
		for _, f := range r.Findings {
			checkRange("a gain", f.WinNS, maxNS)
			checkRange("requests of a finding", f.Requests, maxCount)
		}
		check.True(t, r.Start.Equal(received) && len(r.Findings) == 1 && len(r.Sums) != 0, "%+v", r)
	}
	if got := PredictedWin(&report.Finding{Share: math.NaN(), Predicted: &report.Predicted{WasP99NS: ns(5)}}, &report.Group{Count: 1, TotalNS: 1}); got != 0 {
		t.Errorf("a share that is no number wins %d", got)
	}
	if AddClamped(MaxSum, MaxSum) != MaxSum || AddClamped(math.MaxInt64, 1) != MaxSum || AddClamped(-5, 3) != 3 || AddClamped(2, 3) != 5 {
		t.Error("sums are not added")
	}
}

// TestText: CleanText removes control characters, invalid UTF-8 and changes of the writing direction.
func TestText(t *testing.T) {
	if got := CleanText("a\nb\x00\xff\u202ec\u2066d-und-mehr", 14); got != "abcd-" {
		t.Errorf("%q", got)
	}
}

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
