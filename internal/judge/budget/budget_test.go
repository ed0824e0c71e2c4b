package budget

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/whylate/whylate/internal/judge/compare"
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
		if !reflect.DeepEqual(got, want) || (err == nil) != (want != nil) {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", in, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q): the error is more than a line: %v", in, err)
		}
	}
}

// FuzzParse: what is taken is written back as a metric that is taken again.
func FuzzParse(f *testing.F) {
	f.Add("group=main.F[a,b],p99=50ms,p99-max:sched=5%")
	f.Fuzz(func(t *testing.T, s string) {
		limits, err := Parse(s)
		if (err == nil) != (len(limits) > 0) {
			t.Fatalf("%d limits, error %v", len(limits), err)
		}
		for _, l := range limits {
			value := "=5%"
			if l.Stat != "" {
				value = "=5ms"
			}
			again, err := Parse(l.Metric() + value)
			if err != nil || again[0].Metric() != l.Metric() {
				t.Errorf("%+v is written as %q, which is %+v, %v", l, l.Metric(), again, err)
			}
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
		{"group=g1,p99=59ms", []string{"budget shop.handle: p99 is 60.0ms, the budget is 59.0ms; 50% of that time is sleep at main.backoff main.go:30"}},
		{"group=shop.handle,max=1s,mean=9ms", []string{"budget shop.handle: mean is 10.0ms, the budget is 9.00ms"}},
		{"group=github.com/acme/shop.handle,p90=1s", nil},
		{"p50=5ms", []string{"budget shop.handle: p50 is 9.00ms"}},
		{"p99=1s", []string{"unknown main.rare: p99 is not known from 7 requests, it needs about 100: record for longer, or under more load; 1 had not ended, the oldest after 3.00s"}},
		{"group=main.idle,mean=1s", []string{"unknown main.idle: mean is not known from 0 requests"}},
		{"group=nosuch,p99=1s", []string{"no-group p99 of nosuch cannot be held: no group is called that; there are shop.handle, main.rare, main.idle"}},
		{"group=g1,sched=30%", nil}, // a sum of floats, and at most is at most
		{"group=g1,sched=29.9%", []string{"budget shop.handle: sched has 30% of the time of all requests, the budget is 29.9%; most of it is sched at main.render main.go:20"}},
		{"group=g1,sched-wake=10%,sched-poll=0%", nil},
		{"group=g1,gc=10%", nil},
		{"group=g1,gc=9%", []string{"budget shop.handle: gc has 10% of the time of all requests, the budget is 9%; most of it is gc-assist"}},
		{"group=g1,stw=7%", []string{"budget shop.handle: stw has 8% of the time of all requests, the budget is 7%; most of it is stw (ReadMemStats)"}},
		{"group=g1,p99-max:sched=0%,p99-max:sleep=50%", nil},
		{"group=g1,p90-99:sched=1%", []string{"unknown shop.handle: the share of sched is not known: no requests in band p90-99"}},
		{"group=g2,p50-90:sched=1%", []string{"unknown main.rare: the share of sched is not known"}},
	} {
		limits, err := Parse(c.budget)
		if err != nil {
			t.Fatal(err)
		}
		r := Check(sample(), Rules{Limits: limits})
		ok := len(r.Violations) == len(c.want) && r.OK == (len(c.want) == 0) && r.Checked > 0
		for i := range min(len(c.want), len(r.Violations)) {
			v := r.Violations[i]
			ok = ok && strings.HasPrefix(v.Kind+" "+v.Text, c.want[i]) && v.ID != "" && v.Severity == report.SeverityHigh
		}
		if !ok {
			t.Errorf("%s: %+v, want %q", c.budget, r, c.want)
		}
	}
	none := Check(&report.Report{Input: report.Input{Name: "x"}}, Rules{Limits: []Limit{{Stat: "p99", NS: 1}}})
	if none.OK || len(none.Violations) != 1 || none.Violations[0].Kind != KindGroup {
		t.Errorf("a report without requests keeps a budget: %+v", none)
	}
}

func TestShareThatIsNoNumber(t *testing.T) {
	rep := sample()
	rep.Groups[0].Bands[0].Causes[0].Share = math.NaN()
	if r := Check(rep, Rules{Limits: []Limit{{Group: "g1", Cause: "sleep", Band: "all", Share: 0.9}}}); r.OK {
		t.Error("a share that is not a number keeps a budget")
	}
}

func TestFailOn(t *testing.T) {
	for level, want := range map[report.Severity][]string{
		report.SeverityHigh: {"WL2001"}, report.SeverityMedium: {"WL2001", "WL3001"}, report.SeverityLow: {"WL2001", "WL3001"},
	} {
		var got []string
		for _, v := range Check(sample(), Rules{FailOn: level}).Violations {
			got = append(got, v.Code)
			if v.ID == "" || v.Kind != KindFinding || !strings.HasPrefix(v.Text, "shop.handle: ") {
				t.Errorf("%+v", v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", level, got, want)
		}
	}
	if r := Check(&report.Report{}, Rules{FailOn: report.SeverityLow}); !r.OK {
		t.Errorf("no findings: %+v", r)
	}
}

// TestIDsAreStable: fingerprints must survive other values, lines and neighbours, or every run opens new alerts.
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
	if again := ids(Check(moved, rules)); !slices.Equal(first, again) || len(first) != 5 {
		t.Errorf("ids %q and %q", first, again)
	}
	seen := map[string]bool{}
	for _, id := range first {
		if seen[id] {
			t.Errorf("%s twice in %q", id, first)
		}
		seen[id] = true
	}
}

// unescape reads a workflow command as GitHub's runner does (ActionCommand.TryParseV2).
func unescape(t *testing.T, line string) (command string, props map[string]string, data string) {
	t.Helper()
	rest, ok := strings.CutPrefix(line, "::")
	head, data, ok2 := strings.Cut(rest, "::")
	if !ok || !ok2 {
		t.Fatalf("%q is no command", line)
	}
	command, list, _ := strings.Cut(head, " ")
	props = map[string]string{}
	for _, p := range strings.Split(list, ",") {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			t.Fatalf("%q: property %q", line, p)
		}
		props[k] = strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%").Replace(v)
	}
	return command, props, strings.NewReplacer("%0D", "\r", "%0A", "\n", "%25", "%").Replace(data)
}

func TestGitHub(t *testing.T) {
	hostile := "100%0A a\r\n::error file=x::b, c:d ##[error]"
	r := &Result{Violations: []Violation{
		{Code: "WL1,2:3::x%", Metric: "p99", Severity: report.SeverityHigh, Text: hostile, Site: site("f", "/src/shop/a,b:c::d%.go", 7)},
		{Code: "budget", Severity: report.SeverityMedium, Text: "plain", Site: site("f", "/elsewhere/x.go", 7)},
		{Code: "budget", Severity: report.SeverityLow, Text: "\x1b[2J", Site: site("f", "sub/x.go", 0)},
	}}
	var out bytes.Buffer
	if err := WriteGitHub(&out, r, "/src/shop"); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 3 || strings.ContainsAny(out.String(), "\r\x1b") {
		t.Fatalf("%q", out.String())
	}
	command, props, data := unescape(t, lines[0])
	if command != "error" || data != hostile || !reflect.DeepEqual(props, map[string]string{"file": "a,b:c::d%.go", "line": "7", "title": "whylate: WL1,2:3::x% p99"}) {
		t.Errorf("%q is read as %q %q %q", lines[0], command, props, data)
	}
	command, props, _ = unescape(t, lines[1])
	if command != "warning" || props["file"] != "" {
		t.Errorf("%q: a file outside of the checkout is named", lines[1])
	}
	command, props, _ = unescape(t, lines[2])
	if command != "notice" || props["file"] != "sub/x.go" || props["line"] != "" {
		t.Errorf("%q", lines[2])
	}
}

// TestSARIF checks what SARIF 2.1.0 requires (sections 3.13, 3.14, 3.18, 3.19, 3.27, 3.28, 3.29, 3.30) and what GitHub asks
// for besides: a location, a rule that exists, a fingerprint.
func TestSARIF(t *testing.T) {
	rep := sample()
	rep.Groups[0].Bands[0].Causes[0].Site.File = `C:\src\my shop\ü%.go`
	limits, err := Parse("p99=1ms,sched=1%,sleep=1%")
	if err != nil {
		t.Fatal(err)
	}
	res := Check(rep, Rules{Limits: append(limits, Limit{Group: "gone\x1b\u202e\u009b31m", Stat: "p50", NS: 1}), FailOn: report.SeverityMedium})
	var out bytes.Buffer
	if err := WriteSARIF(&out, res, "/src/shop", "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	if at := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); at >= 0 {
		t.Errorf("a terminal would obey %q", out.String()[at:min(at+10, out.Len())])
	}
	var log map[string]any
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	if log["version"] != "2.1.0" || !strings.Contains(log["$schema"].(string), "sarif-schema-2.1.0.json") {
		t.Errorf("version %v, schema %v", log["version"], log["$schema"])
	}
	run := log["runs"].([]any)[0].(map[string]any)
	driver := run["tool"].(map[string]any)["driver"].(map[string]any)
	if driver["name"] == "" || !strings.Contains("utf16CodeUnits unicodeCodePoints", run["columnKind"].(string)) {
		t.Errorf("driver %v, columns %v", driver, run["columnKind"])
	}
	rules := driver["rules"].([]any)
	ids := map[string]bool{}
	for _, r := range rules {
		id := r.(map[string]any)["id"].(string)
		if id == "" || ids[id] || r.(map[string]any)["shortDescription"].(map[string]any)["text"] == "" {
			t.Errorf("rule %v", r)
		}
		if id == "WL2001" || id == "WL3001" {
			m := r.(map[string]any)
			if m["name"] == "" || !strings.HasSuffix(m["helpUri"].(string), "/docs/findings.md#"+strings.ToLower(id)) || m["fullDescription"].(map[string]any)["text"] == "" ||
				!strings.Contains(m["help"].(map[string]any)["markdown"].(string), "**What it means.**") {
				t.Errorf("rule without its documentation: %v", m)
			}
		}
		ids[id] = true
	}
	results := run["results"].([]any)
	if len(results) != len(res.Violations) || len(results) < 6 {
		t.Fatalf("%d results of %d violations", len(results), len(res.Violations))
	}
	var uris []string
	for i, x := range results {
		r := x.(map[string]any)
		if rule := rules[int(r["ruleIndex"].(float64))].(map[string]any); rule["id"] != r["ruleId"] {
			t.Errorf("result %d is of rule %v, its index says %v", i, r["ruleId"], rule["id"])
		}
		if !slices.Contains([]string{"none", "note", "warning", "error"}, r["level"].(string)) || r["message"].(map[string]any)["text"] == "" {
			t.Errorf("result %d: %v", i, r)
		}
		if f := r["partialFingerprints"].(map[string]any)["whylate/v1"].(string); f != res.Violations[i].ID || f == "" {
			t.Errorf("result %d: fingerprint %q", i, f)
		}
		p := r["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)
		a := p["artifactLocation"].(map[string]any)
		u, err := url.Parse(a["uri"].(string))
		if err != nil || u.IsAbs() == (a["uriBaseId"] == "%SRCROOT%") {
			t.Errorf("result %d: location %v, %v", i, a, err)
		}
		uris = append(uris, a["uri"].(string))
		if region, ok := p["region"].(map[string]any); ok && region["startLine"].(float64) < 1 {
			t.Errorf("result %d: region %v", i, region)
		}
	}
	for _, want := range []string{"file:///C:/src/my%20shop/%C3%BC%25.go", "main.go", "x.trace"} {
		if !slices.Contains(uris, want) {
			t.Errorf("no location %q in %q", want, uris)
		}
	}
	var empty bytes.Buffer
	if err := WriteSARIF(&empty, Check(sample(), Rules{}), "", ""); err != nil || !strings.Contains(empty.String(), `"results": []`) {
		t.Errorf("%v: without violations there must be an empty list of results: %s", err, empty.String())
	}
}

// TestDependency: a finding in a dependency is shown at the line of the checkout that called it, and names the other
// beside it. It would catch an annotation that no change of the checkout can be beside.
func TestDependency(t *testing.T) {
	r := &Result{Input: "x.trace", Violations: []Violation{{Code: "WL2005", Severity: report.SeverityHigh, Text: "t", Site: &report.Site{
		Func: "dep.org/x.Do", File: "/m/dep.org/x@v1.0.0/x.go", Line: 7, Module: "dep.org/x", Version: "v1.0.0", CalledFrom: &report.Caller{Func: "main.load", File: "/co/load.go", Line: 12},
	}}}}
	var out bytes.Buffer
	if err := WriteGitHub(&out, r, "/co"); err != nil || !strings.Contains(out.String(), "file=load.go,line=12") {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	if err := WriteSARIF(&out, r, "/co", "v"); err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	if err := json.Unmarshal(out.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	res := log.Runs[0].Results[0]
	if l := res.Locations[0]; l.Physical.Artifact.URI != "load.go" || l.Physical.Region.StartLine != 12 || l.Logical[0].Name != "main.load" {
		t.Errorf("location %+v", l)
	}
	if len(res.Related) != 1 || res.Related[0].Logical[0].Name != "dep.org/x.Do" || res.Related[0].Message.Text != "where it waits, in dep.org/x v1.0.0" {
		t.Errorf("related locations %+v", res.Related)
	}
}

func TestInside(t *testing.T) {
	for _, c := range []struct{ file, root, want string }{
		{"/src/shop/a/b.go", "/src/shop", "a/b.go"}, {"/src/shop/a/b.go", "/src/shop/", "a/b.go"}, {"/src/shopper/b.go", "/src/shop", ""},
		{"/src/b.go", "", ""}, {"a/b.go", "/src", "a/b.go"}, {"../b.go", "/src", ""}, {"/src/../etc/x", "/src", ""}, {"", "/src", ""},
		{`C:\src\a\b.go`, `C:\src`, "a/b.go"}, {`C:\src\b.go`, "/src", ""}, {`a\b.go`, "/src", `a\b.go`},
	} {
		if got, ok := inside(c.file, c.root); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("inside(%q, %q) = %q, %v", c.file, c.root, got, ok)
		}
	}
}

func TestTextIsOneLineEach(t *testing.T) {
	r := &Result{Violations: []Violation{{Code: "a", Text: "x\n::error::y\x1b[2J" + strings.Repeat("z", 1e6)}, {Code: "b", Text: "c"}}}
	var out bytes.Buffer
	if err := WriteText(&out, r); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 2 || out.Len() > 3*maxLine || strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\n::") {
		t.Errorf("%d lines, %d bytes", n, out.Len())
	}
}

func TestGrowth(t *testing.T) {
	change := func(old, new, low, high int64) compare.Change {
		d := new - old
		return compare.Change{Old: &old, New: &new, Delta: &d, Low: &low, High: &high, Evidence: low > 0 || high < 0}
	}
	same := change(10e6, 10e6, -1e6, 1e6)
	rows := []compare.Row{{Cause: "other", DeltaNS: 9e6}, {Cause: "cpu", DeltaNS: -5e6}, {Cause: "sleep", NewSite: site("main.f", "/f.go", 3), DeltaNS: 2e6}}
	tail := []compare.Row{{Cause: "syscall", NewSite: site("main.flush", "/g.go", 9), DeltaNS: 70e6}}
	for _, c := range []struct {
		name      string
		mean, p99 compare.Change
		tolerance float64
		want      string // beginning of the text
		at        string
	}{
		{"nothing", same, same, 0.05, "", ""},
		{"the whole interval beyond the tolerance", change(10e6, 12e6, 1.1e6, 3e6), same, 0.1, "s: slower than the baseline: mean 12.0ms, was 10.0ms (+20%); most by sleep at main.f f.go:3, +2.00ms a request", "main.f"},
		{"the interval reaches into the tolerance", change(10e6, 12e6, 0.9e6, 3e6), same, 0.1, "", ""},
		{"no tolerance", change(10e6, 12e6, 0.9e6, 3e6), same, 0, "s: slower than the baseline: mean", "main.f"},
		{"faster", change(10e6, 5e6, -6e6, -4e6), change(10e6, 5e6, -6e6, -4e6), 0, "", ""},
		{"only the slowest", same, change(10e6, 80e6, 60e6, 80e6), 0.1, "s: slower than the baseline: p99 80.0ms, was 10.0ms (+700%); most by syscall at main.flush g.go:9", "main.flush"},
		{"twentyfold", change(10e6, 200e6, 180e6, 200e6), change(1e6, 30e6, 20e6, 30e6), 0.1, "s: slower than the baseline: mean 200ms, was 10.0ms (x20), p99 30.0ms, was 1.00ms (x30)", "main.f"},
	} {
		r := &Result{}
		g := &compare.Group{Name: "s", Kind: "task", Mean: c.mean, P50: same, P90: same, P99: c.p99, Causes: rows, Tail: tail}
		r.growth(g, c.tolerance)
		switch {
		case c.want == "" && len(r.Violations) > 0, c.want != "" && len(r.Violations) != 1:
			t.Errorf("%s: %+v", c.name, r.Violations)
		case c.want != "" && (!strings.HasPrefix(r.Violations[0].Text, c.want) || r.Violations[0].Site.Func != c.at || r.Violations[0].ID == ""):
			t.Errorf("%s: %+v, want %s", c.name, r.Violations[0], c.want)
		}
		if len(r.Notes) > 0 {
			t.Errorf("%s: notes %+v", c.name, r.Notes)
		}
	}
	// What cannot be compared is said, not passed over.
	p99 := int64(5e6)
	r := &Result{}
	r.growth(&compare.Group{Name: "s", P99: compare.Change{Old: &p99}}, 0)
	if len(r.Notes) != 2 || len(r.Violations) > 0 {
		t.Errorf("too few requests: %+v", r)
	}
}
