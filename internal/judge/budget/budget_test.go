package budget

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

func TestParse(t *testing.T) {
	for in, want := range map[string][]Limit{
		"p99=50ms":                      {{Stat: "p99", NS: 50e6}},
		"p99.9=1s,mean=10us":            {{Stat: "p999", NS: 1e9}, {Stat: "mean", NS: 10e3}},
		"group=main.handleX,p99=20ms":   {{Group: "main.handleX", Stat: "p99", NS: 20e6}},
		"max=1m, group = main.(*s).sub": {{Group: "main.(*s).sub", Stat: "max", NS: 60e9}},
		"group=main.F[int,map[string]bool],p50=1ms,gc=2.5%": {
			{Group: "main.F[int,map[string]bool]", Stat: "p50", NS: 1e6}, {Group: "main.F[int,map[string]bool]", Cause: "gc", Band: "all", Share: 0.025}},
		"sched=5%":                      {{Cause: "sched", Band: "all", Share: 0.05}},
		"p99-max:sched=20%":             {{Cause: "sched", Band: "p99-max", Share: 0.2}},
		"all:sleep=0%,p50-90:lock=100%": {{Cause: "sleep", Band: "all"}, {Cause: "lock", Band: "p50-90", Share: 1}},
		"":                              nil, "p99": nil, "p99=": nil, "=5ms": nil, "p99=5": nil, "p99=0s": nil, "p99=-1ms": nil, "p98=1ms": nil, "sched=0.05": nil, "sched=5": nil,
		"sched=-1%": nil, "sched=101%": nil, "sched=NaN%": nil, "sched=Inf%": nil, "other=5%": nil, "p99:sched=5%": nil, "p99-max:p99=5ms": nil, "group=x": nil,
		"group=a,group=b,p99=1s": nil, "p99=1ms,": nil, "]),p99=1ms": nil, "CPU=5%": nil,
	} {
		got, err := Parse(in)
		check.True(t, reflect.DeepEqual(got, want) && (err == nil) == (want != nil), "Parse(%q) = %+v, %v, want %+v", in, got, err, want)
		check.False(t, err != nil && strings.Contains(err.Error(), "\n"), "Parse(%q): the error is more than a line: %v", in, err)
	}
}

// FuzzParse: the metric of an accepted limit is accepted again.
func FuzzParse(f *testing.F) {
	f.Add("group=main.F[a,b],p99=50ms,p99-max:sched=5%")
	f.Fuzz(func(t *testing.T, s string) {
		limits, err := Parse(s)
		must.Equal(t, err == nil, (len(limits) > 0), "%d limits, error %v", len(limits), err)
		for _, l := range limits {
			value := "=5%"
			if l.Stat != "" {
				value = "=5ms"
			}
			reparsed, err := Parse(l.Metric() + value)
			check.True(t, err == nil && reparsed[0].Metric() == l.Metric(), "%+v is written as %q, which is %+v, %v", l, l.Metric(), reparsed, err)
			if !(l.Share >= 0 && l.Share <= 1) || l.Stat != "" && l.NS <= 0 {
				t.Errorf("%+v", l)
			}
		}
	})
}

func ns(v int64) *int64 { return &v }

func site(fn, file string, line int) *report.Site {
	return &report.Site{Func: fn, File: file, Line: line}
}

