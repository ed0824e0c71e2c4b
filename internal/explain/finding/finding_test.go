package finding

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

func TestRulesAreDocumented(t *testing.T) {
	code := regexp.MustCompile(`^WL[1-5][0-9]{3}$`)
	used := map[string]bool{}
	for _, r := range All() {
		check.True(t, code.MatchString(string(r.Code)) && !used[string(r.Code)] && !used[r.Name],
			"%s %s: the code is malformed, or the code or name is used twice", r.Code, r.Name)
		used[string(r.Code)], used[r.Name] = true, true
		check.True(t, r.Run != nil && r.Summary != "" && r.Doc.Means != "" && r.Doc.Measured != "" && r.Doc.Wrong != "",
			"%s: without a run function, or not documented", r.Code)
		check.False(t, r.Family() != "doubt" && (r.Doc.Before == "" || r.Doc.After == ""),
			"%s: without an example before and after", r.Code)
	}
	var codes []report.RuleCode
	for _, r := range All() {
		codes = append(codes, r.Code)
	}
	check.True(t, slices.Equal(codes, report.RuleCodes()), "rules are %q, the report's vocabulary has %q", codes, report.RuleCodes())
	check.True(t, slices.IsSortedFunc(All(), func(a, b Rule) int { return cmp.Compare(a.Code, b.Code) }), "rules are not ordered by code")
}

func TestSeverity(t *testing.T) {
	lost := func(share float64, ns int64) Loss { return Loss{Share: share, NS: ns} }
	slow := func(share float64, ns int64) Gain { return Gain{Slow: Loss{Share: share, NS: ns}} }
	fewSlow := func(share float64, ns int64) Gain { return Gain{Slow: Loss{share, ns, true}} }
	for _, c := range []struct {
		name string
		won  Gain
		want report.Severity
	}{
		{"all requests lose", Gain{All: lost(0.30, 2e6)}, report.SeverityHigh},
		{"all lose less than the share of high", Gain{All: lost(0.29, 50e6)}, report.SeverityMedium},
		{"all lose a large share, but little time", Gain{All: lost(0.90, 1.9e6)}, report.SeverityMedium},
		{"all lose 262 us in a call", Gain{All: lost(0.60, 262e3), Slow: Loss{Share: 0.5, NS: 900e3}}, report.SeverityLow},
		{"all lose too little time", Gain{All: lost(0.90, 249e3)}, ""},
		{"all lose too small a share", Gain{All: lost(0.04, 50e6)}, ""},
		{"slow requests lose", slow(0.30, 10e6), report.SeverityHigh},
		{"slow requests lose less time than medium needs", slow(0.90, 2.9e6), report.SeverityLow},
		{"slow requests lose the time of medium", slow(0.15, 3e6), report.SeverityMedium},
		{"few requests lose, perhaps by accident", fewSlow(0.99, 49e6), report.SeverityLow},
		{"few requests lose much", fewSlow(0.99, 100e6), report.SeverityHigh},
		{"few outliers lose, and those that are slow by percentiles do not", Gain{Slow: Loss{Share: 0.02, NS: 1e6}, OtherTail: Loss{0.9, 60e6, true}}, report.SeverityMedium},
		{"all requests of a group are few", Gain{All: Loss{0.9, 5e6, true}}, ""},
	} {
		check.Equal(t, new(Input).severity(&Verdict{Gain: c.won}), c.want, "%s", c.name)
		check.Equal(t, new(Input).severity(&Verdict{Gain: c.won, Fact: true}), report.SeverityInfo, "%s, a fact", c.name)
	}
}

// TestAreTooRare: of fewer than ten outliers, five or more count if they are a hundredth of all requests.
func TestAreTooRare(t *testing.T) {
	for _, c := range []struct {
		outliers, all int
		want          bool
	}{{4, 4, true}, {5, 500, false}, {5, 501, true}, {9, 900, false}, {9, 901, true}, {10, 1e6, false}} {
		check.Equal(t, areTooRare(c.outliers, c.all), c.want, "%d of %d", c.outliers, c.all)
	}
}

