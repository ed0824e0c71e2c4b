package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkSleep is WL2001, sleep.
func checkSleep(attr *attribution, cand *candidate) Verdict {
	if p := attr.longPolls[cand.causeSite.site]; p != nil && cand.causeSite.cause == pollCause {
		return pollVerdict(attr, cand, p)
	}
	top := cand.heaviestRoute(report.CauseSleep)
	if cand.causeSite.cause == streamCause {
		return streamVerdict(attr, cand, top)
	}
	v := attr.newVerdict(cand, top)
	v.Changes = halfAtAllSites(attr, cand)
	v.Title, v.Cause = "requests wait while "+goroutineActivity(top), report.CauseSleep
	v.addEvidence(measurement("mean per slow request, "+goroutineText(top.via), cand.gain.Slow.NS, "ns"), attr.requestCountEvidence(cand, top))
	if t := attr.in.serviceAt(top.Cause, top.via); t != nil && t.Sleeps > 0 {
		v.addEvidence(measurement("mean length of one sleep", t.SleepNS, "ns"))
		if t.BatchSize > 1.5 {
			v.addEvidence(measurement("requests that wait for the same sleep, on average", t.BatchSize, "count"))
		}
	}
	switch {
	case verdict.KindOf(top.Cause) == verdict.Deadline:
		v.Fix = "find out why the awaited answer does not come; a shorter deadline only limits the damage"
	case top.Site != nil && top.Site.Module != "":
		v.Fix = "if this is a pause before a retry, find out why the first try fails; the library's options set its length"
	case top.Call == sleepCall:
		v.Fix = "block on a channel or sync.Cond instead of polling, or make the pause shorter"
	default:
		v.Fix = "make the timer's or ticker's interval shorter, or also wait for the event itself; before a retry, find out why the first try fails"
	}
	if l := libraryOfRoute(top); l != nil && l.pauseAdvice != "" {
		v.Fix = "in " + l.name + ": " + l.pauseAdvice
	}
	switch {
	case len(top.via) > 0 && top.via[0].Wait == report.WaitChanSend:
		v.Fix += fmt.Sprintf("; or give the channel sent to at %s a larger buffer, so that more run at a time", siteText(top.via[0].Site))
	case len(top.via) > 0:
		v.Fix += fmt.Sprintf("; or do not wait for it at %s", siteText(top.via[0].Site))
	}
	v.addEvidence(otherSiteEvidence(cand, top)...)
	if attr.in.Polls != nil {
		if p := attr.in.Polls(attr.group.ID, v.Changes); p != nil {
			describePolling(attr.in, &v, p)
		}
	}
	return v
}

// describePolling rewrites a verdict on sleeps that are the pauses of a poll. Only the last pause can be saved; the
// trace does not show what fulfils the condition that is polled.
func describePolling(in *Input, v *Verdict, p *predict.Poll) {
	pauseText := words.Brief(p.PauseNS)
	v.Title = fmt.Sprintf("%s every %s for an event that comes after %s", strings.Replace(v.Title, " sleeps at ", " polls at ", 1), pauseText, words.Brief(p.TotalNS))
	v.Fix = fmt.Sprintf("block on a channel or sync.Cond instead of polling every %s: that saves about one pause; the rest is the time until the event, which a shorter pause does not change", pauseText)
	v.addEvidence(measurement("polls per request, on average", p.Pauses, "count"))
	if in.severity(v) == "" {
		return
	}
	v.Gain = v.Gain.scaled(float64(p.PauseNS) / float64(max(p.TotalNS, p.PauseNS)))
	if in.severity(v) == "" {
		v.FixedSeverity = report.SeverityLow
	}
}

// streamCause is the cause of a stream's pace in a candidate's key. It is no cause of a report, but makes all waits of
// one stream one fault.
const streamCause report.CauseName = "stream"

// isStream reports whether requests that wait at a line repeatedly write to their client between the waits, as a rule.
func (in *Input) isStream(site *report.Site) bool {
	return slices.ContainsFunc(in.Streams, func(s queues.Stream) bool { return s.WriteShare >= threshold.HalfShare && s.Site.Matches(site) })
}

// streamVerdict makes no prediction: the client of a stream receives parts early.
func streamVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	v := attr.newVerdict(cand, top)
	v.Cause, v.Confidence, v.Fact, v.Changes = report.CauseSleep, 0.8, true, []predict.Change{}
	if v.Site = nonStdSite(top.Cause, nil); len(top.via) > 0 {
		v.Site = top.via[0].Site
	}
	v.Title = "requests send a stream: they write to their client between the waits at " + siteText(v.Site)
	v.addEvidence(measurement("mean per slow request, "+goroutineText(nil), cand.gain.Slow.NS, "ns"), attr.requestCountEvidence(cand, top))
	v.Fix = "nothing, if the pace is intended: the client receives each part immediately; if it waits for the whole response, do not pause between the parts"
	return v
}

// goroutineActivity returns a phrase for the activity at the end of a route, and whose goroutine it is on.
func goroutineActivity(p *causeRoute) string {
	goroutine := "another goroutine "
	if len(p.via) == 0 {
		goroutine = "their own goroutine "
	}
	return goroutine + p.activity()
}