// sample is a report with two groups, one of which has too few requests for a p99.
func sample() *report.Report {
	causes := []report.Cause{
		{Cause: "sleep", Site: site("main.backoff", "/src/shop/main.go", 30), TotalNS: 500, Share: 0.5, Requests: 900},
		{Cause: "sched", Site: site("main.render", "/src/shop/main.go", 20), TotalNS: 200, Share: 0.2, Requests: 900},
		{Cause: "sched-wake", Site: site("db.query", "/go/mod/db.go", 7), TotalNS: 100, Share: 0.1, Requests: 90},
		{Cause: "gc-assist", TotalNS: 80, Share: 0.08}, {Cause: "stw", Kind: "GC mark termination", TotalNS: 20, Share: 0.02},
		{Cause: "stw", Kind: "ReadMemStats", TotalNS: 60, Share: 0.06}, {Cause: report.CauseOther, TotalNS: 40, Share: 0.04},
	}
	return &report.Report{
		Schema: report.Schema, Input: report.Input{Name: "x.trace", DurationNS: 10e9},
		Groups: []report.Group{
			{ID: "g1", Name: "github.com/acme/shop.handle", Kind: "http1", Count: 1000,
				LatencyNS: report.Latency{Mean: ns(10e6), P50: ns(9e6), P90: ns(20e6), P99: ns(60e6), P999: ns(80e6), Max: ns(90e6)},
				Bands:     []report.Band{{Band: report.BandAll, Count: 1000, Causes: causes}, {Band: report.Band99, Count: 10, Causes: causes[:1]}, {Band: report.Band9099}}},
			{ID: "g2", Name: "main.rare", Kind: "http1", Count: 7, Open: report.Open{Count: 1, OldestNS: 3e9},
				LatencyNS: report.Latency{Mean: ns(1e6), P50: ns(1e6), Max: ns(2e6)}, Bands: []report.Band{{Band: report.BandAll, Count: 7}}},
			{ID: "g3", Name: "main.idle", Kind: "http1", Open: report.Open{Count: 2}},
		},
		Findings: []report.Finding{
			{ID: "f1", Code: "WL2001", Severity: report.SeverityHigh, Title: "a sleep is on the path", Group: "g1", Site: site("main.backoff", "/src/shop/main.go", 30), Fix: "do not"},
			{Code: "WL3001", Severity: report.SeverityMedium, Title: "assists", Group: "g1"},
			{ID: "f3", Code: "WL5001", Severity: report.SeverityInfo, Title: "few requests"},
			{ID: "f4", Code: "WL1001", Severity: report.SeverityHigh, Title: "accepted", Ignored: "known"},
		},
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		budget string
		want   []string // kind and the beginning of the text
	}{
		{"group=g1,p99=60ms", nil},
		{"group=g1,p99=59ms", []string{"budget shop.handle: p99 is 60.0ms, over the budget of 59.0ms; 50% of that time is sleep at main.backoff main.go:30"}},
		{"group=shop.handle,max=1s,mean=9ms", []string{"budget shop.handle: mean is 10.0ms, over the budget of 9.00ms"}},
		{"group=github.com/acme/shop.handle,p90=1s", nil},
		{"p50=5ms", []string{"budget shop.handle: p50 is 9.00ms"}},
		{"p99=1s", nil}, // unknown for main.rare: one of its requests has been open for 3 s
		{"group=main.rare,p99=1s", []string{"unknown main.rare: p99 cannot be known from 7 requests, it needs about 100: record longer, or under more load; 1 are still running, the oldest for 3.00s"}},
		{"group=main.rare,p99=10s", []string{"unknown main.rare: p99 cannot be known from 7 requests"}}, // the group is named, so an unknown value is a violation
		{"group=main.idle,mean=1s", []string{"unknown main.idle: mean cannot be known from 0 requests"}},
		{"group=nosuch,p99=1s", []string{"no-group p99 of nosuch cannot be checked: no group has that name; the groups are shop.handle, main.rare, main.idle"}},
		{"group=g1,sched=30%", nil}, // the rounding error of a sum of floats is no violation
		{"group=g1,sched=29.9%", []string{"budget shop.handle: sched takes 30% of the time of all requests, over the budget of 29.9%; most of it is sched at main.render main.go:20"}},
		{"group=g1,sched-wake=10%,sched-poll=0%", nil},
		{"group=g1,gc=10%", nil},
		{"group=g1,gc=9%", []string{"budget shop.handle: gc takes 10% of the time of all requests, over the budget of 9%; most of it is gc-assist"}},
		{"group=g1,stw=7%", []string{"budget shop.handle: stw takes 8% of the time of all requests, over the budget of 7%; most of it is stw (ReadMemStats)"}},
		{"group=g1,p99-max:sched=0%,p99-max:sleep=50%", nil},
		{"group=g1,p90-99:sched=1%", []string{"unknown shop.handle: the share of sched is unknown: none of "}},
		{"group=g2,p50-90:sched=1%", []string{"unknown main.rare: the share of sched is unknown"}},
	} {
		limits := must.Have(Parse(c.budget))(t)
		r := Check(sample(), Rules{Limits: limits})
		ok := len(r.Violations) == len(c.want) && r.OK == (len(c.want) == 0) && r.Checked > 0
		for i := range min(len(c.want), len(r.Violations)) {
			v := r.Violations[i]
			ok = ok && strings.HasPrefix(v.Kind+" "+v.Text, c.want[i]) && v.ID != "" && v.Severity == report.SeverityHigh
		}
		check.True(t, ok, "%s: %+v, want %q", c.budget, r, c.want)
	}
	emptyResult := Check(&report.Report{Input: report.Input{Name: "x"}}, Rules{Limits: []Limit{{Stat: "p99", NS: 1}}})
	check.True(t, !emptyResult.OK && len(emptyResult.Violations) == 1 && emptyResult.Violations[0].Kind == KindGroup,
		"a report without requests keeps a budget: %+v", emptyResult)
}

