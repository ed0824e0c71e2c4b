package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestRepeatedSetUp: requests parse templates, and escape them at the first execution, for most of their time. It is no fault of
// requests if a program's run does so, if only a few of them do, if only a few samples show it, or if it takes little of their time.
func TestRepeatedSetUp(t *testing.T) {
	called := func(fn, from string) *report.Site {
		s, caller := site(fn), site(from)
		s.CalledFrom = &report.Caller{Func: caller.Func, File: caller.File, Line: caller.Line}
		return s
	}
	for _, c := range []struct {
		name     string
		kind     report.Kind
		samples  int
		requests int
		otherNS  int64
		severity report.Severity
	}{
		{"most of the latency", report.KindHTTP1, 15, 60, ms(20), report.SeverityMedium},
		{"a program's run", report.KindRun, 15, 60, ms(20), ""},
		{"few samples", report.KindHTTP1, 2, 60, ms(20), ""},
		{"the first request only", report.KindHTTP1, 15, 1, ms(20), ""},
		{"little of the latency", report.KindHTTP1, 15, 60, ms(2000), ""},
	} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: called("html/template.escapeTemplate@30", "main.Render@49"), TotalNS: ms(50), Samples: c.samples, Requests: c.requests},
			report.Cause{Cause: report.CauseCPU, Site: called("html/template.(*Template).ParseFS@500", "main.load@41"), TotalNS: ms(40), Samples: c.samples, Requests: c.requests},
			report.Cause{Cause: report.CauseCPU, Site: site("main.Render@49"), TotalNS: c.otherNS, Samples: 3, Requests: 60})
		rep.Groups[0].Kind = c.kind
		got := checkRepeatedSetUp(&Input{Report: rep, Process: &process.Stats{}}, &rep.Groups[0])
		if c.severity == "" {
			check.Equal(t, len(got), 0, "%s: %+v", c.name, got)
			continue
		}
		check.True(t, len(got) == 1 && len(got[0].Changes) == 2 && got[0].MinSeverity == c.severity &&
			strings.HasPrefix(got[0].Fix, "parse the templates once, at start, and keep the result") && strings.Contains(got[0].Fix, "main.load (main.go:41)"), "%s: %+v", c.name, got)
	}
}

// TestWhatSetUpCauses: the finding about set-up contains the collections by its garbage, also of what the set-up calls in other
// modules, and the waits for a CPU while other requests do it; it comes first, and the two findings about these are low. That
// does not hold if something else allocates or occupies the CPUs.
func TestWhatSetUpCauses(t *testing.T) {
	work := inModule("github.com/getkin/kin-openapi/openapi3.(*Loader).LoadFromFile@106", "github.com/getkin/kin-openapi")
	work.CalledFrom = &report.Caller{Func: "main.loadRouter", File: "/src/main.go", Line: 44, Calls: work.Func}
	const setUp, collector, wait = report.RuleComputes, report.RuleGCTooFrequent, report.RuleLongRuns
	for _, c := range []struct {
		name     string
		occupant *report.Site
		funcs    []string
		codes    []report.RuleCode // without those that are low
		changes  int
	}{
		{"all", work, []string{"go.yaml.in/yaml/v4.node", work.Func, "main.loadRouter"}, []report.RuleCode{setUp}, 3},
		{"other garbage", work, []string{"main.answer"}, []report.RuleCode{setUp, collector}, 2},
		{"other work on the CPUs", site("main.count@9"), []string{work.Func}, []report.RuleCode{setUp, wait}, 2},
	} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: work, SiteFrom: "sample", TotalNS: ms(800), Samples: 80},
			report.Cause{Cause: report.CauseSched, Site: work, TotalNS: ms(700), RanMeanwhile: []report.Share{{Site: c.occupant, Share: 0.9}}},
			report.Cause{Cause: report.CauseGCAssist, Site: work, TotalNS: ms(750)})
		stats := statsWithCycles(200, 0, 5*mib, 10*mib, 0.2)
		stats.Procs, stats.BusyNS = 2, stats.SpanNS
		stats.RunningTimes = []process.RunningTime{{Site: c.occupant, Start: "main.serve", NS: 500e6, LongNS: 500e6, LongCount: 20}}
		in := &Input{Report: rep, Process: stats, Allocs: &allocs.Profile{Bytes: 100, Stacks: []allocs.Stack{{Bytes: 80, Funcs: c.funcs}, {Bytes: 20}}}}
		var codes []report.RuleCode
		for _, f := range findAll(t, in, rulesByCode(setUp, collector, wait)) {
			if f.Severity.IsMajor() {
				codes = append(codes, f.Code)
			}
			if f.Code == setUp {
				check.True(t, f.Severity == report.SeverityHigh && len(f.Changes) == c.changes, "%s: %s %+v", c.name, f.Severity, f.Changes)
			}
		}
		check.True(t, slices.Equal(codes, c.codes), "%s: %v", c.name, codes)
	}
}