func TestFind(t *testing.T) {
	siteAt := func(line int) *report.Site { return &report.Site{Func: "p.f", File: "/src/p/f.go", Line: line} }
	verdict := func(group string, line int, share float64, total int64) Verdict {
		return Verdict{Finding: report.Finding{Group: group, Site: siteAt(line), Confidence: 0.9}, Gain: Gain{Slow: Loss{Share: share, NS: 10e6}, TotalNS: total}}
	}
	doubted := verdict("c", 1, 0.5, 3) // below 50 %: at most low
	doubted.Confidence = 0.4
	unsure := verdict("d", 1, 0.5, 2) // below 70 %: at most medium
	unsure.Confidence = 0.6
	rules := []Rule{
		{Code: "WL2001", Run: func(*Input) []Verdict {
			return []Verdict{verdict("a", 1, 0.2, 9), verdict("a", 2, 0.5, 5), verdict("a", 2, 0.4, 4)}
		}},
		{Code: "WL5001", Run: func(*Input) []Verdict { return []Verdict{{Fact: true}} }},
		{Code: "WL1001", Run: func(*Input) []Verdict {
			return []Verdict{verdict("b", 1, 0.5, 7), verdict("b", 3, 0.01, 7), doubted, unsure}
		}},
	}
	got := findAll(t, &Input{Report: &report.Report{}}, rules)
	var order []string
	for _, f := range got {
		order = append(order, string(f.Code)+f.Group+string(f.Severity))
		check.True(t, f.ID != "" && f.Evidence != nil, "%s has no id, or null as evidence", f.Code)
	}
	want := []string{"WL1001bhigh", "WL2001ahigh", "WL2001amedium", "WL1001dmedium", "WL1001clow", "WL5001info"}
	check.True(t, slices.Equal(order, want), "got %v, want %v", order, want)
}

func TestIgnore(t *testing.T) {
	const file = `
# known
WL2001 store.(*DB).retry  the back-off is wanted
WL2* poll.go:12 by design
WL1* gen.Map[...] generic
WL3001 * we know
`
	all := must.Have(ReadIgnoreEntries(strings.NewReader(file), "known"))(t)
	for _, c := range []struct {
		code, fn, file string
		line           int
		want           string
	}{
		{"WL2001", "example.org/x/store.(*DB).retry", "/src/store/db.go", 7, "the back-off is wanted"},
		{"WL2002", "example.org/x/store.(*DB).retry", "/src/store/db.go", 7, ""},
		{"WL2001", "example.org/x/restore.(*DB).retry", "/src/store/db.go", 7, ""},
		{"WL2003", "main.f", "/src/poll.go", 12, "by design"},
		{"WL2003", "main.f", "/src/poll.go", 13, ""},
		{"WL1003", "example.org/gen.Map[...]", "/src/gen.go", 13, "generic"},
		{"WL3001", "", "", 0, "we know"},
		{"WL2001", "", "", 0, ""},
	} {
		f := []report.Finding{{Code: report.RuleCode(c.code)}}
		if c.fn != "" {
			f[0].Site = &report.Site{Func: c.fn, File: c.file, Line: c.line}
		}
		if MarkIgnored(f, all); f[0].Ignored != c.want {
			t.Errorf("%s at %s %s:%d: %q, want %q", c.code, c.fn, c.file, c.line, f[0].Ignored, c.want)
		}
	}
	for _, bad := range []string{"WL2001", "WL2001 main.f", "X1 main.f why", `WL2001 a\ why`} {
		if _, err := ReadIgnoreEntries(strings.NewReader(bad), "known"); err == nil || !strings.HasPrefix(err.Error(), "known:1: ") {
			t.Errorf("%q: error %v", bad, err)
		}
	}
}

// TestRareNamedHandler: 3 requests show their handler because they waited. If at least ten times as many requests of the same
// protocol show none, and the wait is negligible compared with the time of all, there is no finding.
func TestRareNamedHandler(t *testing.T) {
	rule := []Rule{{Code: "WL2001", Run: func(*Input) []Verdict {
		return []Verdict{{Finding: report.Finding{Group: "named"}, Gain: Gain{Slow: Loss{Share: 0.5, NS: 15e6}, TotalNS: 15e6}}}
	}}}
	for _, c := range []struct {
		unnamed int
		ns      int64
		want    int
	}{{0, 0, 1}, {1000, 1e9, 0}, {1000, 100e6, 1}, {20, 1e9, 1}} {
		in := &Input{Report: &report.Report{Groups: []report.Group{
			{ID: "named", Kind: report.KindHTTP1, Named: true, Count: 3, TotalNS: 30e6},
			{ID: "other", Kind: report.KindHTTP1, Count: c.unnamed, TotalNS: c.ns},
			{ID: "grpc", Kind: report.KindGRPC, Count: 1 << 20, TotalNS: 1e12},
		}}}
		check.Equal(t, len(findAll(t, in, rule)), c.want, "with %d requests of %d ns that show no handler: findings", c.unnamed, c.ns)
	}
}

