package server

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/judge/compare"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/traps"
)

var update = flag.Bool("update", false, "rewrite testdata/answers.txt")

// repeat returns n values, of their indices.
func repeat[T any](n int, value func(i int) T) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = value(i)
	}
	return out
}

// answeredSite returns the i-th site.
func answeredSite(i int) *report.Site {
	return &report.Site{Func: fmt.Sprint("shop.f", i), File: "/src/shop/main.go", Line: i + 1}
}

// fullReport has one element more in each list than an answer has.
func fullReport() *report.Report {
	ns := func(n int64) *int64 { return &n }
	segments := repeat(3, func(i int) report.Segment {
		return report.Segment{StartNS: 5e9 + int64(i)*1e6, DurationNS: 1e6, Goroutine: uint64(i), Cause: "lock", Site: answeredSite(i), Via: repeat(2*i+1, func(k int) report.Via { return report.Via{Wait: "lock", Site: answeredSite(k)} })}
	})
	request := func(id string) report.Request {
		return report.Request{ID: id, StartNS: 5e9, LatencyNS: 3e6, Status: "OK", TraceID: "abc", Segments: segments}
	}
	r := &report.Report{Input: report.Input{DurationNS: 5e9, Go: "1.26", GOMAXPROCS: 4, Warnings: repeat(maxWarnings+1, func(i int) report.Warning { return report.Warning{Text: fmt.Sprint("warning ", i)} })},
		Judged: &report.Judged{Text: "judged"}}
	typical := request("r3")
	r.Groups = repeat(maxGroups+1, func(i int) report.Group {
		return report.Group{ID: fmt.Sprint("g", i), Name: fmt.Sprint("GET /", i), Kind: report.KindMark, Count: 10 + i, Open: report.Open{Count: i}, LatencyNS: report.Latency{P50: ns(1e6), P99: ns(2e6), Max: ns(3e6)}}
	})
	r.Groups[0].Slowest, r.Groups[0].Typical = []report.Request{request("r1"), request("r2")}, &typical
	r.Verdict = repeat(maxVerdicts+1, func(i int) report.Verdict {
		return report.Verdict{Group: fmt.Sprint("g", i), Text: fmt.Sprint("verdict ", i), Causes: []report.VerdictCause{{Cause: "lock", Text: "unsaid"},
			{Cause: "cpu", Share: 0.5, EachNS: 1e6, Text: "said", InSentence: true, Sites: []report.VerdictSite{{Site: answeredSite(0)}, {}, {Site: answeredSite(2)}}}}}
	})
	r.Findings = repeat(maxFindings+3, func(i int) report.Finding {
		return report.Finding{ID: fmt.Sprint("f", i), Code: "WL2001", Severity: "high", Title: fmt.Sprint("fault ", i), Fix: "fix", Group: "g0", Site: answeredSite(i), Confidence: 0.5}
	})
	r.Findings[1].Ignored, r.Findings[2].Ignored = "known", "known"
	r.Findings[2].Title, r.Findings[2].Site = r.Findings[0].Title, r.Findings[0].Site
	r.Findings[0].Evidence = repeat(maxEvidence+1, func(i int) report.Evidence {
		return report.Evidence{Text: fmt.Sprint("evidence ", i), Value: 1, Unit: "ns"}
	})
	estimate := report.Estimate{Est: 2e6, Low: 1e6, High: 4e6}
	r.Findings[0].Predicted = &report.Predicted{Change: "lock@f=gone", ChangeText: "without the lock", WasP50NS: ns(3e6), P50NS: estimate, P99NS: estimate}
	r.Findings[3].Predicted = &report.Predicted{Change: "lock@f=gone", MaxNS: &estimate, WasMaxNS: ns(9e6)}
	for _, k := range []int{0, 4, maxFindings + 2} { // the fault of a further group
		f := r.Findings[k]
		f.Group = "g1"
		r.Findings = append(r.Findings, f)
	}
	r.WhatIf = repeat(maxGroups+1, func(i int) report.WhatIf {
		return report.WhatIf{Name: fmt.Sprint("GET /", i), Requests: i, Predicted: *r.Findings[0].Predicted, Note: "note"}
	})
	return r
}