// TestNewCompressors: a service that makes a compressor for each answer can keep it, one that calls a library which does so cannot.
func TestNewCompressors(t *testing.T) {
	for _, c := range []struct {
		calls string
		want  string
	}{
		{"compress/gzip.(*Writer).Write", "requests make new compressors at main.answer (main.go:9)"},
		{"dep.org/pdf.(*Document).Write", ""},
	} {
		writer, caller := site("compress/flate.NewWriter@664"), site("main.answer@9")
		writer.CalledFrom = &report.Caller{Func: caller.Func, File: caller.File, Line: caller.Line, Calls: c.calls}
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: writer, TotalNS: ms(50), Samples: 15},
			report.Cause{Cause: report.CauseCPU, Site: site("main.answer@7"), TotalNS: ms(50), Samples: 3})
		title := ""
		for _, v := range checkRepeatedSetUp(&Input{Report: rep, Process: &process.Stats{}}, &rep.Groups[0]) {
			title = v.Title
		}
		check.Equal(t, title, c.want, "%s", c.calls)
	}
}

// TestEarlySetUp: the median request has no time for the mean set-up if only the first requests do it, to fill a cache. Few samples do
// not show that later ones do.
func TestEarlySetUp(t *testing.T) {
	for medianNS, want := range map[int64]int{500e3: 0, 2e6: 1} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: site("github.com/flosch/pongo2/v6.(*TemplateSet).FromFile@211"), TotalNS: 90e6, Samples: 9, Requests: 60},
			report.Cause{Cause: report.CauseCPU, Site: site("main.Render@49"), TotalNS: 20e6, Samples: 2, Requests: 60})
		rep.Groups[0].LatencyNS.P50 = &medianNS
		check.Equal(t, len(checkRepeatedSetUp(&Input{Report: rep, Process: &process.Stats{}}, &rep.Groups[0])), want, "a median of %d ns", medianNS)
	}
}

// TestSetUpFromFile: the reading of a file is part of the set-up that needs it, once samples show the rest.
func TestSetUpFromFile(t *testing.T) {
	for samples, want := range map[int]report.Severity{20: report.SeverityLow, 0: report.SeverityMedium} {
		load := site("time.LoadLocation@690")
		load.CalledFrom = &report.Caller{Func: "main.zone", File: "/src/main.go", Line: 41, Calls: "time.LoadLocation"}
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: load, TotalNS: ms(2000), Samples: samples},
			report.Cause{Cause: report.CauseSyscall, Call: "os.ReadFile", Site: load, TotalNS: ms(2000)})
		in := &Input{Report: rep, Process: &process.Stats{}}
		got := findAll(t, in, rulesByCode(report.RuleBlockingSyscall))
		check.True(t, len(got) == 1 && got[0].Severity == want, "%d samples: %+v", samples, got)
		all := checkRepeatedSetUp(in, &rep.Groups[0])
		check.True(t, len(all) == min(1, samples) && (samples == 0 || all[0].Share == 1 && len(all[0].Changes) == 2), "%d samples: %+v", samples, all)
	}
}