// TestFewOfAll: if a group has too few requests for a percentile, a limit for all groups passes for it if none took longer;
// else there is a note, and a violation if no other group of requests could be judged.
func TestFewOfAll(t *testing.T) {
	rareGroup := func(role report.Role, longest, open int64) report.Group {
		return report.Group{Name: "main.few", Role: role, Count: 19, LatencyNS: report.Latency{Max: ns(longest)}, Open: report.Open{Count: 1, OldestNS: open}}
	}
	frequentGroup := report.Group{Name: "main.many", Count: 1000, LatencyNS: report.Latency{P99: ns(5e6), Max: ns(9e6)}}
	background := frequentGroup
	background.Role = report.RoleBackground
	for name, c := range map[string]struct {
		groups     []report.Group
		violations []string
		notes      int
	}{
		"below":                  {[]report.Group{frequentGroup, rareGroup("", 9e6, 0)}, nil, 0},
		"below, alone":           {[]report.Group{rareGroup("", 9e6, 0)}, nil, 0},
		"beyond":                 {[]report.Group{frequentGroup, rareGroup("", 20e6, 0)}, nil, 1},
		"open for longer":        {[]report.Group{frequentGroup, rareGroup("", 9e6, 20e6)}, nil, 1},
		"beyond, alone":          {[]report.Group{rareGroup("", 20e6, 0)}, []string{KindUnknown}, 0},
		"beyond, and background": {[]report.Group{rareGroup("", 20e6, 0), background}, []string{KindUnknown}, 0},
		"background beyond":      {[]report.Group{frequentGroup, rareGroup(report.RoleBackground, 20e6, 0)}, nil, 1},
	} {
		r := Check(&report.Report{Groups: c.groups}, Rules{Limits: []Limit{{Stat: "p99", NS: 10e6}}})
		var kinds []string
		for _, v := range r.Violations {
			kinds = append(kinds, v.Kind)
		}
		check.True(t, slices.Equal(kinds, c.violations) && len(r.Notes) == c.notes && r.OK == (len(c.violations) == 0), "%s: %+v", name, r)
	}
}

func TestShareThatIsNoNumber(t *testing.T) {
	rep := sample()
	rep.Groups[0].Bands[0].Causes[0].Share = math.NaN()
	check.False(t, Check(rep, Rules{Limits: []Limit{{Group: "g1", Cause: "sleep", Band: "all", Share: 0.9}}}).OK,
		"a share that is not a number keeps a budget")
}

func TestFailOn(t *testing.T) {
	for level, want := range map[report.Severity][]string{
		report.SeverityHigh: {"WL2001"}, report.SeverityMedium: {"WL2001", "WL3001"}, report.SeverityLow: {"WL2001", "WL3001"},
	} {
		var got []string
		for _, v := range Check(sample(), Rules{FailOn: level}).Violations {
			got = append(got, v.Code)
			check.True(t, v.ID != "" && v.Kind == KindFinding && strings.HasPrefix(v.Text, "shop.handle: "), "%+v", v)
		}
		check.True(t, slices.Equal(got, want), "%s: %q, want %q", level, got, want)
	}
	if r := Check(&report.Report{}, Rules{FailOn: report.SeverityLow}); !r.OK {
		t.Errorf("no findings: %+v", r)
	}
}

