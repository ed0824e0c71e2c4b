package acceptance_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestFirstSentenceNamesTheQueue: if the first finding says that requests queue, the first sentence names the same queue.
// Otherwise it may say that a service waits for a peer while most of that time is queueing for a connection.
func TestFirstSentenceNamesTheQueue(t *testing.T) {
	queuedServices := 0
	for _, name := range testprog.Services(t) {
		rep := explainService(t, name)
		if len(rep.Findings) == 0 || rep.Findings[0].Queue == nil || !rep.Findings[0].Severity.IsMajor() {
			continue
		}
		f := &rep.Findings[0]
		i := slices.IndexFunc(rep.Verdict, func(v report.Verdict) bool { return v.Group == f.Group })
		if i < 0 {
			continue
		}
		queuedServices++
		c := &rep.Verdict[i].Causes[0]
		if c.Queue == nil || c.Queue.For != f.Queue.For || !strings.Contains(f.Title, " queue for ") && !strings.Contains(f.Title, "admits too few") || !strings.HasPrefix(c.Text, "queueing for "+f.Queue.For) {
			t.Errorf("%s: the sentence begins with %q, the finding is %q", name, c.Text, f.Title)
		}
	}
	check.True(t, queuedServices >= 15, "only %d services queue", queuedServices)
}

// TestRepeatedPeerCalls: ten calls to a peer from one line are reported as such, with the predicted gain of a single call. One
// call that takes as long, or two calls from two lines, are a slow peer.
func TestRepeatedPeerCalls(t *testing.T) {
	for name, want := range map[string]string{"n-plus-one": "requests make 10 calls one after the other at ", "fan-out": "requests wait for the slowest of 4 calls in parallel, at ", "two-queries": "requests wait for a peer's answer at ", "slow-database": "requests wait for a peer's answer at "} {
		rep := explainService(t, name)
		f := &rep.Findings[0]
		if !strings.HasPrefix(f.Title, want) || f.Severity.IsMajor() && f.Predicted == nil { // how little a peer could take is unknown
			t.Errorf("%s: %q, want %q", name, f.Title, want)
			continue
		}
		if name == "n-plus-one" {
			if p := f.Predicted; p.ChangeText != "with one call instead of 10" || 5*p.P50NS.Est > *p.WasP50NS {
				t.Errorf("%+v", p)
			}
			if !slices.ContainsFunc(f.Evidence, func(e report.Evidence) bool {
				return strings.HasPrefix(e.Text, "p50 if all were asked for in parallel") && e.Value > 0 && 5*e.Value < float64(*f.Predicted.WasP50NS)
			}) {
				t.Errorf("no evidence about parallel calls: %+v", f.Evidence)
			}
		}
	}
}

// TestPollingLoops: sleeps between which a request only checks a condition are polling, and a change can gain the last sleep
// at most. The report must not predict that a shorter interval brings the result earlier by more.
func TestPollingLoops(t *testing.T) {
	for name, want := range map[string]bool{"poll-loop": true, "polled-flag": true, "retry": false} {
		f := &explainService(t, name).Findings[0]
		if polls := strings.Contains(f.Fix, "instead of polling saves "); f.Code != report.RuleSleep || polls != want || strings.Contains(f.Title, " polls at ") != want {
			t.Errorf("%s: %s %q, do: %q", name, f.Code, f.Title, f.Fix)
		}
		if f.Predicted == nil || f.Predicted.WasP50NS == nil {
			t.Errorf("%s: there is no prediction", name)
			continue
		}
		// Without all pauses next to nothing remains; the last of five or more is a fifth at most.
		if remaining := float64(f.Predicted.P50NS.Est) / float64(*f.Predicted.WasP50NS); want != (remaining > 0.8) || want && f.Severity == report.SeverityHigh {
			t.Errorf("%s: severity %s, the predicted p50 is %.2f of the old one", name, f.Severity, remaining)
		}
	}
}

// TestTimeInCCode: time in C code is reported as such, with the line that called it.
func TestTimeInCCode(t *testing.T) {
	data := testprog.Trace(t, "cgo-block")
	rep := explainBytes(t, data, whylate.Options{Request: regexp.MustCompile(`WaitGroup\).Go`)})
	i := slices.IndexFunc(rep.Verdict[0].Causes, func(c report.VerdictCause) bool { return c.Kind == report.InC })
	must.True(t, i >= 0, "no cause is in C code: %s", rep.Verdict[0].Text)
	c := &rep.Verdict[0].Causes[i]
	if c.Cause != report.CauseSyscall || !strings.HasPrefix(c.Text, "in C code") || !strings.Contains(c.Text, "main._Cfunc_") || c.Sites[0].Site.CalledFrom == nil {
		t.Errorf("%+v", c)
	}
}
