package report_test

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestCheckValid breaks a report in one place at a time: the error must name the place.
func TestCheckValid(t *testing.T) {
	p := func(ns int64) *int64 { return &ns }
	for _, c := range []struct {
		name  string
		spoil func(r *report.Report)
		want  string
	}{
		{"no change", func(*report.Report) {}, ""},
		{"a negative count", func(r *report.Report) { r.Groups[0].Count = -1 }, "groups[0].count"},
		{"an unknown kind", func(r *report.Report) { r.Groups[0].Kind = "soap" }, "groups[0].kind"},
		{"percentiles out of order", func(r *report.Report) { r.Groups[0].LatencyNS.P50 = p(1 << 60) }, "groups[0].latency_ns"},
		{"a bucket that lost a request", func(r *report.Report) { r.Groups[0].Histogram[0][1]++ }, "groups[0].histogram"},
		{"buckets out of order", func(r *report.Report) { r.Groups[0].Histogram[0][0] = 1 << 60 }, "groups[0].histogram"},
		{"the first band is another", func(r *report.Report) { r.Groups[0].Bands[0].Band = report.Band99 }, "groups[0].bands[0]"},
		{"all requests are not all", func(r *report.Report) { r.Groups[0].Bands[0].Count++ }, "groups[0].bands[0].count"},
		{"a band beyond all", func(r *report.Report) { r.Groups[0].Bands[1].ToNS = 1 << 60 }, "groups[0].bands[1]"},
		{"bands out of order", func(r *report.Report) { r.Groups[0].Bands[2].Band = report.Band5090 }, "groups[0].bands[2]"},
		{"a band that ends before it begins", func(r *report.Report) { r.Groups[0].Bands[0].FromNS = 1 << 60 }, "groups[0].bands[0]"},
		{"an unknown cause", func(r *report.Report) { r.Groups[0].Bands[0].Causes[0].Cause = "luck" }, "groups[0].bands[0].causes[0].cause"},
		{"a share above 1", func(r *report.Report) { r.Groups[0].Bands[0].Causes[0].Share = 1.5 }, "groups[0].bands[0].causes[0].share"},
		{"a share that is no number", func(r *report.Report) { r.Groups[0].Bands[0].Causes[0].Share = math.NaN() }, "groups[0].bands[0].causes[0].share"},
		{"an error of a share where all requests were followed", func(r *report.Report) { r.Groups[0].Bands[0].Causes[0].ShareError = 0.1 }, "groups[0].bands[0].causes[0].share_error"},
		{"shares that do not add up", func(r *report.Report) { r.Groups[0].Bands[0].Causes[0].Share /= 2 }, "groups[0].bands[0].causes"},
		{"more requests than the band has", func(r *report.Report) { r.Groups[0].Bands[0].Causes[0].Requests = 1 << 40 }, "groups[0].bands[0].causes[0]"},
		{"routes longer than the cause", func(r *report.Report) {
			row := &r.Groups[0].Bands[0].Causes[0]
			row.Routes = []report.Route{{TotalNS: row.TotalNS}, {TotalNS: 1000}}
		}, "groups[0].bands[0].causes[0]"},
		{"shares of running goroutines above 1", func(r *report.Report) {
			r.Groups[0].Bands[0].Causes[0].RanMeanwhile = []report.Share{{Share: 0.7}, {Share: 0.7}}
		}, "groups[0].bands[0].causes[0]"},
		{"a gap between segments", func(r *report.Report) { r.Groups[0].Slowest[0].Segments[1].StartNS++ }, "groups[0].slowest[0].segments[1]"},
		{"segments that do not make up the latency", func(r *report.Report) { r.Groups[0].Slowest[0].LatencyNS++ }, "groups[0].slowest[0].segments"},
		{"a block with less than nothing", func(r *report.Report) { r.Groups[0].Blocks[0].TotalNS = -1 }, "groups[0].blocks[0].total_ns"},
		{"an unknown severity", func(r *report.Report) { r.Findings = []report.Finding{{Code: "WL1001", Severity: "grave"}} }, "findings[0].severity"},
		{"a finding about no group", func(r *report.Report) {
			r.Findings = []report.Finding{{Code: "WL1001", Severity: report.SeverityLow, Group: "nobody"}}
		}, "findings[0].group"},
		{"a finding of a family", func(r *report.Report) {
			r.Findings = []report.Finding{{Code: "WL3001", Severity: report.SeverityLow, Cause: report.FamilyGC}}
		}, ""},
		{"a confidence above 1", func(r *report.Report) {
			r.Findings = []report.Finding{{Code: "WL1001", Severity: report.SeverityLow, Confidence: 2}}
		}, "findings[0].confidence"},
		{"an estimate out of its range", func(r *report.Report) {
			r.WhatIf = []report.WhatIf{{Predicted: report.Predicted{P50NS: report.Estimate{Est: 5, Low: 6, High: 7}}}}
		}, "what_if[0]"},
		{"Ps idle for twice the time", func(r *report.Report) { r.Runtime.Sched.PsIdle = 2 }, "runtime.sched.ps_idle"},
		{"an unknown verdict", func(r *report.Report) { r.Runtime.Throttle.Verdict = "maybe" }, "runtime.throttle"},
		{"less than no time lost", func(r *report.Report) { r.Runtime.Throttle.LostCPUNS = -1 }, "runtime.throttle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := must.Have(os.ReadFile("testdata/pubsub.json"))(t)
			r := must.Have(report.ReadJSON(bytes.NewReader(data)))(t)
			c.spoil(r)
			switch err := r.CheckValid(); {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want+": ")):
				t.Errorf("%v, want an error about %s", err, c.want)
			}
		})
	}
}