// TestIDsAreStable: ids do not change with values, lines and other violations. Otherwise every run would open new alerts.
func TestIDsAreStable(t *testing.T) {
	rules := Rules{FailOn: report.SeverityMedium, Limits: []Limit{{Group: "shop.handle", Stat: "p99", NS: 1}, {Group: "shop.handle", Cause: "sched", Band: "all"}, {Group: "gone", Stat: "max", NS: 1}}}
	ids := func(r *Result) (list []string) {
		for _, v := range r.Violations {
			list = append(list, v.ID)
		}
		return list
	}
	first := ids(Check(sample(), rules))
	moved := sample()
	moved.Input.Name = "y.trace"
	moved.Groups[0].LatencyNS.P99 = ns(61e6)
	for i := range moved.Groups[0].Bands[0].Causes {
		if s := moved.Groups[0].Bands[0].Causes[i].Site; s != nil {
			s.Line++
		}
	}
	moved.Groups = append(moved.Groups[:1:1], moved.Groups[2])
	if secondIDs := ids(Check(moved, rules)); !slices.Equal(first, secondIDs) || len(first) != 5 {
		t.Errorf("ids %q and %q", first, secondIDs)
	}
	isListed := map[string]bool{}
	for _, id := range first {
		check.False(t, isListed[id], "%s twice in %q", id, first)
		isListed[id] = true
	}
}

func TestGrowth(t *testing.T) {
	change := func(old, new, low, high int64) compare.Change {
		d := new - old
		return compare.Change{Old: &old, New: &new, Delta: &d, Low: &low, High: &high, Evidence: low > 0 || high < 0}
	}
	unchanged := change(10e6, 10e6, -1e6, 1e6)
	rows := []compare.Row{{Cause: "other", DeltaNS: 9e6}, {Cause: "cpu", DeltaNS: -5e6}, {Cause: "sleep", NewSite: site("main.f", "/f.go", 3), DeltaNS: 2e6}}
	tail := []compare.Row{{Cause: "syscall", NewSite: site("main.flush", "/g.go", 9), DeltaNS: 70e6}}
	for _, c := range []struct {
		name      string
		mean, p99 compare.Change
		tolerance float64
		want      string // beginning of the text
		at        string
	}{
		{"nothing", unchanged, unchanged, 0.05, "", ""},
		{"the whole interval beyond the tolerance", change(10e6, 12e6, 1.1e6, 3e6), unchanged, 0.1, "s: slower than the baseline: mean 12.0ms, was 10.0ms (+20%); mostly by sleep at main.f f.go:3, +2.00ms a request", "main.f"},
		{"the interval reaches into the tolerance", change(10e6, 12e6, 0.9e6, 3e6), unchanged, 0.1, "", ""},
		{"no tolerance", change(10e6, 12e6, 0.9e6, 3e6), unchanged, 0, "s: slower than the baseline: mean", "main.f"},
		{"faster", change(10e6, 5e6, -6e6, -4e6), change(10e6, 5e6, -6e6, -4e6), 0, "", ""},
		{"only the slowest", unchanged, change(10e6, 80e6, 60e6, 80e6), 0.1, "s: slower than the baseline: p99 80.0ms, was 10.0ms (+700%); mostly by syscall at main.flush g.go:9", "main.flush"},
		{"twentyfold", change(10e6, 200e6, 180e6, 200e6), change(1e6, 30e6, 20e6, 30e6), 0.1, "s: slower than the baseline: mean 200ms, was 10.0ms (x20), p99 30.0ms, was 1.00ms (x30)", "main.f"},
	} {
		r := &Result{}
		g := &compare.Group{Name: "s", Kind: "task", Mean: c.mean, P50: unchanged, P90: unchanged, P99: c.p99, Causes: rows, Tail: tail}
		r.checkGrowth(g, c.tolerance)
		switch {
		case c.want == "" && len(r.Violations) > 0, c.want != "" && len(r.Violations) != 1:
			t.Errorf("%s: %+v", c.name, r.Violations)
		case c.want != "" && (!strings.HasPrefix(r.Violations[0].Text, c.want) || r.Violations[0].Site.Func != c.at || r.Violations[0].ID == ""):
			t.Errorf("%s: %+v, want %s", c.name, r.Violations[0], c.want)
		}
		check.True(t, len(r.Notes) == 0, "%s: notes %+v", c.name, r.Notes)
	}
	// A number that cannot be compared gives a note.
	p99 := int64(5e6)
	r := &Result{}
	r.checkGrowth(&compare.Group{Name: "s", P99: compare.Change{Old: &p99}}, 0)
	check.True(t, len(r.Notes) == 2 && len(r.Violations) == 0, "too few requests: %+v", r)
}

