package verdict

import (
	"fmt"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestOutcome: readers of the first sentence alone learn whether to change the service, to ask another party, to record again, or
// nothing.
func TestOutcome(t *testing.T) {
	p50, p99 := int64(2e6), int64(9e6)
	line := &report.Site{Func: "main.load", File: "m/main.go", Line: 5}
	cause := func(name report.CauseName, words string, share float64, eachNS int64) report.VerdictCause {
		return report.VerdictCause{Cause: name, Words: words, Share: share, EachNS: eachNS, Sites: []report.VerdictSite{{Site: line, Share: share}}}
	}
	busy := report.Finding{ID: "m", Code: report.RuleBusyMachine, Severity: report.SeverityHigh}
	lock := report.Finding{ID: "l", Code: report.RuleLockConvoy, Severity: report.SeverityHigh, Group: "g", Cause: report.CauseLock, Title: "requests queue for a Mutex"}
	peer := report.Finding{ID: "p", Code: report.RuleSlowPeer, Severity: report.SeverityLow, Group: "g", Cause: report.CauseNetwork, Share: 0.9}
	slow, serial := peer, peer
	slow.Title, slow.Severity, slow.Changes = "requests wait for a peer's answer", report.SeverityMedium, []report.Change{{Kind: report.ChangeTime}}
	serial.Severity, serial.Changes = report.SeverityMedium, []report.Change{{Kind: report.ChangeCalls, Value: 1}}
	serial.Title = "requests make 5 calls"
	doubtful := peer
	doubtful.Confidence, doubtful.Doubt = 0.49, "the machine was busy"
	onBusyMachine := doubtful
	onBusyMachine.DoubtedBy = report.RuleBusyMachine
	pause := report.Finding{ID: "s", Code: report.RuleSleep, Severity: report.SeverityLow, Group: "g", Cause: report.CauseSleep, Share: 0.9}
	intended := pause
	intended.Severity, intended.Title = report.SeverityInfo, "requests wait for a stream"
	hash := report.Finding{ID: "c", Code: report.RuleComputes, Severity: report.SeverityInfo, Group: "g", Cause: report.CauseCPU, Share: 0.9, Title: "bcrypt is slow on purpose", Site: &report.Site{Func: "golang.org/x/crypto/bcrypt.CompareHashAndPassword"}}
	locked := cause(report.CauseCPU, "computing", 0.9, 4e6)
	locked.Sites[0].Via = []report.Via{{Wait: report.WaitLock, Site: &report.Site{Func: "main.get", File: "main.go", Line: 9}}}
	poll, networkCause := intended, cause(report.CauseNetwork, "waiting for a peer", 0.9, 4e6)
	poll.Title, poll.Site = "requests wait until something arrives: a long poll", &report.Site{Func: "main.follow", File: "main.go", Line: 9}
	networkCause.Sites[0].Via = []report.Via{{Wait: report.WaitSelect, Site: poll.Site}}
	blind := []report.Blind{{Reason: report.BlindCPUSamples, Text: "no CPU samples", Codes: []report.RuleCode{"WL1005"}, Record: "whylate record -o x URL"}}
	for name, c := range map[string]struct {
		cause    report.VerdictCause
		findings []report.Finding
		blind    []report.Blind
		want     string // state, result, text, command, findings
	}{
		"a lock":                {cause(report.CauseLock, "waiting for a lock", 0.8, 4e6), []report.Finding{busy, lock}, nil, "change|change this|g, p99 9.00ms: 80% because requests queue for a Mutex||l m"},
		"another fault":         {cause(report.CauseSleep, "asleep", 0.8, 4e6), []report.Finding{lock}, nil, "change|change this|g, p99 9.00ms: requests queue for a Mutex||l"},
		"a slow peer":           {cause(report.CauseNetwork, "waiting for a peer", 0.9, 4e6), []report.Finding{slow}, nil, "change|mostly a peer's time|g, p99 9.00ms: 90% because requests wait for a peer's answer||p"},
		"many calls of a peer":  {cause(report.CauseNetwork, "waiting for a peer", 0.9, 4e6), []report.Finding{serial}, nil, "change|change this|g, p99 9.00ms: 90% because requests make 5 calls||p"},
		"a peer with a finding": {cause(report.CauseNetwork, "waiting for a peer", 0.9, 4e6), []report.Finding{peer}, nil, "peer|the time is a peer's, nothing seen here explains it|50 requests, p99 9.00ms, 90% waiting for a peer at main.load (main.go:5)||p"},
		"a busy machine":        {cause(report.CauseNetwork, "waiting for a peer", 0.9, 4e6), []report.Finding{onBusyMachine, busy}, nil, "unclear|probably the peer|50 requests, p99 9.00ms, 90% waiting for a peer at main.load (main.go:5)||p m"},
		"a peer":                {cause(report.CauseNetwork, "waiting for a peer", 0.6, 4e5), nil, nil, "peer|nothing to change here|50 requests, p99 9.00ms, 60% waiting for a peer at main.load (main.go:5)||"},
		"a pause":               {cause(report.CauseSleep, "asleep", 0.9, 4e6), []report.Finding{pause}, nil, "minor|nothing urgent|50 requests, p99 9.00ms||s"},
		"a stream":              {cause(report.CauseSleep, "asleep", 0.9, 4e6), []report.Finding{intended}, nil, "healthy|nothing to change|50 requests, p99 9.00ms, as intended: requests wait for a stream||"},
		"a long poll at a peer": {networkCause, []report.Finding{poll}, nil, "healthy|nothing to change|50 requests, p99 9.00ms, as intended: requests wait until something arrives: a long poll||"},
		"C code":                {cause(report.CauseSyscall, "in C code", 0.5, 1e6), nil, nil, "healthy|nothing to change, if this is intended|50 requests, p99 9.00ms, 50% in C code at main.load (main.go:5); otherwise shorten it there||"},
		"short C code":          {cause(report.CauseSyscall, "in C code", 0.9, 1e6-1), nil, nil, "healthy|nothing to change|50 requests, p99 9.00ms||"},
		"work":                  {cause(report.CauseCPU, "computing", 0.9, 4e6), nil, nil, "healthy|nothing to change|50 requests, p99 9.00ms, mostly computing: only less work in main.load makes them faster||"},
		"work under a lock":     {locked, nil, nil, "healthy|nothing urgent|50 requests, p99 9.00ms; 0 requests wait 4.00ms for a lock at main.get (main.go:9) while its holder computes in main.load||"},
		"work on purpose":       {cause(report.CauseCPU, "computing", 0.9, 4e6), []report.Finding{hash}, nil, "healthy|nothing to change|50 requests, p99 9.00ms, as intended: bcrypt is slow on purpose||"},
		"some work":             {cause(report.CauseCPU, "computing", 0.49, 4e6), nil, blind, "healthy|nothing to change|50 requests, p99 9.00ms||"},
		"unknown work":          {cause(report.CauseCPU, "computing", 0.5, 1e6), nil, blind, "unclear|cannot tell which work|50 requests, p99 9.00ms, 50% computing in main.load; on what is unknown (no CPU samples)|whylate record -o x URL|"},
		"little unknown work":   {cause(report.CauseCPU, "computing", 0.9, 1e6-1), nil, blind, "healthy|nothing to change|50 requests, p99 9.00ms, mostly computing: only less work in main.load makes them faster||"},
	} {
		r := &report.Report{Judged: &report.Judged{Rules: 37, Clear: []report.RuleCode{"WL1001"}, Blind: c.blind}, Findings: c.findings,
			Groups: []report.Group{{ID: "g", Name: "g", Named: true, Count: 50, LatencyNS: report.Latency{P50: &p50, P99: &p99}}}}
		o := NewOutcome(r, []report.Verdict{{Group: "g", Causes: []report.VerdictCause{c.cause}}})
		check.Equal(t, strings.Join([]string{string(o.State), o.Result, o.Text, o.Command, strings.Join(o.Findings, " ")}, "|"), c.want, "%s", name)
	}
	r := &report.Report{Judged: &report.Judged{}, Groups: []report.Group{{ID: "g"}}}
	if o := NewOutcome(r, nil); o.State != StateUnclear || o.Result != "nothing to judge" {
		t.Errorf("without requests: %+v", o)
	}
	if o := NewOutcome(&report.Report{Groups: r.Groups}, nil); o != nil {
		t.Errorf("of a report of an earlier version: %+v", o)
	}
}

// TestShortTitle: a long title keeps the complete line that its reader can change, so that titles that differ only in this line
// stay different. It detects a position that is cut in its middle.
func TestShortTitle(t *testing.T) {
	const short = "requests wait while their own goroutine sleeps at main.load (main.go:5), called from main.get (main.go:9)"
	for title, want := range map[string]string{
		short: short,
		"requests wait while another goroutine syncs to disk in syscall.Fdatasync at fileutil.Fdatasync (sync_linux.go:33), called from wal.(*WAL).sync (wal.go:881)":                                   "requests wait while another goroutine syncs to disk in syscall.Fdatasync at fileutil.Fdatasync, called from wal.(*WAL).sync (wal.go:881)",
		"requests wait for a peer's answer at proto.(*Reader).PeekReplyType (reader.go:95), called from main.(*catalog).product (main.go:27), which the service itself calls repeatedly while it waits": "requests wait for a peer's answer at proto.(*Reader).PeekReplyType, called from main.(*catalog).product (main.go:27), which the service itself calls repeatedly while it waits",
	} {
		if got := ShortTitle(title); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSameFault: one fault in two groups has one title and place, or one change. Lines that open connections of one pool have one, too, unless their advice
// differs.
func TestSameFault(t *testing.T) {
	opens := func(fix string, line int) *report.Finding {
		return &report.Finding{Code: report.RuleSlowPeer, Title: "requests open connections", Fix: fix, Site: &report.Site{Func: "main.ask", Line: line}, Changes: []report.Change{{Kind: report.ChangeReuse, Site: fmt.Sprint("main.ask:", line)}}}
	}
	calls := opens("keep them", 9)
	calls.Changes[0].Kind = report.ChangeCalls
	for i, c := range []struct {
		a, b *report.Finding
		want bool
	}{{opens("keep them", 5), opens("keep more", 5), true}, {opens("keep them", 5), opens("keep them", 9), true}, {opens("keep them", 5), opens("keep more", 9), false}, {opens("keep them", 5), calls, false}} {
		check.Equal(t, IsSameFault(c.a, c.b), c.want, "%d", i)
	}
}
