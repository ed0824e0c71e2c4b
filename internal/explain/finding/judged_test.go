package finding

import (
	"fmt"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestJudged: a rule that found nothing is clear only if it had the data that it requires. The test fails if a bare trace looks
// as clean as a recording with all data, and if a rule is in no list.
func TestJudged(t *testing.T) {
	ns := func(n int64) *int64 { return &n }
	groups := []report.Group{{ID: "g", Name: "main.handle", Named: true, Count: 1000}}
	host := &report.Host{States: true, Lost: report.Lost{RunDelayNS: ns(1), BusyNS: ns(1e9), CPUNS: ns(1e9)}, Network: report.HostNetwork{Verdict: report.NetworkCleared}}
	unknownThrottle := report.Runtime{Throttle: report.Throttle{Verdict: report.ThrottleUnknown}}
	noThrottle := report.Runtime{Throttle: report.Throttle{Verdict: report.ThrottleNone}}
	// rules returns the text with the number of all rules, of those that found something, and of those that are clear.
	rules := func(found, lacking int) string {
		n := len(All())
		return fmt.Sprintf("%d rules: %d found, %d", n, found, n-found-lacking)
	}
	for _, c := range []struct {
		name    string
		rep     report.Report
		samples int64
		found   []report.RuleCode
		blind   string
		text    string
	}{
		{
			"all data", report.Report{Groups: groups, Host: host, Runtime: noThrottle, Input: report.Input{DurationNS: 10e9}}, 1000, nil, "",
			rules(0, 0) + " clear",
		},
		{
			"a bare trace", report.Report{Groups: groups, Runtime: unknownThrottle, Input: report.Input{DurationNS: 10e9}}, 0, []report.RuleCode{report.RuleSleep},
			"cpu-samples WL1005 WL1008 WL5011 host-samples WL1006 WL1009 WL2008 WL4001 WL4002 WL4003",
			rules(1, 9) + " clear, 9 not judged: no CPU samples (WL1005, WL1008, WL5011), no samples of the host (WL1006, WL1009, WL2008, WL4001 and 2 more); to judge them: whylate record --pid PID -o x.whylate URL",
		},
		{
			"a short one, of a URL", report.Report{Groups: groups, Runtime: unknownThrottle, Input: report.Input{Name: "http://svc:6060", DurationNS: 1e9}}, 7, nil,
			"time WL4001 cpu-samples WL1005 WL1008 WL5011 host-samples WL1006 WL1009 WL2008 WL4002 WL4003",
			"whylate record -d 30s --pid PID -o x.whylate 'http://svc:6060'",
		},
		{
			"what was found was judged", report.Report{Groups: groups, Host: host, Runtime: noThrottle, Input: report.Input{DurationNS: 10e9}}, 0, []report.RuleCode{report.RuleComputes}, "",
			rules(1, 0) + " clear",
		},
	} {
		in := &Input{Report: &c.rep, Process: &process.Stats{Samples: process.Samples{All: c.samples}}}
		var findings []report.Finding
		for _, code := range c.found {
			findings = append(findings, report.Finding{Code: code})
		}
		j := Judge(in, All(), findings)
		got := ""
		for _, b := range j.Blind {
			got += " " + string(b.Reason)
			for _, code := range b.Codes {
				got += " " + string(code)
			}
		}
		if got = strings.TrimSpace(got); got != c.blind {
			t.Errorf("%s: blind %q, want %q", c.name, got, c.blind)
		}
		check.True(t, strings.Contains(j.Text, c.text), "%s: %q does not say %q", c.name, j.Text, c.text)
		if err := (&report.Report{Judged: j}).CheckValid(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	empty := &Input{Report: &report.Report{Host: host, Runtime: noThrottle}, Process: &process.Stats{}}
	if j := Judge(empty, All(), nil); len(j.Blind) == 0 || j.Blind[0].Reason != report.BlindRequests || len(j.Clear) > 14 {
		t.Errorf("without a request: %s", j.Text)
	}
	// Where no group has the name of the query, no recording helps.
	empty.Report.Input.Warnings = []report.Warning{{Code: "no-group"}}
	if j := Judge(empty, All(), nil); j.Record != "" || !strings.Contains(j.Text, "not judged: nothing matches what was asked for (") {
		t.Errorf("a name that no group has: %s", j.Text)
	}
}

// TestFailedRule: a report is without the findings of a rule that panics, says so, and has all others.
func TestFailedRule(t *testing.T) {
	in := newInput(process.Stats{}, groupWith(report.Cause{Cause: "sleep", Site: siteOf("main.pause"), Call: "time.Sleep", TotalNS: 9e6}))
	rules := append(rulesByCode(report.RuleSleep), perReport(report.RuleComputes, func(*Input) []Verdict { panic("no site") }))
	found := Find(in, rules)
	judged := Judge(in, rules, found)
	if len(found) != 1 || found[0].Code != report.RuleSleep || len(judged.Blind) != 1 || judged.Blind[0].Reason != report.BlindError ||
		judged.Blind[0].Text != "an error of whylate, please report it: no site" || judged.Record != "" {
		t.Errorf("%+v, %+v", found, judged)
	}
}
