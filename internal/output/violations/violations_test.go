package violations

import (
	"bytes"
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/whylate/whylate/internal/judge/budget"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

func site(fn, file string, line int) *report.Site {
	return &report.Site{Func: fn, File: file, Line: line}
}

// unescape parses a workflow command as GitHub's runner does (ActionCommand.TryParseV2).
func unescape(t *testing.T, line string) (command string, props map[string]string, data string) {
	t.Helper()
	rest, ok := strings.CutPrefix(line, "::")
	head, data, ok2 := strings.Cut(rest, "::")
	must.True(t, ok && ok2, "%q is no command", line)
	command, list, _ := strings.Cut(head, " ")
	props = map[string]string{}
	for _, p := range strings.Split(list, ",") {
		k, v, ok := strings.Cut(p, "=")
		must.True(t, ok, "%q: property %q", line, p)
		props[k] = strings.NewReplacer("%0D", "\r", "%0A", "\n", "%3A", ":", "%2C", ",", "%25", "%").Replace(v)
	}
	return command, props, strings.NewReplacer("%0D", "\r", "%0A", "\n", "%25", "%").Replace(data)
}

func TestGitHub(t *testing.T) {
	hostile := "100%0A a\r\n::error file=x::b, c:d ##[error]"
	r := &budget.Result{Violations: []budget.Violation{
		{Code: "WL1,2:3::x%", Metric: "p99", Severity: report.SeverityHigh, Text: hostile, Site: site("f", "/src/shop/a,b:c::d%.go", 7)},
		{Code: "budget", Severity: report.SeverityMedium, Text: "plain", Site: site("f", "/elsewhere/x.go", 7)},
		{Code: "budget", Severity: report.SeverityLow, Text: "\x1b[2J", Site: site("f", "sub/x.go", 0)},
	}}
	var out bytes.Buffer
	must.Do(t, WriteGitHub(&out, r, "/src/shop"))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	must.True(t, len(lines) == 3 && !strings.ContainsAny(out.String(), "\r\x1b"), "%q", out.String())
	command, props, data := unescape(t, lines[0])
	if command != "error" || data != hostile || !reflect.DeepEqual(props, map[string]string{"file": "a,b:c::d%.go", "line": "7", "title": "whylate: WL1,2:3::x% p99"}) {
		t.Errorf("%q is read as %q %q %q", lines[0], command, props, data)
	}
	command, props, _ = unescape(t, lines[1])
	check.True(t, command == "warning" && props["file"] == "", "%q: a file outside of the checkout is named", lines[1])
	command, props, _ = unescape(t, lines[2])
	check.True(t, command == "notice" && props["file"] == "sub/x.go" && props["line"] == "", "%q", lines[2])
}

// TestSARIF checks what SARIF 2.1.0 requires (sections 3.13, 3.14, 3.18, 3.19, 3.27, 3.28, 3.29, 3.30) and what GitHub asks
// for besides: a location, a rule that exists, a fingerprint.
func TestSARIF(t *testing.T) {
	v := func(code string, severity report.Severity, index *report.Site) budget.Violation {
		return budget.Violation{ID: "id of " + code, Kind: budget.KindFinding, Code: code, Severity: severity, Text: "\x1b\u202e\u009b31m", Site: index}
	}
	res := &budget.Result{Input: "x.trace", Violations: []budget.Violation{
		v(budget.KindBudget, report.SeverityHigh, site("main.backoff", `C:\src\my shop\ü%.go`, 30)), v(budget.KindGroup, report.SeverityHigh, nil),
		v("WL2001", report.SeverityHigh, site("main.backoff", "/src/shop/main.go", 30)), v("WL3001", report.SeverityMedium, nil),
		v(budget.KindBaseline, report.SeverityLow, site("main.f", "/src/shop/main.go", 0)), v("WL2001", report.SeverityInfo, nil),
	}}
	var out bytes.Buffer
	must.Do(t, WriteSARIF(&out, res, "/src/shop", "v1.2.3"))
	if index := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); index >= 0 {
		t.Errorf("a terminal would obey %q", out.String()[index:min(index+10, out.Len())])
	}
	var log map[string]any
	must.Do(t, json.Unmarshal(out.Bytes(), &log))
	check.True(t, log["version"] == "2.1.0" && strings.Contains(log["$schema"].(string), "sarif-schema-2.1.0.json"),
		"version %v, schema %v", log["version"], log["$schema"])
	run := log["runs"].([]any)[0].(map[string]any)
	driver := run["tool"].(map[string]any)["driver"].(map[string]any)
	check.True(t, driver["name"] != "" && strings.Contains("utf16CodeUnits unicodeCodePoints", run["columnKind"].(string)),
		"driver %v, columns %v", driver, run["columnKind"])
	rules := driver["rules"].([]any)
	ids := map[string]bool{}
	for _, r := range rules {
		id := r.(map[string]any)["id"].(string)
		check.True(t, id != "" && !ids[id] && r.(map[string]any)["shortDescription"].(map[string]any)["text"] != "", "rule %v", r)
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
	must.True(t, len(results) == len(res.Violations) && len(results) >= 6, "%d results of %d violations", len(results), len(res.Violations))
	var uris []string
	for i, x := range results {
		r := x.(map[string]any)
		if rule := rules[int(r["ruleIndex"].(float64))].(map[string]any); rule["id"] != r["ruleId"] {
			t.Errorf("result %d is of rule %v, its index says %v", i, r["ruleId"], rule["id"])
		}
		check.True(t, slices.Contains([]string{"none", "note", "warning", "error"}, r["level"].(string)) && r["message"].(map[string]any)["text"] != "",
			"result %d: %v", i, r)
		if f := r["partialFingerprints"].(map[string]any)["whylate/v1"].(string); f != res.Violations[i].ID || f == "" {
			t.Errorf("result %d: fingerprint %q", i, f)
		}
		p := r["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)
		a := p["artifactLocation"].(map[string]any)
		u, err := url.Parse(a["uri"].(string))
		check.True(t, err == nil && u.IsAbs() != (a["uriBaseId"] == "%SRCROOT%"), "result %d: location %v, %v", i, a, err)
		uris = append(uris, a["uri"].(string))
		if region, ok := p["region"].(map[string]any); ok && region["startLine"].(float64) < 1 {
			t.Errorf("result %d: region %v", i, region)
		}
	}
	for _, want := range []string{"file:///C:/src/my%20shop/%C3%BC%25.go", "main.go", "x.trace"} {
		check.True(t, slices.Contains(uris, want), "no location %q in %q", want, uris)
	}
	var empty bytes.Buffer
	if err := WriteSARIF(&empty, &budget.Result{Input: "x.trace"}, "", ""); err != nil || !strings.Contains(empty.String(), `"results": []`) {
		t.Errorf("%v: without violations there must be an empty list of results: %s", err, empty.String())
	}
}

// TestDependency: a finding in a dependency is shown at the line of the checkout that called it, and names the dependency's
// line as a related location. It detects an annotation outside of the checkout's files.
func TestDependency(t *testing.T) {
	r := &budget.Result{Input: "x.trace", Violations: []budget.Violation{{Code: "WL2005", Severity: report.SeverityHigh, Text: "t", Site: &report.Site{
		Func: "dep.org/x.Do", File: "/m/dep.org/x@v1.0.0/x.go", Line: 7, Module: "dep.org/x", Version: "v1.0.0", CalledFrom: &report.Caller{Func: "main.load", File: "/co/load.go", Line: 12},
	}}}}
	var out bytes.Buffer
	if err := WriteGitHub(&out, r, "/co"); err != nil || !strings.Contains(out.String(), "file=load.go,line=12") {
		t.Errorf("%v: %s", err, out.String())
	}
	out.Reset()
	must.Do(t, WriteSARIF(&out, r, "/co", "v"))
	var log sarifLog
	must.Do(t, json.Unmarshal(out.Bytes(), &log))
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
		if got, ok := relativePath(c.file, c.root); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("inside(%q, %q) = %q, %v", c.file, c.root, got, ok)
		}
	}
}

func TestTextIsOneLineEach(t *testing.T) {
	r := &budget.Result{Violations: []budget.Violation{{Code: "a", Text: "x\n::error::y\x1b[2J" + strings.Repeat("z", 1e6)}, {Code: "b", Text: "c"}}}
	var out bytes.Buffer
	must.Do(t, WriteText(&out, r))
	if n := strings.Count(out.String(), "\n"); n != 2 || out.Len() > 3*maxLine || strings.Contains(out.String(), "\x1b") || strings.Contains(out.String(), "\n::") {
		t.Errorf("%d lines, %d bytes", n, out.Len())
	}
}