// TestAnswers: testdata/answers.txt has the arguments that each tool passes to its verb, and its answer. Each list of a verb's
// or the fleet's answer has one element more than the tool's.
func TestAnswers(t *testing.T) {
	ns := func(n int64) *int64 { return &n }
	estimate := report.Estimate{Est: -2e6, Low: -3e6, High: -1e6}
	change := compare.Change{Old: ns(10e6), New: ns(20e6), Low: ns(5e6), High: ns(15e6), Evidence: true}
	groups := repeat(maxGroups+1, func(i int) compare.Group {
		return compare.Group{Name: fmt.Sprint("GET /", i), Changed: i < 2, Moved: i == 2, P50: change, P99: change, Causes: repeat(4*i+1, func(k int) compare.Row {
			return compare.Row{Cause: "queue", Kind: []string{"a mutex", ""}[k%2], OldNS: 1e6, NewNS: 2e6, OldSite: answeredSite(k), NewSite: []*report.Site{nil, answeredSite(k + 10)}[k%2]}
		})}
	})
	findings := repeat(maxFindings+1, func(i int) compare.FindingRef {
		return compare.FindingRef{Code: "WL2001", Severity: "low", Title: fmt.Sprint("fault ", i)}
	})
	refs := repeat(maxGroups+1, func(i int) compare.GroupRef { return compare.GroupRef{Name: fmt.Sprint("GET /", i)} })
	procs := int64(2)
	file := filepath.Join(t.TempDir(), "x.trace")
	must.Do(t, os.WriteFile(file, nil, 0o600))
	lines := repeat(100, func(i int) string { return fmt.Sprint("\tline ", i+1, "\n") })
	must.Do(t, os.WriteFile(filepath.Join(filepath.Dir(file), "main.go"), []byte(strings.Join(lines, "")), 0o600))
	fleet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/findings" {
			_, _ = io.WriteString(w, "["+strings.Join(repeat(maxRankedFindings+1, func(i int) string {
				return fmt.Sprintf(`{"service":"s%d","environment":%q,"group":"g","code":"WL2001","severity":"low","title":"t","site":"f","fix":"x","recording":"r","versions":["1","2","3","4","5"],"gone":true,"first":"2026-01-01T00:00:00Z","pods":3,"win_per_second":0.5,"gain_ns":2000}`, i, r.URL.RawQuery)
			}), ",")+"]")
			return
		}
		_, _ = w.Write(make([]byte, 1000))
	}))
	defer fleet.Close()
	recordings := t.TempDir()
	s := connect(t, Config{Roots: []string{filepath.Dir(file)}, URLs: []string{fleet.URL}, Fleet: fleet.URL, Recordings: recordings, MaxFile: 1000}, "")
	answerFile := filepath.Join(t.TempDir(), "answer")
	t.Setenv(answerVariable, answerFile)
	var got strings.Builder
	reportID, reportIDs := "", regexp.MustCompile(`"report":"(\w+)"`)
	for _, c := range []struct {
		tool, args string
		answer     any
	}{
		{"explain", `{"source":"x.trace","group":"g","request":"r","from":"1s","to":"2s"}`, fullReport()},
		{"request", `{"report":"REPORT"}`, nil},
		{"request", `{"report":"REPORT","id":"r3","group":"g0"}`, nil},
		{"request", `{"report":"REPORT","id":"r4"}`, nil},
		{"request", `{"report":"REPORT","group":"GET /1"}`, nil},
		{"request", `{"report":"REPORT","group":"/12"}`, nil},
		{"request", `{"report":"REPORT","group":"GET"}`, nil},
		{"request", `{"report":"REPORT","group":"POST"}`, nil},
		{"what_if", `{"source":"x.trace","changes":["a=1","b=2"]}`, fullReport()},
		{"what_if", `{"source":"x.trace","changes":[]}`, nil},
		{"diff", `{"before":"x.trace","after":"x.trace","group":"g"}`, &compare.Diff{Groups: groups, Appeared: refs, Vanished: refs[:1], NewFindings: findings, GoneFindings: findings[:1], Warnings: fullReport().Input.Warnings}},
		{"verify", `{"before":"x.trace","after":"x.trace"}`, &verify.Result{Warnings: fullReport().Input.Warnings, Verdicts: repeat(2*maxFindings+1, func(i int) verify.Verdict {
			return verify.Verdict{Code: "WL2001", Title: fmt.Sprint("fault ", i), Group: "g", Metric: "p99", WasNS: 10e6, IsNS: ns(8e6), Promised: estimate, Judgement: "kept"}
		})}},
		{"capacity", `{"source":"x.trace","changes":["load=2x"],"goals":"p99=1s"}`, &report.Capacity{Text: "text", Curve: []report.CurvePoint{{LoadPerS: 5, P50NS: 1e6, P99NS: 2e6, P99: report.Estimate{Low: 1e6, High: 3e6}}},
			Limits: repeat(maxFindings+1, func(i int) report.Limit {
				return report.Limit{Kind: "lock", Site: answeredSite(i), Servers: 1, DemandNS: 1e6, Utilisation: 0.5, SaturatesPerS: 3, SaturatesLow: 2, SaturatesHigh: 4}
			}),
			NotJudged: repeat(maxFindings+1, func(i int) report.NotJudged { return report.NotJudged{Kind: "pool", Reason: fmt.Sprint("reason ", i)} }),
			Goals:     []report.CapacityGoal{{Percentile: "p99", MostNS: 1e9, LoadPerS: 7}}}},
		{"limits", `{"pid":7}`, &limits.Answer{Limits: &cgroup.Limits{CPU: cgroup.CPU{Effective: 1.5, SightText: "seen", Bounds: []cgroup.CPUBound{{Kind: "quota", File: "cpu.max", Won: true}, {Kind: "cpuset", File: "cpus"}}}, Memory: cgroup.Memory{Effective: 1 << 30, SightText: "seen"}},
			Choices: []limits.Choice{{Knob: "GOMAXPROCS", Value: &procs, Reason: "why", InForce: true}, {Knob: "GOGC", Value: &procs}, {Knob: "GOMEMLIMIT", InForce: true}}, Traps: []traps.Trap{{Code: "WL5001", Severity: "low", Text: "a trap.", Fix: "none"}}}},
		{"limits", `{}`, &limits.Answer{}},
		{"limits", `{"pid":-1}`, nil},
		{"rules", `{}`, []Rule{{Code: "WL2001", Name: "n", Summary: "s", Means: "m", Fix: "f"}}},
		{"rules", `{"codes":["a","b","c","d"]}`, []Rule{{Code: "WL2001", Name: "n", Summary: "s", Means: "m", Fix: "f"}}},
		{"rules", `{"codes":["a","b","c","d","e"]}`, nil},
		{"fleet", `{"service":"s","environment":"e","from":"24h"}`, nil},
		{"fleet_recording", `{"recording":"` + strings.Repeat("a", 32) + `"}`, new(report.Report)},
		{"record", `{"url":"` + fleet.URL + `/debug/","seconds":5.4}`, nil},
		{"record", `{"url":"` + fleet.URL + `"}`, nil},
		{"record", `{"url":"` + fleet.URL + `","seconds":1}`, nil},
		{"record", `{"url":"` + fleet.URL + `","seconds":0.9}`, nil},
		{"record", `{"url":"` + fleet.URL + `","seconds":5.5}`, nil},
		{"source", `{"file":"main.go","line":50}`, nil},
		{"source", `{"file":"main.go","line":50,"around":1}`, nil},
		{"source", `{"file":"/x/main.go","line":100,"around":99}`, nil},
		{"source", `{"file":"main.go","line":101}`, nil},
		{"source", `{"file":"main.go","line":0}`, nil},
	} {
		must.Do(t, os.WriteFile(answerFile, must.Have(json.Marshal(c.answer))(t), 0o600))
		_ = os.Remove(answerFile + ".args")
		var args map[string]any
		must.Do(t, json.Unmarshal([]byte(strings.ReplaceAll(c.args, "REPORT", reportID)), &args))
		text, failed := ask(t, s, c.tool, args)
		if id := reportIDs.FindStringSubmatch(text); id != nil {
			reportID = cmp.Or(reportID, id[1])
		}
		passed, _ := os.ReadFile(answerFile + ".args")
		fmt.Fprintf(&got, "%s %s\nverb: %s\nfailed: %v\n%s\n\n", c.tool, c.args, passed, failed, strings.ReplaceAll(text, "},{", "},\n{"))
	}
	text := strings.NewReplacer(file, "FILE", filepath.Dir(file), "ROOT", fleet.URL, "ADDRESS", must.Have(filepath.EvalSymlinks(recordings))(t), "DIR").Replace(reportIDs.ReplaceAllString(got.String(), `"report":"REPORT"`))
	must.Golden(t, *update, "testdata/answers.txt", []byte(text))
}
