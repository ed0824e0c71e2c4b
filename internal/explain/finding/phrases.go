package finding

import (
	"cmp"
	"fmt"
	"path"

	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/names"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// siteText names a site briefly: store.(*DB).get (db.go:12), with its caller.
func siteText(s *report.Site) string {
	s = names.LineForReaders(s)
	text := lineText(s)
	if s != nil && s.CalledFrom != nil {
		text += ", " + names.CallerLead(s.CalledFrom) + siteText(s.CalledFrom.Site())
	}
	return text
}

// lineText names a site as siteText does, but without its caller, for texts that name the caller elsewhere.
func lineText(s *report.Site) string {
	if s == nil {
		return textOf("phrase unknown-site")
	}
	does := ""
	if s.Does != "" {
		does = ", " + s.Does
	}
	return fmt.Sprintf("%s (%s:%d%s)", words.FuncName(s.Func), path.Base(s.File), s.Line, does)
}

// goroutineText returns a phrase for the goroutine that a cause is on: the request's own if via is empty, else another one, with
// the waits that lead to it.
func goroutineText(via []report.Via) string {
	if len(via) == 0 {
		return textOf("phrase own-goroutine")
	}
	waits := ""
	for i := range via {
		wait := textOf("phrase wait-at", "wait", via[i].Wait, "line", lineText(via[i].Site))
		if i > 0 {
			wait = textOf("phrase wait-then", "waits", waits, "wait", wait)
		}
		waits = wait
	}
	return textOf("phrase other-goroutine", "waits", waits)
}

// libraryCall returns the library function in which a wait is, for naming it; "" if that function is common to all such waits
// (time.Sleep, sync.(*Mutex).Lock) and so says nothing.
func libraryCall(call string) string {
	if knowledge.Has(call, knowledge.CommonWait) {
		return ""
	}
	return call
}

// activityAt returns a phrase for what a goroutine does at a cause, and where, such as "sleeps at main.poll (main.go:9)".
func activityAt(cause *report.Cause, via []report.Via) string {
	site := nonStdSite(cause, via)
	where := textOf("phrase at", "site", site)
	if call := libraryCall(cause.Call); call != "" && site == cause.Site { // else the call belongs to the line of the standard library, which is not named
		where = textOf("phrase in-call-at", "call", call, "site", site)
	}
	return textOf(activityOf(cause), "site", site, "where", where)
}

// activityOf returns the key of the phrase for what a goroutine does at a cause: computes, sleeps, waits for a client, and so on.
func activityOf(cause *report.Cause) textKey {
	switch {
	case cause.Cause == report.CauseCPU:
		return "phrase computes"
	case cause.Cause == report.CauseSleep && knowledge.Has(cause.Call, knowledge.HTTPTimeout) && verdict.KindOf(cause) == verdict.Deadline:
		return "phrase waits-for-http-timeout"
	case cause.Cause == report.CauseSleep:
		return cmp.Or(timerActivities[verdict.KindOf(cause)], "phrase sleeps")
	case cause.Cause == report.CauseSyscall, cause.Cause == report.CauseDisk:
		return syscallKindOf(cause).activity
	case cause.Cause != report.CauseNetwork:
		return "phrase waits"
	case knowledge.Has(cause.Call, knowledge.File):
		return "phrase waits-for-pipe"
	case cause.Kind == "inbound":
		return "phrase waits-for-client"
	case knowledge.Has(cause.Call, knowledge.ResponseBody):
		return "phrase waits-for-answer-body"
	}
	return "phrase waits-for-network"
}

// ownLine returns the service's line of a route: the one that called a dependency, else the site that a finding names.
func (p *causeRoute) ownLine() *report.Site { return p.nonStdSite().OwnLine() }

// activity returns a phrase for the activity at the end of a route.
func (p *causeRoute) activity() string { return activityAt(p.Cause, p.via) }

// timerActivities are the keys of the phrases for sleeps, by the kind of the timer; others have that of a plain sleep.
var timerActivities = map[string]textKey{
	verdict.Deadline: "phrase waits-for-deadline", verdict.Timer: "phrase waits-for-timer", verdict.Limiter: "phrase waits-for-limiter",
	verdict.DatabaseLock: "phrase waits-for-database-lock", verdict.SharedLock: "phrase waits-for-shared-lock",
	verdict.NoContinue: "phrase waits-for-continue", verdict.DialFallback: "phrase waits-for-fallback", verdict.BatchDue: "phrase waits-for-batch",
}