// TestSetUpAdvice: a role in functions.tsv is enough to report set-up, with a general advice that names its function. libraries.txt
// has a better one for some. The caller of a library cannot change what that one decodes.
func TestSetUpAdvice(t *testing.T) {
	find := func(fn, calls string) []Verdict {
		work := site(fn + "@320")
		work.CalledFrom = &report.Caller{Func: "main.find", File: "/src/main.go", Line: 12, Calls: calls}
		rep := oneGroup(report.Cause{Cause: report.CauseCPU, Site: work, TotalNS: ms(50), Samples: 15, Requests: 60})
		return checkRepeatedSetUp(&Input{Report: rep, Process: &process.Stats{}}, &rep.Groups[0])
	}
	for fn, want := range map[string]string{
		"github.com/blevesearch/bleve/v2.Open":                        "do the work of bleve/v2.Open once, at the service's start",
		"github.com/open-policy-agent/opa/v1/rego.(*Rego).prepare":    "prepare each query once (PrepareForEval)",
		"github.com/flosch/pongo2/v6.(*TemplateSet).FromFile":         "set Debug of its TemplateSet to false",
		"github.com/casbin/casbin/v2.(*Enforcer).LoadPolicy":          "make one enforcer at start and share it",
		"encoding/gob.(*Decoder).getDecEnginePtr":                     "use an encoding whose messages do not describe their types",
		"github.com/PaesslerAG/gval.Language.NewEvaluableWithContext": "compile each expression once",
	} {
		got := find(fn, fn)
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, want) && strings.Contains(got[0].Fix, "main.find (main.go:12)"), "%s: %+v", fn, got)
	}
	got := find("html/template.(*Template).Parse", "github.com/gofiber/fiber/v2.(*Ctx).Render")
	check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, "give Views of fiber.Config an engine with Reload(false)"), "fiber parses: %+v", got)
	check.Equal(t, len(find("encoding/gob.(*Decoder).getDecEnginePtr", "github.com/timshannon/bolthold.(*Store).Find")), 0, "bolthold decodes")
}

// TestSetUpInLibrary: if another library does the set-up, because its cache is too small, the advice is that library's option.
func TestSetUpInLibrary(t *testing.T) {
	for calls, want := range map[string]string{"github.com/ory/ladon.(*Ladon).IsAllowed": "give ladon.NewRegexpMatcher a size", "github.com/casbin/casbin/v2.(*Enforcer).Enforce": "keep decisions", "github.com/dlclark/regexp2.Compile": "compile the expression once"} {
		compile := site("github.com/dlclark/regexp2.Compile@56")
		compile.CalledFrom = &report.Caller{Func: "main.check", File: "/src/main.go", Line: 38, Calls: calls}
		rep := oneGroup(report.Cause{Cause: report.CauseCPU, Site: compile, TotalNS: ms(50), Samples: 15})
		got := checkRepeatedSetUp(&Input{Report: rep, Process: &process.Stats{}}, &rep.Groups[0])
		check.True(t, len(got) == 1 && strings.HasPrefix(got[0].Fix, want), "%s: %+v", calls, got)
	}
}

// TestDataCopy: requests that mostly copy data can copy less, so their finding has no lower severity than others. It needs samples: a
// function inferred from events is perhaps another one.
func TestDataCopy(t *testing.T) {
	for _, c := range []struct {
		fn       string
		samples  int
		severity report.Severity
	}{{"main.(*Product).clone", 30, report.SeverityHigh}, {"main.(*Product).render", 30, report.SeverityLow}, {"main.(*Product).clone", 2, report.SeverityInfo}} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: site(c.fn + "@34"), SiteFrom: "sample", TotalNS: ms(250), Samples: c.samples},
			report.Cause{Cause: report.CauseCPU, Site: site("main.find@40"), TotalNS: ms(50)})
		got := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesWithPrefix("WL1008"))
		check.True(t, len(got) == 1 && got[0].Severity == c.severity && strings.HasPrefix(got[0].Title, "requests copy data") == (c.severity == report.SeverityHigh), "%s, %d samples: %+v", c.fn, c.samples, got)
	}
}
