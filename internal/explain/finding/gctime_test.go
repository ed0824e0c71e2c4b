package finding

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

const mib = 1 << 20

// statsWithCycles returns the sums of a process of 10 s with so many collections.
func statsWithCycles(cycles, forced int, liveBytes, goalBytes int64, markShare float64) *process.Stats {
	return &process.Stats{SpanNS: 10e9, Procs: 2, GC: process.GC{
		Cycles: cycles, Forced: forced, ForcedAt: site("free@9"), MeasuredCycles: cycles, LiveBytes: liveBytes, GoalBytes: goalBytes, MarkNS: int64(markShare * 10e9), BegunAt: site("fill@7"), BegunShare: 0.8,
		FractionalNS: 4e9,
	}}
}

// statsWithFullHeap returns the sums of a process of 10 s in which a memory limit was full after some collections and not after
// others.
func statsWithFullHeap(full, notFull int, markShare float64) *process.Stats {
	stats := statsWithCycles(notFull, 0, 200*mib, 400*mib, markShare)
	stats.GC.Cycles, stats.GC.FullCycles, stats.GC.FullBytes = full+notFull, full, 80*mib
	return stats
}

// TestFullLimit: where a memory limit is full, the advice is not GOGC.
func TestFullLimit(t *testing.T) {
	assist := report.Cause{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(1000)}
	found := findAll(t, &Input{Report: oneGroup(assist), Process: statsWithFullHeap(300, 0, 0.5)}, rulesWithPrefix("WL3"))
	check.True(t, len(found) == 1 && found[0].Code == report.RuleGCTooFrequent && strings.HasPrefix(found[0].Fix, "raise GOMEMLIMIT"),
		"%+v", found)
}

// TestCollectorChanges: the prediction is about the change that the advice names. It fails if that is half of the assists.
func TestCollectorChanges(t *testing.T) {
	assist := report.Cause{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(400)}
	behindWorkers := report.Cause{Cause: "sched", Site: site("f@1"), TotalNS: ms(400), RanMeanwhile: []report.Share{{Site: site("runtime.gcBgMarkWorker@1"), Share: 1}}}
	full := statsWithFullHeap(300, 0, 0.5)
	full.GC.AllocatedBytes = 30 * full.GC.FullBytes
	for name, c := range map[string]struct {
		cause        report.Cause
		stats        *process.Stats
		change, text string
	}{
		"small GOGC":      {assist, statsWithCycles(60, 0, 40*mib, 44*mib, 0.9), "GOGC=100", "GOGC: 10 -> 100"},
		"assists":         {assist, statsWithCycles(50, 0, 200*mib, 400*mib, 0.3), "GOGC=200", "GOGC=200: 2 times fewer collections for 210 MB more heap"},
		"workers":         {behindWorkers, statsWithCycles(50, 0, 200*mib, 400*mib, 0.3), "GOGC=200", "GOGC=200"},
		"full limit":      {assist, full, "GOMEMLIMIT=145MiB", "raise GOMEMLIMIT"},
		"forced, another": {behindWorkers, statsWithCycles(10, 9, 30*mib, 60*mib, 0.3), "gc@=10%", "remove the call"},
	} {
		found := findAll(t, &Input{Report: oneGroup(c.cause, report.Cause{Cause: "cpu", Site: site("f@1"), TotalNS: ms(600)}), Process: c.stats}, rulesWithPrefix("WL3"))
		check.True(t, len(found) == 1 && len(found[0].Changes) == 1 && found[0].Changes[0].Text == c.change && strings.Contains(found[0].Fix, c.text),
			"%s: %+v", name, found)
	}
}

