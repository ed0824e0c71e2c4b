package finding

import (
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// frozenReport returns a report of a group that spends a share of its time frozen.
func frozenReport(verdict report.ThrottleVerdict, share float64, procs int, host *report.Host) *report.Report {
	const slow = 80_000_000
	band := report.Band{Band: report.BandAll, Count: 100, Causes: []report.Cause{
		{Cause: "throttle", Site: &report.Site{Func: "main.work", File: "/src/main.go", Line: 7}, TotalNS: int64(share * slow * 100), Share: share, Requests: 80},
		{Cause: "cpu", Site: &report.Site{Func: "main.work", File: "/src/main.go", Line: 7}, TotalNS: int64((1 - share) * slow * 100), Share: 1 - share, Requests: 100},
	}}
	return &report.Report{
		Input:  report.Input{GOMAXPROCS: procs, DurationNS: 10e9},
		Groups: []report.Group{{ID: "g", Name: "main.handle", Count: 100, Bands: []report.Band{band}}},
		Runtime: report.Runtime{Throttle: report.Throttle{Verdict: verdict, PeriodNS: 100e6, Freezes: 60, LostWallNS: 60 * 50e6, LostCPUNS: 120 * 50e6, CPUs: 2,
			R: 0.97, N: 100, Confidence: 0.95}},
		Host: host,
	}
}

// TestThrottleRules checks code, severity and advice of both rules about CPU limits.
func TestThrottleRules(t *testing.T) {
	limit := func(cpus float64, parallel int) *report.Host {
		return &report.Host{Facts: report.HostFacts{QuotaCPUs: cpus, QuotaFrom: "/sys/fs/cgroup/cpu.max", Parallelism: parallel, PeriodNS: 100e6}}
	}
	used := func(h *report.Host, cpu int64) *report.Host {
		h.ToNS, h.Lost.CPUNS = 10e9, &cpu
		return h
	}
	everyPeriod := frozenReport("own", 0.5, 8, nil)
	everyPeriod.Runtime.Throttle.Freezes = 97
	for _, c := range []struct {
		name   string
		report *report.Report
		want   []string // code and severity
		fix    string   // of the first finding
	}{
		{"from the trace alone", frozenReport("own", 0.5, 8, nil), []string{"WL4001 high"}, "GOMAXPROCS: 8 -> about 1,"},
		{"with samples", frozenReport("own", 0.5, 8, limit(1.5, 8)), []string{"WL4001 high", "WL4002 high"}, "GOMAXPROCS: 8 -> 2, to match"},
		{"with samples, half used", frozenReport("own", 0.5, 8, used(limit(1.5, 8), 7.5e9)), []string{"WL4001 high", "WL4002 high"}, "GOMAXPROCS: 8 -> 2, to match"},
		{"with samples, half a CPU", frozenReport("own", 0.5, 8, limit(0.5, 8)), []string{"WL4001 high", "WL4002 high"}, "GOMAXPROCS: 8 -> 1, to match"},
		{"all of the limit used", frozenReport("own", 0.5, 8, used(limit(1.5, 8), 14.8e9)), []string{"WL4001 high", "WL4002 info"}, "uses the whole limit"},
		{"frozen in every period", everyPeriod, []string{"WL4001 high"}, "uses the whole limit"},
		{"an ancestor's", frozenReport("ancestor", 0.2, 4, limit(4, 8)), []string{"WL4001 medium"}, "raise the CPU limit"},
		{"little of it", frozenReport("own", 0.01, 8, nil), nil, ""},
		{"distinguished", frozenReport("unknown", 0.5, 8, nil), nil, ""},
		{"measured none", frozenReport("none", 0.5, 8, nil), nil, ""},
		{"no request hit", frozenReport("own", 0, 8, nil), []string{"WL4001 info"}, "raise the limit"},
		{"too many Ps, not throttled", frozenReport("none", 0, 8, limit(2, 8)), []string{"WL4002 info"}, "GOMAXPROCS: 8 -> 2,"},
		{"too few Ps", frozenReport("none", 0, 2, limit(4, 8)), []string{"WL4002 info"}, "leave GOMAXPROCS"},
		{"fewer CPUs than the limit", frozenReport("none", 0, 2, limit(4, 2)), nil, ""},
		{"the runtime's own choice", frozenReport("none", 0, 2, limit(0.5, 8)), nil, ""},
		{"a limit of part of a CPU more", frozenReport("none", 0, 3, limit(2.5, 8)), nil, ""},
	} {
		got := findWithBounds(t, &Input{Report: c.report}, rulesByCode(report.RuleThrottled, report.RuleGOMAXPROCSAndLimit))
		var codes []string
		for _, f := range got {
			codes = append(codes, string(f.Code)+" "+string(f.Severity))
		}
		if !slices.Equal(codes, c.want) {
			t.Errorf("%s: %v, want %v", c.name, codes, c.want)
			continue
		}
		if len(got) > 0 && !strings.Contains(got[0].Fix, c.fix) {
			t.Errorf("%s: the fix is %q; want %q in it", c.name, got[0].Fix, c.fix)
		}
		check.True(t, len(got) == 0 || got[0].Code != report.RuleThrottled || slices.ContainsFunc(got[0].Evidence, func(e report.Evidence) bool {
			return e.Text == textOf("evidence silences", "n", 100) && e.Value == 0.97
		}), "%s: the evidence does not say how regular the silences are: %+v", c.name, got)
	}
}

// TestCPULimitFromFreezes checks that the limit is small if a process ran little before each freeze, however many Ps
// it has. It would otherwise advise a GOMAXPROCS of 6 for a quota of a quarter of a CPU.
func TestCPULimitFromFreezes(t *testing.T) {
	r := frozenReport("own", 0.5, 8, nil)
	rt := &r.Runtime
	rt.Throttle.CPUs, rt.Throttle.LostWallNS = 8, int64(rt.Throttle.Freezes)*25e6
	rt.Series = &report.Series{StepNS: 10e6}
	for start := int64(0); start < 10e9; start += 10e6 {
		rt.Series.Running = append(rt.Series.Running, [2]int64{start, 300})
	}
	for end := int64(157e6); end < 10e9; end += 160e6 {
		end -= end%100e6 - 57e6 // at multiples of the period
		rt.Series.Freezes = append(rt.Series.Freezes, [2]int64{end - 25e6, 25e6})
	}
	if limit, _ := cpuLimit(r); limit < 0.2 || limit > 0.25 {
		t.Errorf("the limit is %v, want 0.3 CPUs for three quarters of a period", limit)
	}
	got := findWithBounds(t, &Input{Report: r}, rulesByCode(report.RuleThrottled))
	check.True(t, len(got) == 1 && strings.Contains(got[0].Fix, "about 1,"), "%+v", got)
	// Steps as long as a period do not show what ran in one.
	if rt.Series.StepNS = 100e6; cpusBeforeFreezes(rt) != 0 {
		t.Error("long steps are used")
	}
}

// TestSuspectedQuota checks that a quota that cannot be excluded is reported as a fact, with the source that shows
// rare freezes.
func TestSuspectedQuota(t *testing.T) {
	r := frozenReport("unknown", 0, 8, nil)
	r.Runtime.Throttle.Suspect, r.Runtime.Throttle.Text = 3, "3 silences"
	got := findAll(t, &Input{Report: r}, rulesByCode(report.RuleThrottled))
	if len(got) != 1 || got[0].Severity != report.SeverityInfo || !strings.Contains(got[0].Title, "cannot be excluded") || !strings.Contains(got[0].Fix, "service/probe") {
		t.Errorf("%+v", got)
	}
}

// TestPollGapIsLoud checks that a poll gap longer than the requests is a fault. A shorter gap is a fact, and a gap
// with a freeze is due to the CPU limit.
func TestPollGapIsLoud(t *testing.T) {
	for _, c := range []struct {
		gap, freeze int64
		want        report.Severity
	}{{7e6, 0, report.SeverityMedium}, {150e3, 0, report.SeverityInfo}, {86e6, 85.8e6, report.SeverityInfo}, {86e6, 20e6, report.SeverityMedium}} {
		gap, took := c.gap, int64(213e3)
		r := &report.Report{Groups: []report.Group{{ID: "g", Name: "main.handle", Count: 1000, LatencyNS: report.Latency{P50: &took}, PollGapNS: report.Quantiles{P50: &gap, P99: &gap},
			Bands: []report.Band{{Band: report.BandAll, Count: 1000}}}}}
		if c.freeze > 0 {
			r.Runtime.Throttle = report.Throttle{Verdict: report.ThrottleOwn, Freezes: 10, LostWallNS: 10 * c.freeze}
		}
		got := findAll(t, &Input{Report: r}, rulesByCode(report.RulePollGaps))
		check.True(t, len(got) == 1 && got[0].Severity == c.want && got[0].Confidence <= 1, "a gap of %d ns with freezes of %d: %+v", gap, c.freeze, got)
	}
}

// TestFrozenRequests: of a limit that froze the process but no request, the evidence counts no request.
func TestFrozenRequests(t *testing.T) {
	hit, spared := frozenReport("own", 0.5, 8, nil), frozenReport("own", 0.5, 8, nil)
	spared.Groups[0].Bands[0].Causes = spared.Groups[0].Bands[0].Causes[1:]
	for rep, want := range map[*report.Report]float64{hit: 80, spared: 0} {
		evidence := throttleEvidence(&Input{Report: rep}, &rep.Groups[0])
		i := slices.IndexFunc(evidence, func(e report.Evidence) bool { return e.Unit == "requests" })
		check.True(t, i >= 0 && evidence[i].Value == want, "%v requests froze: %+v", want, evidence)
	}
}

// TestHiddenLimit checks the evidence of a redacted recording, which contains no file name of a control group.
func TestHiddenLimit(t *testing.T) {
	r := &report.Report{Host: &report.Host{Facts: report.HostFacts{QuotaCPUs: 2, Parallelism: 8}}, Input: report.Input{GOMAXPROCS: 8}}
	if limit, from := cpuLimit(r); limit != 2 || from != "the control group" {
		t.Errorf("the limit is %v, by %q", limit, from)
	}
	found := checkGOMAXPROCSAndLimit(&Input{Report: r})
	check.True(t, len(found) == 1 && found[0].Finding.Evidence[1].Text == "CPU limit, by the control group", "found %+v", found)
}

// TestNeededCPUs: the limit that is needed is what the process used in the part of a period in which it was not throttled.
func TestNeededCPUs(t *testing.T) {
	r := &report.Report{Host: &report.Host{}, Input: report.Input{GOMAXPROCS: 4}}
	r.Host.Quota.Verdict, r.Host.Facts.QuotaCPUs, r.Host.Facts.CPUs = "own", 0.5, 4
	r.Runtime.Throttle.PeriodNS, r.Runtime.Series = 100e6, &report.Series{}
	for i := range int64(10) {
		r.Runtime.Series.Freezes = append(r.Runtime.Series.Freezes, [2]int64{i * 100e6, 75e6})
	}
	check.Equal(t, neededCPUs(r), 2, "half a CPU's time in a quarter of the period")
	r.Input.GOMAXPROCS = 1
	check.Equal(t, neededCPUs(r), 1, "with one P")
	r.Host.Quota.Verdict = "ancestor"
	check.Equal(t, neededCPUs(r), 0, "of an unknown limit")
}

// TestThrottledShare: the kernel's counters say in which share of the quota's periods it throttled the process, if there are any;
// without samples, freezes that a quota causes do. Other freezes say nothing of a quota.
func TestThrottledShare(t *testing.T) {
	counted := func(throttled, periods int64) *report.Host {
		return &report.Host{Quota: report.HostQuota{Periods: periods, ThrottledPeriods: throttled}}
	}
	for _, c := range []struct {
		name    string
		verdict report.ThrottleVerdict
		host    *report.Host
		want    float64
	}{
		{"counted", "own", counted(5, 20), 0.25},
		{"a single period", "own", counted(1, 1), 1},
		{"freezes of a quota", "own", nil, 0.6},
		{"freezes of something else", "unknown", nil, 0},
		{"samples show no quota", "own", counted(0, 0), 0},
	} {
		check.Equal(t, throttledShare(frozenReport(c.verdict, 0.5, 8, c.host)), c.want, "%s", c.name)
	}
}
