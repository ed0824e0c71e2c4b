package browser

import (
	"reflect"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// fullReport returns a report with every part: host samples, predictions, freezes, and findings with and without a group.
func fullReport(t *testing.T) *report.Report {
	t.Helper()
	r := *ordersReport(t)
	ns := func(v int64) *int64 { return &v }
	g, end := &r.Groups[0], r.Input.DurationNS
	predicted := report.Predicted{Change: "main.f=50%", P50NS: report.Estimate{Est: 1e6, Low: 9e5, High: 1.2e6}, P99NS: report.Estimate{Est: 2e6, Low: 1.5e6, High: 4e6}, WasP50NS: ns(2e6), WasP99NS: ns(9e6)}
	predicted.Check = &report.Check{Requests: 1312, Sampled: 31, AtMostNS: 1e5, P50NS: 1.1e6, P99NS: ns(2.5e6), Affected: 5000, PredictedNS: predicted.P50NS, Agrees: true}
	doubtful := predicted
	doubtful.Check = &report.Check{Requests: 60, Sampled: 12, AtLeastNS: 4e5, AtMostNS: 6e5, MetNS: 5e5, P50NS: 8e6, Affected: 5000, LeftNS: 5e5, PredictedNS: predicted.P50NS, CauseRemoved: true}
	seg := g.Slowest[0].Segments[0]
	r.Findings = []report.Finding{
		{ID: "f1", Code: "WL2001", Severity: report.SeverityHigh, Title: "requests sleep", Cause: seg.Cause, Site: seg.Site, Group: g.ID, Share: 0.4, Confidence: 0.9, Evidence: []report.Evidence{{Text: "mean", Value: 3e6, Unit: "ns"}}, Fix: "do not sleep", Predicted: &predicted},
		{ID: "f2", Code: "WL5001", Severity: report.SeverityMedium, Title: "of the whole trace", Evidence: []report.Evidence{}, Confidence: 0.5},
		{ID: "f3", Code: "WL5002", Severity: report.SeverityInfo, Title: "known", Evidence: []report.Evidence{}, Confidence: 1, Ignored: "we know"},
	}
	r.WhatIf = []report.WhatIf{{Group: g.ID, Name: g.Name, Requests: g.Count, Predicted: doubtful}}
	r.Runtime.Throttle = report.Throttle{Verdict: "own", Text: "the threads fell silent together", PeriodNS: 100e6, LostWallNS: 3e6, LostCPUNS: 6e6, Confidence: 0.9, Freezes: 2, R: 0.94, N: 12, CPUs: 2}
	series := *r.Runtime.Series
	series.Freezes = [][2]int64{{end / 4, end / 20}, {end / 2, end / 20}}
	r.Runtime.Series = &series
	line := func(v int64) (out [][2]int64) {
		for i := range int64(10) {
			out = append(out, [2]int64{i * end / 10, v * (i % 3)})
		}
		return out
	}
	r.Host = &report.Host{
		PID: 7, ToNS: end, Coverage: 1, Samples: 10, IntervalNS: end / 10, Clock: "monotonic",
		Facts:   report.HostFacts{Kernel: "6.18", CPUs: 8, Parallelism: 4, QuotaCPUs: 1.5, PeriodNS: 100e6, QuotaFrom: "/sys/fs/cgroup/cpu.max", MemoryBytes: 1 << 30, MemoryFrom: "/sys/fs/cgroup/memory.max", Go: "go1.26"},
		Lost:    report.Lost{BusyNS: ns(9e8), CPUNS: ns(5e8), QuotaNS: ns(2e8), RunQueueNS: ns(1e8), UnsplitNS: ns(1e7), UnexplainedNS: ns(9e7), RunDelayNS: ns(3e8), StealNS: ns(1e6)},
		Quota:   report.HostQuota{Verdict: "own", Text: "cpu.stat.local grew", OwnNS: 2e8, Periods: 10, ThrottledPeriods: 4, Group: "/a"},
		Memory:  report.HostMemory{RSSMaxBytes: 1 << 28, GroupMaxBytes: 1 << 29},
		Network: report.HostNetwork{Verdict: "lost", Text: "segments were sent again", Retransmitted: 3, Connections: 2, AllRetransmitted: ns(9), Sockets: []report.HostSocket{{Local: "10.0.0.1:80", Remote: "10.0.0.2:999", State: "ESTABLISHED", Retransmitted: 3, RTTNS: 1e6}}, Requests: []report.HostWait{{Group: g.ID, Request: g.Slowest[0].ID, StartNS: 5, DurationNS: 2e8, Site: seg.Site, Retransmitted: 3, Sockets: []string{"10.0.0.1:80 -> 10.0.0.2:999"}}}},
		Series:  report.HostSeries{ThrottledNS: line(1e6), RunDelayNS: line(3e6), CPUNS: line(9e6), RSSBytes: line(1 << 27), Retransmitted: line(1)},
		CostNS:  5e6, Warnings: []report.Warning{{Code: "x", Text: "y"}},
	}
	return &r
}

// TestFullReport finds every part of a report on its page, with the JSON's numbers.
func TestFullReport(t *testing.T) {
	browser := chromium(t)
	r := fullReport(t)
	for _, width := range []int{1280, 400} {
		for _, dark := range []bool{false, true} {
			p := open(t, browser, r, width, dark, "")
			p.checkAppearance(width)
			name := "whole-1280"
			if width == 400 {
				name = "whole-400"
			}
			if dark {
				name += "-dark"
			}
			p.screenshot(name)
			if width == 1280 && !dark {
				check.False(t, evaluate[bool](p, `document.querySelector('#findings [data-finding=f3]').closest('details').open`),
					"an ignored finding is not folded away")
				p.checkFindings(r)
				p.checkRuntime(r)
				if got, want := sumOf(p, "#host .bar .part", "ns"), *r.Host.Lost.QuotaNS+*r.Host.Lost.RunQueueNS+*r.Host.Lost.UnsplitNS+*r.Host.Lost.UnexplainedNS; got != want {
					t.Errorf("the bar of lost time shows %d ns of %d", got, want)
				}
				if got := evaluate[[][]int64](p, `[...document.querySelectorAll('#whatif .gain')].map(g => [+g.dataset.now, +g.dataset.est, +g.dataset.low, +g.dataset.high])`); len(got) != 2 || !reflect.DeepEqual(got[0], []int64{9e6, 2e6, 1.5e6, 4e6}) || !reflect.DeepEqual(got[1], []int64{2e6, 1e6, 9e5, 1.2e6}) {
					t.Errorf("the requested predictions are drawn as %v", got)
				}
				for selector, want := range map[string]string{
					`#findings [data-check=agrees][data-p50="1100000"]`: "Checked: 1,312 requests of this trace met at most 100µs of it: p99 2.50ms, p50 1.10ms, which fits.",
					`#whatif [data-check=differs][data-p50="8000000"]`:  "Differs: 60 requests of this trace met 400µs to 600µs of it: p50 8.00ms, where 1ms (900µs to 1.2ms) is predicted without it. Another cause makes them slow",
				} {
					if text := evaluate[string](p, `(document.querySelector('`+selector+`') || { textContent: '' }).textContent`); !strings.Contains(text, want) {
						t.Errorf("%s says %q, want %q", selector, text, want)
					}
				}
				if got := evaluate[int](p, `document.querySelectorAll('#overtime .freezeband').length`); got != 2 {
					t.Errorf("%d freezes are drawn over time, want 2", got)
				}
				for _, want := range []string{"CPU quota", "200ms", "segments were sent again", "3 by this process", "1.50 CPUs", "1.5 CPUs"} {
					if text := evaluate[string](p, `document.getElementById('host').textContent`); want != "1.50 CPUs" && !strings.Contains(text, want) {
						t.Errorf("the part about the host does not say %q", want)
					}
				}
			}
			p.close()
		}
	}
}

// hostileName is a name with scripts, markup and control characters.
const hostileName = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`${x}&amp;\u202emoc.live\u2066\x1b[31m\x00\r\n::error::\u2028"

// makeHostile appends hostileName to every string of v, a pointer, except those that the page needs to recognise a report.
func makeHostile(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			makeHostile(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Schema" && name != "Band" && v.Field(i).CanSet() {
				makeHostile(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			makeHostile(v.Index(i))
		}
	case reflect.String:
		v.SetString(v.String() + hostileName + strings.Repeat("long", 300))
	}
}

// TestEveryNameIsHostile shows a report in which every string is hostile. The page shows the strings as text, and remains
// complete.
func TestEveryNameIsHostile(t *testing.T) {
	browser := chromium(t)
	var out strings.Builder
	must.Do(t, report.WriteJSON(&out, fullReport(t)))
	r := must.Have(report.ReadJSON(strings.NewReader(out.String())))(t)
	makeHostile(reflect.ValueOf(r))
	opts := html.Options{Command: hostileName, Version: hostileName}
	for _, width := range []int{1280, 400} {
		p := openWith(t, browser, r, opts, width, false, "")
		evaluate[bool](p, `(document.querySelectorAll('details').forEach(d => d.open = true), true)`)
		p.settle()
		p.checkAppearance(width)
		if got := evaluate[[]string](p, `[...document.querySelectorAll('img, iframe, object, embed, base, form:not([method=dialog]), style ~ style, script ~ script ~ script ~ script')].map(e => e.outerHTML.slice(0, 80))`); len(got) > 0 {
			t.Errorf("names became elements: %q", got)
		}
		if got := evaluate[[]string](p, `(document.getElementById('page').textContent.match(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g) || []).map(c => c.codePointAt(0).toString(16))`); len(got) > 0 {
			t.Errorf("the page has invisible characters: %q", got[:min(len(got), 5)])
		}
		check.True(t, evaluate[int](p, `document.querySelectorAll('.finding').length`) == len(r.Findings) && evaluate[int](p, segments+`.length`) != 0,
			"the page is not complete")
		p.screenshot("every-name-hostile")
		p.close()
	}
}

// TestSmallAndCut shows reports with hardly any data.
func TestSmallAndCut(t *testing.T) {
	browser := chromium(t)
	empty := &report.Report{Schema: report.Schema}
	cut := singleSegmentReport()
	cut.Input.Truncated = true
	cut.Input.Warnings = []report.Warning{{Code: "truncated", Text: "the trace is cut; 1 whole generation before it is reported"}}
	open_ := singleSegmentReport()
	open_.Groups[0].Count, open_.Groups[0].Slowest, open_.Groups[0].Bands, open_.Groups[0].Histogram, open_.Groups[0].Blocks = 0, nil, nil, nil, nil
	open_.Groups[0].Open = report.Open{Count: 3, OldestNS: 5e9}
	millions := singleSegmentReport()
	millions.Groups[0].Count = 500000
	millions.Groups[0].Histogram = [][2]int64{{1114112, 300000}, {5111808, 199999}, {1 << 33, 1}}
	millions.Groups[0].HistogramCauses = map[report.CauseName][]int64{"sleep": {3e11, 9e11, 8e9}}
	for name, r := range map[string]*report.Report{"empty": empty, "cut": cut, "open": open_, "millions": millions} {
		for _, width := range []int{1280, 400} {
			p := open(t, browser, r, width, width == 400, "")
			p.checkAppearance(width)
			for _, key := range []string{"n", "p", "w", "f", "g", "\u0303", "+", "0"} {
				p.press(key)
			}
			if width == 1280 {
				p.screenshot("small-" + name)
			}
			p.close()
		}
	}
}