func TestCollectorRules(t *testing.T) {
	assist := report.Cause{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(400)}
	behindWorkers := report.Cause{Cause: "sched", Site: site("f@1"), TotalNS: ms(400), RanMeanwhile: []report.Share{{Site: site("runtime.gcBgMarkWorker@1"), Share: 0.75}, {Site: site("other@1"), Share: 0.25}}}
	forced := report.Cause{Cause: "gc-wait", Call: "runtime.GC", Site: site("free@9"), TotalNS: ms(700)}
	cpu := report.Cause{Cause: "cpu", Site: site("f@1"), TotalNS: ms(600)}
	stop := func(kind string) report.Cause {
		return report.Cause{Cause: "stw", Kind: kind, Site: site("meter@3"), TotalNS: ms(400)}
	}
	profile := &allocs.Profile{Bytes: 1000, Sites: []allocs.Site{{Site: *site("log@7"), Bytes: 700}, {Site: *site("fill@7"), Bytes: 300}}}
	stops := func(kind string, stopping int64) *process.Stats {
		c := statsWithCycles(2, 0, 100*mib, 200*mib, 0.01)
		c.Stops = []process.Stop{{Kind: kind, Site: site("meter@3"), Count: 10, TotalNS: 100e6, MaxNS: 20e6, ExaminedNS: 100e6, StoppingNS: stopping, SlowStoppers: []report.Share{{Site: site("copy@5"), Share: 0.9}}}}
		return c
	}
	for _, c := range []struct {
		name   string
		causes []report.Cause
		census *process.Stats
		allocs *allocs.Profile
		want   []string
	}{
		{"assists", []report.Cause{assist, cpu}, statsWithCycles(10, 0, 200*mib, 400*mib, 0.3), nil, []string{"WL3001 pay@3 0.40"}},
		{"the site that allocates is not the one that assists", []report.Cause{assist, cpu}, statsWithCycles(10, 0, 200*mib, 400*mib, 0.3), profile, []string{"WL3001 log@7 0.40"}},
		{"assists, and fewer waits behind workers, are one fault", []report.Cause{assist, behindWorkers, cpu}, statsWithCycles(10, 0, 200*mib, 400*mib, 0.3), nil, []string{"WL3001 pay@3 0.50"}},
		{"workers", []report.Cause{behindWorkers, cpu}, statsWithCycles(10, 0, 200*mib, 400*mib, 0.3), nil, []string{"WL3002 fill@7 0.30"}},
		{"a small GOGC", []report.Cause{assist, cpu}, statsWithCycles(60, 0, 40*mib, 44*mib, 0.9), nil, []string{"WL3004 pay@3 0.40"}},
		{"a small heap", []report.Cause{assist, behindWorkers, cpu}, statsWithCycles(300, 0, 9*mib, 18*mib, 0.2), profile, []string{"WL3004 log@7 0.50"}},
		{"a full memory limit", []report.Cause{assist, cpu}, statsWithFullHeap(300, 2, 0.5), nil, []string{"WL3004 pay@3 0.40"}},
		{"a memory limit that is rarely full", []report.Cause{behindWorkers, cpu}, statsWithFullHeap(2, 10, 0.5), nil, []string{"WL3002 fill@7 0.30"}},
		{"a full memory limit with little to mark", []report.Cause{behindWorkers, cpu}, statsWithFullHeap(300, 2, 0.04), nil, []string{"WL3002 fill@7 0.30"}},
		{"forced", []report.Cause{forced, behindWorkers, cpu}, statsWithCycles(10, 9, 30*mib, 60*mib, 0.3), nil, []string{"WL3005 free@9 0.59"}},
		{"forced by another goroutine", []report.Cause{behindWorkers, cpu}, statsWithCycles(10, 9, 30*mib, 60*mib, 0.3), nil, []string{"WL3005 free@9 0.30"}},
		{"rarely forced by another goroutine", []report.Cause{behindWorkers, cpu}, statsWithCycles(10, 4, 200*mib, 400*mib, 0.3), nil, []string{"WL3002 fill@7 0.30"}},
		{"forced, with little effect on requests", []report.Cause{{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(50)}, cpu}, statsWithCycles(10, 9, 30*mib, 60*mib, 0.3), nil, []string{}},
		{"a usual rate of assists", []report.Cause{{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(50)}, cpu}, statsWithCycles(300, 0, 9*mib, 18*mib, 0.1), nil, []string{}},
		{"stops for memory statistics", []report.Cause{stop("read mem stats"), cpu}, stops("read mem stats", 10e6), nil, []string{"WL3003 meter@3 0.40"}},
		{"code that stops slowly", []report.Cause{stop("GC mark termination"), cpu}, stops("GC mark termination", 90e6), nil, []string{"WL3003 copy@5 0.40"}},
		{"stops of too frequent collections", []report.Cause{stop("GC mark termination"), cpu}, statsWithCycles(300, 0, 9*mib, 18*mib, 0.2), nil, []string{"WL3004 - 0.40"}},
		{"no time in the collector", []report.Cause{cpu}, statsWithCycles(300, 0, 9*mib, 18*mib, 0.2), profile, []string{}},
	} {
		found := findWithBounds(t, &Input{Report: oneGroup(slices.Clone(c.causes)...), Process: c.census, Allocs: c.allocs}, rulesWithPrefix("WL3"))
		got := findingTexts(found)
		for i := range found {
			if found[i].Site == nil {
				got[i] = "WL3004 - 0.40"
			}
			if f := &found[i]; f.Title == "" || f.Fix == "" || len(f.Evidence) == 0 || f.Confidence <= 0 || f.Confidence > 1 {
				t.Errorf("%s: %s lacks a title, a fix, evidence or a confidence: %+v", c.name, f.Code, f)
			}
		}
		check.True(t, slices.Equal(got, c.want), "%s: got %q, want %q", c.name, got, c.want)
	}
}

