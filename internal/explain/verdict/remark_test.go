package verdict

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestRemark: the sentence says if the first finding is not about the largest cause.
func TestRemark(t *testing.T) {
	at := func(line int) *report.Site { return &report.Site{Func: "main.f", File: "/src/main.go", Line: line} }
	verdict := func() *report.Verdict {
		return &report.Verdict{Group: "g", Causes: []report.VerdictCause{
			{Cause: report.CauseNetwork, Share: 0.77, Sites: []report.VerdictSite{{Site: at(1), Share: 0.5}, {Site: at(2), Share: 0.27}}},
			{Cause: report.CauseSleep, Share: 0.18, Sites: []report.VerdictSite{{Site: at(3), Share: 0.18}}},
		}}
	}
	for _, c := range []struct {
		finding report.Finding
		want    string
	}{
		{report.Finding{Cause: report.CauseNetwork, Site: at(1), Group: "g"}, ""},
		{report.Finding{Cause: report.CauseNetwork, Site: at(2), Group: "g"}, "about 27%"},
		{report.Finding{Cause: report.CauseSleep, Site: at(3), Group: "g"}, "about 18%"},
		{report.Finding{Cause: report.CauseSleep, Site: at(3), Group: "another"}, ""},
		{report.Finding{Cause: report.CauseSleep, Site: at(9), Group: "g"}, "not in these latencies"},
		{report.Finding{Cause: report.FamilyGC, Site: at(9), Group: "g", Decided: &report.Decided{Share: 0.3}}, "about 30%"},
		{report.Finding{Cause: report.FamilyGC, Site: at(9), Group: "g", Decided: &report.Decided{Share: 0.8}}, ""},
	} {
		if got := remarkOn(verdict(), &c.finding); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.finding, got, c.want)
		}
	}
	waits := &report.Verdict{Group: "g", Causes: []report.VerdictCause{{Cause: report.CauseSched, Share: 0.84, RanMeanwhile: []report.Share{{Site: &report.Site{Func: "runtime.gcBgMarkWorker"}, Share: 0.97}}}}}
	check.Equal(t, remarkOn(waits, &report.Finding{Cause: report.FamilyGC, Group: "g"}), "", "waits behind the collector's workers are the collector's")
}

// TestMedianRemark: if the change is about far more of the time of the faster half than of the slow requests that the verdict is about, a
// remark says so: the predicted median would contradict the verdict.
func TestMedianRemark(t *testing.T) {
	site := &report.Site{Func: "main.take", File: "/src/main.go", Line: 36}
	wait := []report.Via{{Wait: report.WaitChan, Site: site}}
	band := func(name report.BandName, count int, queueNS, clientNS int64) report.Band {
		return report.Band{Band: name, Count: count, Causes: []report.Cause{
			{Cause: report.CauseNetwork, Kind: "inbound", Site: site, TotalNS: queueNS + clientNS, Share: 1, Routes: []report.Route{{Via: wait, TotalNS: queueNS}, {TotalNS: clientNS}}},
		}}
	}
	p50 := int64(1e6)
	for _, c := range []struct {
		fasterQueueNS, predictedNS int64
		want                       string
	}{
		{90e6, 3e5, "the first change below is about 14% of this time, and about 90% of that of the faster half of the requests (900µs)"},
		{20e6, 3e5, ""},
		{90e6, 9e5, ""}, // the median gains little
	} {
		g := report.Group{ID: "g", Name: "main.handle", Named: true, Count: 200, TotalNS: 600e6, Bands: []report.Band{
			band(report.BandAll, 200, 114e6+c.fasterQueueNS, 486e6-c.fasterQueueNS), band(report.Band5090, 80, 100e6, 300e6), band(report.Band9099, 20, 14e6, 86e6)}}
		r := &report.Report{Groups: []report.Group{g}, Findings: []report.Finding{{Code: report.RulePoolTooSmall, Severity: report.SeverityHigh, Cause: report.CauseNetwork, Group: "g",
			Queue: &report.Queue{For: "a slot", Waits: wait}, Predicted: &report.Predicted{WasP50NS: &p50, P50NS: report.Estimate{Est: c.predictedNS}}}}}
		v := groupVerdict(r, &r.Groups[0], report.Band9099, firstFault(r, unawaitedJobs(r)), true, false)
		check.True(t, v.Remark == c.want, "%q, want %q", v.Remark, c.want)
		if first := v.Causes[0].Text; !strings.HasPrefix(first, "waiting for the client") {
			t.Errorf("a queue with a seventh of the time comes first: %q", first)
		}
	}
}

// TestRemarkOnSharedWrite: a change at a line of a logger is about all lines of the service that log.
func TestRemarkOnSharedWrite(t *testing.T) {
	from := func(line int) *report.Site {
		return &report.Site{Func: "zapcore.(*lockedWriteSyncer).Write", File: "write_syncer.go", Line: 66, Module: "zap", CalledFrom: &report.Caller{Func: "main.transfer", File: "book.go", Line: line}}
	}
	v := &report.Verdict{Group: "g", Causes: []report.VerdictCause{{Cause: report.CauseSyscall, Share: 0.48, Sites: []report.VerdictSite{{Site: from(67), Share: 0.3}, {Site: from(58), Share: 0.18}}}}}
	f := &report.Finding{Group: "g", Cause: report.CauseSyscall, Site: from(58), Changes: []report.Change{{Site: "zapcore.(*lockedWriteSyncer).Write:66"}}}
	check.Equal(t, remarkOn(v, f), "", "a change of the logger")
	f.Changes[0].Site = "main.transfer:58"
	if remark := remarkOn(v, f); remark == "" {
		t.Error("a change of one line that logs has no remark")
	}
	f.Changes = []report.Change{{Site: "zapcore.(*lockedWriteSyncer).Write:66 from main.transfer:58"}, {Site: "zapcore.(*lockedWriteSyncer).Write:66 from main.transfer:67"}}
	check.Equal(t, remarkOn(v, f), "", "a change of both lines")
	f.Changes = f.Changes[:1]
	if remark := remarkOn(v, f); remark == "" {
		t.Error("a change of the logger for one line has no remark")
	}
}
