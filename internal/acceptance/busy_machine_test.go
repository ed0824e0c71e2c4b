package acceptance_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestBusyMachine: neighbours.whylate is a healthy server (a handler that computes for 0.6 ms, 120 requests a second) on two
// CPUs that it shares with three shell loops, recorded with --pid. The first finding is the busy machine, and no finding about
// the service is more severe. The time that threads wait for a CPU is not called computing. Without host samples, or where
// threads got their CPUs at once, there is no such finding.
func TestBusyMachine(t *testing.T) {
	f := must.Have(bundle.Open(testprog.Recording(t, "neighbours.whylate")))(t)
	defer f.Close()
	r, n, err := f.Trace()
	must.Do(t, err)
	buf := bytes.NewBuffer(make([]byte, 0, n))
	must.Have(buf.ReadFrom(r))(t)
	host := must.Have(f.HostSamples())(t)
	rep := explain(t, bytes.NewReader(buf.Bytes()), whylate.Options{Host: bytes.NewReader(host)})
	check.True(t, len(rep.Findings) != 0 && rep.Findings[0].Code == report.RuleBusyMachine && rep.Findings[0].Severity != report.SeverityInfo,
		"the first finding is not the busy machine: %+v", rep.Findings)
	runQueueShare := 0.0
	for _, c := range rep.Verdict[0].Causes {
		check.False(t, c.Cause == report.CauseCPU && c.Words == "computing",
			"threads waited for CPUs, but the verdict calls all of the running time computing")
		if c.Cause == report.CauseSched && c.Kind == verdict.NoCPU {
			runQueueShare += c.Share
		}
	}
	check.True(t, runQueueShare >= 0.1, "waiting for a CPU has a share of %.2f of the time, want at least 0.1", runQueueShare)
	isBusyMachine := func(f report.Finding) bool { return f.Code == report.RuleBusyMachine }
	check.False(t, slices.ContainsFunc(explainBytes(t, buf.Bytes(), whylate.Options{}).Findings, isBusyMachine),
		"the trace alone does not show other processes")
	quietRecording := testprog.Service(t, "few-ps")
	if slices.ContainsFunc(explain(t, bytes.NewReader(quietRecording.Trace), whylate.Options{Host: bytes.NewReader(quietRecording.Host)}).Findings, isBusyMachine) {
		t.Error("few-ps: threads got their CPUs at once, but WL1009 is found")
	}
}