// TestStoppedArrivals: stops that the service's own call begins also delay requests that arrive during them, which no latency shows.
func TestStoppedArrivals(t *testing.T) {
	for spanNS, want := range map[int64]report.Severity{5e9: report.SeverityMedium, 30e9: ""} {
		g := groupWith(report.Cause{Cause: report.CauseSTW, Kind: "all goroutines stack trace", Site: siteOf("main.capture"), TotalNS: 50e3})
		in := newInput(process.Stats{SpanNS: spanNS, Stops: []process.Stop{{Kind: "all goroutines stack trace", Site: siteOf("main.capture"), Count: 12, TotalNS: 12 * 18e6, MaxNS: 19e6}}}, g)
		got := report.Severity("")
		for _, f := range Find(in, rulesWithPrefix("WL3003")) {
			got = f.Severity
		}
		check.Equal(t, got, want, "a trace of %d s", spanNS/1e9)
	}
}

// TestCollectorConfidence: a profile of allocations makes verdicts about the collector more certain.
func TestCollectorConfidence(t *testing.T) {
	in := newInput(process.Stats{}, groupWith(report.Cause{Cause: report.CauseGCAssist, Site: siteOf("main.fill"), TotalNS: 40e6}))
	assists := func(c *report.Cause) float64 { return oneIf(c.Cause == report.CauseGCAssist) }
	without, ok := in.collectorVerdict(&in.Report.Groups[0], assists)
	in.Allocs = new(allocs.Profile)
	with, _ := in.collectorVerdict(&in.Report.Groups[0], assists)
	check.True(t, ok && with.Confidence > without.Confidence,
		"confidence %v with a profile, %v without", with.Confidence, without.Confidence)
}

// TestDominantAllocSite: with a usual GOGC, the advice begins with the site that allocates most of the bytes. With a small
// GOGC, or if no site allocates most, it begins with the setting.
func TestDominantAllocSite(t *testing.T) {
	assist := report.Cause{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(1000)}
	for _, c := range []struct {
		goal  int64
		first int64 // bytes of 1000
		want  string
	}{{18 * mib, 700, "allocate less at main.log (main.go:7) in regexp.MustCompile"}, {10 * mib, 700, "raise the memory limit"}, {18 * mib, 400, "GOGC: "}} {
		profile := &allocs.Profile{Bytes: 1000, Sites: []allocs.Site{{Site: *site("log@7"), Call: "regexp.MustCompile", Bytes: c.first}, {Site: *site("fill@7"), Bytes: 300}}}
		found := findAll(t, &Input{Report: oneGroup(assist), Process: statsWithCycles(300, 0, 9*mib, c.goal, 0.2), Allocs: profile}, rulesWithPrefix("WL3004"))
		if len(found) != 1 || !strings.HasPrefix(found[0].Fix, c.want) {
			t.Errorf("goal %d, %d of 1000 bytes: %+v", c.goal, c.first, found)
			continue
		}
		seenTexts := map[string]bool{}
		for _, e := range found[0].Evidence {
			check.False(t, seenTexts[e.Text], "%q is twice in the evidence", e.Text)
			seenTexts[e.Text] = true
		}
	}
}

