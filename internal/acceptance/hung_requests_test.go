package acceptance_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/whylate/whylate"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// TestHungRequests: five requests of a route wait for a lock that is never released, three of them since before the trace; two
// of many requests of another route wait on a channel; and two clients watch a stream without events, which is normal. The
// report has one finding for each, the most harmful first, and only the hung requests are late.
func TestHungRequests(t *testing.T) {
	data, _ := testprog.Record(t, "hung")
	rep := explainBytes(t, data, whylate.Options{})
	type hang struct {
		severity report.Severity
		site     string
		line     int
		n        float64
	}
	var got []hang
	late := map[string]bool{}
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Code == report.RuleHung {
			got = append(got, hang{f.Severity, f.Site.Func, f.Site.Line, evidenceOf(f, "requests there at the end of the trace")})
			if ns := evidenceOf(f, "longest time in this wait"); ns < 0.9*float64(rep.Input.DurationNS) {
				t.Errorf("%s: the longest wait is only %.0f ns", f.Title, ns)
			}
		}
	}
	want := []hang{{report.SeverityHigh, "main.(*depot).transfer", 31, 5}, {report.SeverityMedium, "main.(*depot).item", 39, 2}, {report.SeverityInfo, "main.(*depot).watch", 47, 2}}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Errorf("findings %+v, want %+v", got, want)
			break
		}
	}
	check.True(t, rep.Findings[0].Code == report.RuleHung, "the first finding is %s", describeFinding(&rep.Findings[0]))
	for _, v := range rep.Verdict {
		late[rep.Group(v.Group).Name] = v.Open != nil && v.Open.Late
	}
	check.True(t, late["main.(*depot).transfer"] && late["main.(*depot).item"] && !late["main.(*depot).watch"], "late groups: %v", late)
	var out bytes.Buffer
	must.Do(t, text.Write(&out, rep, text.Options{Width: 100, Full: true}))
	if output := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(output, "5 requests hang, waiting for a lock at main.(*depot).transfer (hung.go:31)") {
		t.Errorf("the text does not name the hung requests:\n%s", out.String())
	}
}

// TestLockHolderOutsideRequests: requests wait for a lock held by a goroutine of no request, which has been blocked in a
// method of the same type since before the first of them arrived. The evidence names that goroutine with "perhaps". It must
// not name a goroutine that blocks in a method of another type, nor one that blocked there after the first request arrived.
func TestLockHolderOutsideRequests(t *testing.T) {
	const ms, us = 1_000_000, 1_000
	const serve = "net/http.(*conn).serve:2074"
	b := tracetext.New(26)
	th, poller := b.Thread(), b.ThreadWithoutP()
	blockOnSend := func(timeNS int64, g uint64, frames ...string) {
		poller.Unblock(timeNS, g)
		th.Start(timeNS+us, g)
		th.Block(timeNS+2*us, "chan send", frames...)
	}
	for g := uint64(7); g <= 15; g++ {
		b.Waiting(g)
	}
	for g := uint64(10); g <= 15; g++ {
		arrival := int64(g-9) * 50 * us
		poller.Unblock(arrival, g)
		th.Start(arrival+us, g)
		th.Block(arrival+2*us, "network", "internal/poll.(*FD).Read", "net/http.(*connReader).Read", "bufio.(*Reader).Peek", serve)
	}
	blockOnSend(1*ms, 7, "runtime.chansend1", "main.(*vault).audit")
	blockOnSend(2*ms, 8, "runtime.chansend1", "main.(*clock).tick")
	for g := uint64(10); g <= 15; g++ {
		arrival := 10*ms + int64(g)*ms
		poller.Unblock(arrival, g)
		th.Start(arrival+us, g)
		th.Create(arrival+2*us, 100+g, "net/http.(*connReader).backgroundRead", "net/http.(*connReader).startBackgroundRead", serve)
		th.Block(arrival+5*us, "sync", "sync.runtime_SemacquireRWMutexR", "sync.(*RWMutex).RLock", "main.(*vault).open", "net/http.HandlerFunc.ServeHTTP", "net/http.serverHandler.ServeHTTP", serve)
	}
	blockOnSend(30*ms, 9, "runtime.chansend1", "main.(*vault).close")
	th.ProcStop(40 * ms)
	th.ProcStart(2000*ms, 0)
	data, err := b.Bytes()
	must.Do(t, err)
	rep := explainBytes(t, data, whylate.Options{})
	holderText := ""
	for i := range rep.Findings {
		if f := &rep.Findings[i]; f.Code == report.RuleHung && f.Severity == report.SeverityHigh && len(f.Evidence) > 1 {
			holderText = f.Evidence[1].Text
		}
	}
	check.True(t, strings.HasPrefix(holderText, "perhaps held by the goroutine at main.(*vault).audit ("),
		"the evidence about the lock's holder is %q, in %d findings", holderText, len(rep.Findings))
}
