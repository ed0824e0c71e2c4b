package verify

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// withRow returns a recording whose requests, of one latency, spend a time on a sleep at main.backoff, and the rest on a lock.
func withRow(name string, latency, slept time.Duration, findings ...report.Finding) *report.Report {
	r := recording(name, latency, 2000, findings...)
	rows := r.Groups[0].Bands[0].Causes
	rows[0].TotalNS = 2000 * int64(slept)
	rows[1] = report.Cause{Cause: report.CauseNetwork, Site: &report.Site{Func: "main.fetch", Line: 3}, TotalNS: 2000 * int64(latency-slept), Requests: 2000}
	return r
}

// TestAttribution: a promise gets only what its own wait lost. It detects "promised 2.50ms less, measured 442ms less" of a sleep
// that the change did not touch.
func TestAttribution(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		before, after *report.Report
		want          Judgement
		gotMS         int64
	}{
		"the sleep is gone":       {withRow("a", 50*ms, 41*ms, finding(11)), withRow("b", 10*ms, 0), PromiseKept, -45},
		"something else is gone":  {withRow("a", 50*ms, 4*ms, finding(30)), withRow("b", 10*ms, 4*ms), Elsewhere, 0},
		"mostly something else":   {withRow("a", 50*ms, 10*ms, finding(45)), withRow("b", 10*ms, 0), PromiseKept, -10},
		"it promised much more":   {withRow("a", 50*ms, 10*ms, finding(11)), withRow("b", 10*ms, 0), BelowPromise, -10},
		"the report lacks it":     {withRow("a", 50*ms, 0, finding(11)), withRow("b", 10*ms, 0), Unknown, -44},
		"nothing became faster":   {withRow("a", 50*ms, 41*ms, finding(11)), withRow("b", 50*ms, 0), BelowPromise, 0},
		"the finding still there": {withRow("a", 50*ms, 41*ms, finding(11)), withRow("b", 50*ms, 41*ms, finding(11)), ChangeMissing, 0},
	} {
		v := Reports(c.before, c.after).Verdicts[0]
		if v.Judgement != c.want || v.Got == nil || *v.Got/1e6 < c.gotMS-2 || *v.Got/1e6 > c.gotMS+2 {
			t.Errorf("%s: %s, got %d ms, want %s, %d ms", name, v.Judgement, *v.Got/1e6, c.want, c.gotMS)
		}
	}
	v := Reports(withRow("a", 50*ms, 4*ms, finding(30)), withRow("b", 10*ms, 4*ms)).Verdicts[0]
	if text := v.Text(func(ns int64) string { return fmt.Sprint(ns/1e6, "ms") }); text != "p99: promised 25ms less; requests are faster, but not by this: it took 4ms of a request and takes 4ms" {
		t.Error(text)
	}
	if a := SumVerdicts([]Verdict{v}); a.Judged != 0 || a.MedianError != nil {
		t.Errorf("a promise that was not tested counts: %+v", a)
	}
}

// TestOthersNoLongerWait: the wait itself is as long as before, and only requests that waited for it through a lock are faster. That
// proves nothing about the wait.
func TestOthersNoLongerWait(t *testing.T) {
	const ms = time.Millisecond
	before, after := withRow("a", 50*ms, 41*ms, finding(14)), withRow("b", 10*ms, 4*ms)
	row := &before.Groups[0].Bands[0].Causes[0]
	lock := []report.Via{{Wait: "lock", Site: &report.Site{Func: "main.get", Line: 1}}}
	row.Routes = []report.Route{{Via: lock, TotalNS: row.TotalNS * 9 / 10}, {TotalNS: row.TotalNS / 10}}
	if v := Reports(before, after).Verdicts[0]; v.Judgement != Elsewhere {
		t.Errorf("%s", v.Judgement)
	}
	// For a queue, these waits are the fault.
	before.Findings[0].Queue = &report.Queue{For: "a Mutex", Waits: lock}
	if v := Reports(before, after).Verdicts[0]; v.Judgement != PromiseKept || *v.OwnIsNS != 0 {
		t.Errorf("%s, %v", v.Judgement, *v.OwnIsNS)
	}
}

// TestMovedRequests: the finding's group lost its requests to the group of those without a handler, so all requests of the server count.
func TestMovedRequests(t *testing.T) {
	const ms = time.Millisecond
	before, after := withRow("a", 50*ms, 41*ms, finding(11)), withRow("b", 10*ms, 0)
	after.Groups[0].ID, after.Groups[0].Name, after.Groups[0].Named = "u", "HTTP/1 handlers that the trace does not name", false
	before.Groups[0].Named = true
	v := Reports(before, after).Verdicts[0]
	check.True(t, v.Population == "all HTTP/1 requests" && strings.Contains("kept better", string(v.Judgement)),
		"%s by %q, %+v", v.Judgement, v.Population, v)
}