// TestSlowNamedHandlers: five requests of a handler and three of another one wait for the same, and show their handlers because of that. They are a
// hundredth of all requests, most of which show no handler, and so the slow ones.
func TestSlowNamedHandlers(t *testing.T) {
	wait := report.Cause{Cause: report.CauseCPU, Site: &report.Site{Func: "dep.org/cache.sweep", File: "/src/cache.go", Line: 9}}
	handler := func(id string, n int) report.Group {
		cause := wait
		cause.Requests, cause.TotalNS = n, int64(n)*5e6
		return report.Group{ID: id, Kind: report.KindHTTP1, Named: true, Count: n, TotalNS: cause.TotalNS, Bands: []report.Band{{Band: report.BandAll, Count: n, Causes: []report.Cause{cause}}}}
	}
	for _, c := range []struct {
		code    report.RuleCode
		unnamed int
		want    report.Severity
	}{{report.RuleLockConvoy, 790, report.SeverityMedium}, {report.RuleLockConvoy, 800, ""}, {report.RuleStoppedWorld, 790, ""}} {
		in := &Input{Report: &report.Report{Groups: []report.Group{handler("a", 5), handler("b", 3), {ID: "unnamed", Kind: report.KindHTTP1, Count: c.unnamed, TotalNS: 80e6, Bands: []report.Band{{Band: report.BandAll}}}}}}
		v := Verdict{Finding: report.Finding{Code: c.code, Group: "a", Cause: wait.Cause, Site: wait.Site, Confidence: 0.9}, Gain: Gain{All: Loss{Share: 0.9, NS: 5e6}, TotalNS: 25e6}}
		check.True(t, in.completeVerdict(&v) == (c.want != "") && v.Severity == c.want, "%s, 8 of %d requests: %q", c.code, c.unnamed+8, v.Severity)
	}
}

// TestReplaceSlowEvidence: if all requests decide the severity and slow ones lost nothing, no evidence is 0 s.
func TestReplaceSlowEvidence(t *testing.T) {
	v := Verdict{Gain: Gain{All: Loss{Share: 0.4, NS: 2e6}}, Finding: report.Finding{Decided: &report.Decided{Requests: report.DecidedByAll}}}
	v.addSlowEvidence(evidenceOf("evidence slow-mean", 0, "ns"))
	v.addSlowEvidence(evidenceOf("evidence slow-requests-with-wait", 0, "count", "n", 12))
	v.addEvidence(evidenceOf("evidence sleep-length", 1e6, "ns"), evidenceOf("evidence polls", 0, "count"))
	replaceSlowEvidence(&v)
	check.True(t, len(v.Evidence) == 3 && v.Evidence[0].Value == 2e6 && v.Evidence[1].Value == 1e6 && v.Evidence[2].Value == 0,
		"%+v", v.Evidence)
}

// TestFindingThatSavesNothing: a fault of much time is low if the change that is advised makes no latency shorter. One of medium severity is low, too, if it
// perhaps makes none shorter.
func TestFindingThatSavesNothing(t *testing.T) {
	before := int64(20e6)
	predicted := func(p50, p99, max int64) *report.Predicted {
		return &report.Predicted{P50NS: report.Estimate{Est: p50, High: p50}, P99NS: report.Estimate{Est: p99, High: p99}, MaxNS: &report.Estimate{Est: max, High: max}, WasP50NS: &before, WasP99NS: &before, WasMaxNS: &before}
	}
	perhaps, certain := predicted(20e6, 10e6, 20e6), predicted(18e6, 20e6, 20e6)
	perhaps.P99NS.High = 199e5
	for prediction, want := range map[*report.Predicted]report.Severity{nil: report.SeverityMedium, certain: report.SeverityMedium, perhaps: report.SeverityLow} {
		v := Verdict{Finding: report.Finding{Code: report.RuleSleep, Confidence: 0.9, Predicted: prediction}, Gain: Gain{All: Loss{Share: 0.2, NS: 15e5}}}
		check.True(t, (&Input{Report: &report.Report{}}).completeVerdict(&v) && v.Severity == want, "medium: %+v", v.Finding)
	}
	for name, tt := range map[string]struct {
		code      report.RuleCode
		predicted *report.Predicted
		want      report.Severity
	}{
		"unknown":         {report.RuleSleep, nil, report.SeverityHigh},
		"nothing":         {report.RuleSleep, predicted(20e6, 20e6, 195e5), report.SeverityLow},
		"of the slowest":  {report.RuleSleep, predicted(20e6, 20e6, 10e6), report.SeverityHigh},
		"of the median":   {report.RuleSleep, predicted(18e6, 20e6, 20e6), report.SeverityHigh},
		"of the machine":  {report.RuleBusyMachine, predicted(20e6, 20e6, 20e6), report.SeverityHigh},
		"without a past":  {report.RuleSleep, &report.Predicted{P50NS: report.Estimate{Est: 1}}, report.SeverityHigh},
		"a single median": {report.RuleSleep, &report.Predicted{P50NS: report.Estimate{Est: 20e6, High: 20e6}, WasP50NS: &before}, report.SeverityLow},
	} {
		loss := Loss{Share: 0.9, NS: 20e6}
		v := Verdict{Finding: report.Finding{Code: tt.code, Confidence: 0.9, Predicted: tt.predicted}, Gain: Gain{All: loss, Slow: loss}}
		check.True(t, (&Input{Report: &report.Report{}}).completeVerdict(&v) && v.Severity == tt.want, "%s: severity %q, want %q", name, v.Severity, tt.want)
	}
}