// TestLimitOrGOGC: a memory limit or a small GOGC may hold the goal close to the live heap. Advice about only one of them does
// not help against the other, and the limit is the usual one.
func TestLimitOrGOGC(t *testing.T) {
	for live, want := range map[int64]bool{40 * mib: true, 9 * mib: false} {
		goal := live + 4*mib
		if !want {
			goal = 2 * live
		}
		assist := report.Cause{Cause: "gc-assist", Site: site("pay@3"), TotalNS: ms(1000)}
		found := findAll(t, &Input{Report: oneGroup(assist), Process: statsWithCycles(300, 0, live, goal, 0.9)}, rulesWithPrefix("WL3004"))
		check.True(t, len(found) == 1 && strings.Contains(found[0].Fix, "raise the memory limit (GOMEMLIMIT or debug.SetMemoryLimit) to 99MiB, if one is set; else GOGC: 10 -> 100") == want,
			"%d live, goal %d: %+v", live, goal, found)
	}
}

// TestAdviseGOGC compares the advice with the formula of the goal, computed by hand.
func TestAdviseGOGC(t *testing.T) {
	isNear := func(a, b float64) bool { return math.Abs(a-b) <= 0.01*math.Abs(b) }
	// 40 MiB live, goal 44: GOGC 10. With 100 a cycle has 40 MiB of room instead of 4.
	got, ok := adviseGOGC(statsWithCycles(60, 0, 40*mib, 44*mib, 0.9))
	if !ok || !isNear(got.effectiveGOGC, 10) || got.gogc != 100 || !isNear(got.perSecond, 6) || !isNear(got.newPerSecond, 0.6) || got.extraBytes != 36*mib {
		t.Errorf("a small GOGC: %+v, %t", got, ok)
	}
	// 9 MiB live, goal 18, 30 a second; with 500 the room is 45 MiB.
	got, ok = adviseGOGC(statsWithCycles(300, 0, 9*mib, 18*mib, 0.2))
	check.True(t, ok && got.gogc == 500 && isNear(got.perSecond, 30) && isNear(got.newPerSecond, 6) && got.extraBytes == 36*mib,
		"a small heap: %+v, %t", got, ok)
	// Under the smallest goal: 1 MiB live, goal 4; with 500 it is 20.
	got, ok = adviseGOGC(statsWithCycles(300, 0, 1*mib, 4*mib, 0.2))
	check.True(t, ok && got.extraBytes == 16*mib && isNear(got.newPerSecond, 30*3.0/19), "a tiny heap: %+v, %t", got, ok)
	for name, c := range map[string]*process.Stats{
		"a large heap":               statsWithCycles(100, 0, 200*mib, 400*mib, 0.9),
		"few collections":            statsWithCycles(30, 0, 9*mib, 18*mib, 0.2),
		"little marking":             statsWithCycles(300, 0, 9*mib, 18*mib, 0.01),
		"forced ones":                statsWithCycles(300, 299, 9*mib, 18*mib, 0.2),
		"no goal measured":           {SpanNS: 10e9, GC: process.GC{Cycles: 300, MarkNS: 5e9}},
		"nothing at all":             {},
		"a goal below the live heap": {SpanNS: 10e9, GC: process.GC{Cycles: 300, MeasuredCycles: 299, MarkNS: 5e9, LiveBytes: 5, GoalBytes: 4}},
	} {
		if got, ok := adviseGOGC(c); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestGrowthAdvice: the advice names what bounds the heap.
func TestGrowthAdvice(t *testing.T) {
	for _, c := range []struct {
		gc   process.GC
		want string
	}{
		{process.GC{MeasuredCycles: 9, LiveBytes: 100 << 20, GoalBytes: 200 << 20}, "raise GOGC"}, // how often is not known
		{process.GC{MeasuredCycles: 9, LiveBytes: 100 << 20, GoalBytes: 130 << 20}, "raise GOMEMLIMIT"},
		{process.GC{MeasuredCycles: 9, FullCycles: 1, LiveBytes: 100 << 20, GoalBytes: 200 << 20}, "raise GOMEMLIMIT"},
		{process.GC{}, "raise GOGC"},
	} {
		if got, _ := growthAdvice(&process.Stats{GC: c.gc}); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.gc, got, c.want)
		}
	}
}

