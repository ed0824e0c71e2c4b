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
	check.True(t, AddClamped(MaxSum, MaxSum) == MaxSum && AddClamped(math.MaxInt64, 1) == MaxSum && AddClamped(-5, 3) == 3 && AddClamped(2, 3) == 5,
		"sums are not added")
}

// TestText: CleanText removes control characters, invalid UTF-8 and changes of the writing direction.
func TestText(t *testing.T) {
	if got := CleanText("a\nb\x00\xff\u202ec\u2066d-und-mehr", 14); got != "abcd-" {
		t.Errorf("%q", got)
	}
}