// TestOnlyOneSide: a group that only one of two reports has gives a note.
func TestOnlyOneSide(t *testing.T) {
	base, rep := sample(), sample()
	base.Groups = append(base.Groups, report.Group{ID: "was", Name: "shop.was", Kind: report.KindTask})
	rep.Groups = append(rep.Groups, report.Group{ID: "is", Name: "shop.is", Kind: report.KindTask})
	got := map[string]string{}
	for _, n := range Check(rep, Rules{Baseline: base}).Notes {
		got[n.Code] = n.Text
	}
	if !strings.HasPrefix(got["vanished"], "shop.was is in the baseline but not in ") || got["appeared"] != "shop.is is not in the baseline: it was not compared" {
		t.Errorf("%q", got)
	}
}

// server returns a report of a server with two groups of requests, of which one shows no handler.
func server(named, unseen int, namedNS, unseenNS int64) *report.Report {
	group := func(id string, count int, ns int64) report.Group {
		return report.Group{
			ID: id, Name: id, Named: id != "unseen", Kind: report.KindHTTP1, Count: count, TotalNS: int64(count) * ns, Histogram: [][2]int64{{ns, int64(count)}},
			LatencyNS: report.Latency{Mean: &ns, P50: &ns, P90: &ns, P99: &ns, Max: &ns},
			Bands:     []report.Band{{Band: report.BandAll, Count: count, Causes: []report.Cause{{Cause: report.CauseSleep, TotalNS: int64(count) * ns, Share: 1}}}},
		}
	}
	return &report.Report{Groups: []report.Group{group("main.document", named, namedNS), group("unseen", unseen, unseenNS)}}
}

// TestAllRequests: a limit also concerns all requests of a server, whose percentiles no group shows, and can name them.
func TestAllRequests(t *testing.T) {
	rep := server(300, 700, 100<<20, 1<<20)
	check := func(budget string) []string {
		var groups []string
		for _, v := range Check(rep, Rules{Limits: must.Have(Parse(budget))(t)}).Violations {
			groups = append(groups, v.Group)
		}
		return groups
	}
	for budget, want := range map[string][]string{
		"group=all HTTP/1 requests,p90=50ms": {"all HTTP/1 requests"}, "group=all HTTP/1 requests,p50=50ms": nil, "group=all-http1,mean=20ms": {"all HTTP/1 requests"},
		"p90=50ms": {"main.document", "all HTTP/1 requests"}, "group=all HTTP/1 requests,sleep=90%": {"all HTTP/1 requests"},
		"group=all HTTP/1 requests,p99-max:sleep=90%": {""},
	} {
		if got := check(budget); !slices.Equal(got, want) && !(want != nil && want[0] == "" && len(got) == 1) {
			t.Errorf("%s: violations of %q, want %q", budget, got, want)
		}
	}
}

// TestMovedGroups: a group that lost requests to another one of its server is no violation of a baseline; all requests are compared.
func TestMovedGroups(t *testing.T) {
	r := Check(server(5, 995, 100<<20, 2<<20), Rules{Baseline: server(300, 700, 100<<20, 1<<20)})
	moved := 0
	for _, n := range r.Notes {
		if n.Code == "moved" {
			moved++
		}
	}
	check.True(t, moved == 2 && len(r.Violations) == 0, "%d notes: %+v, violations %+v", moved, r.Notes, r.Violations)
}