// TestComputingAllocates: where the code that requests compute in also allocates most bytes, the finding about it comes before the one
// about GOGC, and its prediction contains the collections. It fails if the first advice is GOGC. Where a memory limit is full, any code
// that allocates pays for it, and the limit comes first.
func TestComputingAllocates(t *testing.T) {
	decode := inModule("dep.org/x.Decode@7", "dep.org/x")
	decode.CalledFrom = &report.Caller{Func: "main.load", File: "/src/main.go", Line: 5, Calls: "dep.org/x.Find"}
	smallGoal := statsWithCycles(200, 0, 5*mib, 10*mib, 0.2)
	for _, c := range []struct {
		allocates string
		stats     *process.Stats
		codes     []report.RuleCode
		severity  report.Severity // of the first
		changes   int             // of the finding about computing
	}{
		{"dep.org/x.Decode@7", smallGoal, []report.RuleCode{report.RuleComputes, report.RuleGCTooFrequent}, report.SeverityMedium, 2},
		{"dep.org/x/internal/syntax.parse@3", smallGoal, []report.RuleCode{report.RuleComputes, report.RuleGCTooFrequent}, report.SeverityMedium, 2},
		{"main.other@9", smallGoal, []report.RuleCode{report.RuleGCTooFrequent, report.RuleComputes}, report.SeverityMedium, 1},
		{"dep.org/x.Decode@7", statsWithFullHeap(300, 0, 0.5), []report.RuleCode{report.RuleGCTooFrequent, report.RuleComputes}, report.SeverityMedium, 1},
	} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: decode, SiteFrom: "sample", TotalNS: ms(1700), Samples: 170},
			report.Cause{Cause: report.CauseGCAssist, Site: decode, TotalNS: ms(300)})
		in := &Input{Report: rep, Process: c.stats, Allocs: &allocs.Profile{Bytes: 100 * mib, Sites: []allocs.Site{{Site: *site(c.allocates), Bytes: 80 * mib}}, Stacks: []allocs.Stack{{Bytes: 80 * mib, Func: site(c.allocates).Func}}}}
		found := findAll(t, in, append(rulesByCode(report.RuleComputes), rulesByCode(report.RuleGCTooFrequent)...))
		var codes []report.RuleCode
		for i := range found {
			if codes = append(codes, found[i].Code); found[i].Code == report.RuleComputes {
				check.Equal(t, len(found[i].Changes), c.changes, "%s: %+v", c.allocates, found[i].Changes)
			}
		}
		check.True(t, slices.Equal(codes, c.codes) && found[0].Severity == c.severity && found[1].Severity == report.SeverityLow, "%s: %v %+v", c.allocates, codes, found)
	}
}

// TestComputesFromFile: what each request reads from a file and decodes can be kept; what few requests read, or a library, cannot.
func TestComputesFromFile(t *testing.T) {
	library := inModule("dep.org/db.read@7", "dep.org/db")
	library.CalledFrom = &report.Caller{Func: "main.load", File: "/src/main.go", Line: 5}
	for _, c := range []struct {
		read     *report.Site
		requests int
		isSaid   bool
	}{{site("load@4"), 100, true}, {site("load@4"), 20, false}, {site("store@4"), 100, false}, {library, 100, false}} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: site("load@5"), SiteFrom: "sample", TotalNS: ms(1700), Samples: 170, Requests: 100},
			report.Cause{Cause: report.CauseSyscall, Site: c.read, Call: "os.(*File).Read", TotalNS: ms(20), Requests: c.requests})
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesByCode(report.RuleComputes))
		check.True(t, len(found) == 1 && strings.Contains(found[0].Title, "reads a file") == c.isSaid, "%v: %+v", c, found)
	}
}

// TestFileReadBesideComputing: a line that computes on the content of a file spends less on the read.
func TestFileReadBesideComputing(t *testing.T) {
	for computingNS, want := range map[int64]report.Severity{ms(1700): report.SeverityLow, ms(400): report.SeverityHigh} {
		rep := oneGroup(
			report.Cause{Cause: report.CauseCPU, Site: site("load@5"), SiteFrom: "sample", TotalNS: computingNS, Samples: int(computingNS / report.SampleNS), Requests: 100},
			report.Cause{Cause: report.CauseSyscall, Site: site("load@5"), Call: "os.(*File).Read", TotalNS: ms(800), Requests: 100})
		found := findAll(t, &Input{Report: rep, Process: &process.Stats{}}, rulesByCode(report.RuleBlockingSyscall))
		check.True(t, len(found) == 1 && found[0].Severity == want, "computing %d ns: %+v", computingNS, found)
	}
}
