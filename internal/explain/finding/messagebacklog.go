package finding

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkBacklog is WL2003 for messages that queue for the goroutines of a loop (report.Backlog). A group without a backlog is for
// checkSaturated.
func checkBacklog(in *Input, group *report.Group) []Verdict {
	backlog := group.Backlog
	if backlog == nil {
		return checkSaturated(in, group)
	}
	work := handlingWork(group)
	if work == nil {
		return nil
	}
	loss := func(waitNS, handlingNS int64) Loss {
		return Loss{NS: waitNS, Share: float64(waitNS) / float64(max(waitNS+handlingNS, 1))}
	}
	gain := Gain{All: loss(*backlog.WaitNS.Mean, backlog.HandlingNS), Slow: loss(backlog.Slow.WaitNS, backlog.Slow.HandlingNS)}
	gain.TotalNS = gain.All.NS * int64(backlog.Messages)
	sufficient := backlog.Sufficient
	if work.Cause == report.CauseCPU { // more than Ps gain nothing
		sufficient = min(sufficient, max(in.Report.Input.GOMAXPROCS, backlog.Consumers))
	}
	v := Verdict{Gain: gain, Changes: []predict.Change{}, Finding: report.Finding{
		Cause: work.Cause, Site: work.Site, Group: group.ID, Share: gain.All.Share, Confidence: 0.7, Doubt: textOf("phrase doubt-arrival"),
		Queue: &report.Queue{For: verdict.BacklogName(backlog), Waits: []report.Via{}},
	}}
	title, fix := textKey("title backlog"), textKey("fix backlog")
	switch {
	case backlog.From == "" && backlog.Consumers > 1:
		title, fix = "title backlog-socket", "fix backlog-read"
	case backlog.From == "":
		title, fix = "title backlog-read", "fix backlog-read"
	}
	l, server := adviserAt(func(l *library) string { return l.loopAdvice }, backlog.Site), "goroutine"
	if l != nil {
		server = cmp.Or(l.slotNoun, server)
	}
	canRun := work.Cause != report.CauseCPU || in.Report.Runtime.Sched.PsIdle >= 0.5
	if backlog.Site != nil && sufficient > backlog.Consumers && canRun {
		v.Changes = append(v.Changes, predict.Slots(predict.SiteText(backlog.Site, ""), sufficient))
		v.ChangeText = textOf("phrase change-servers", "n", sufficient, "server", server)
	}
	v.Title = textOf(title, "messages", words.FuncName(backlog.From), "time", words.Brief(gain.Slow.NS), "group", words.FuncName(group.Name),
		"n", backlog.Consumers, "server", server, "activity", activityAt(work, nil))
	v.Fix = textOf(fix, "site", work.Site, "loop", backlog.Site, "n", sufficient, "now", backlog.Consumers)
	if l != nil {
		v.Fix = textOf("fix backlog-loop", "site", work.Site, "advice", l.fix(l.loopAdvice))
	}
	longWaitNS := gain.Slow.NS
	if wait := &backlog.WaitNS; wait.P90 != nil {
		longWaitNS = (*wait.P90 + *cmp.Or(wait.P99, wait.Max)) / 2
	}
	if backlog.From == "" && longWaitNS < 2*backlog.HandlingNS {
		v.MaxSeverity = report.SeverityLow // as in any queue that is not always empty
	}
	v.addEvidence(
		evidenceOf("evidence backlog-queued", float64(backlog.Queued)/float64(backlog.Messages), "share", "n", backlog.Messages),
		evidenceOf("evidence backlog-wait", gain.All.NS, "ns"),
		evidenceOf("evidence pool-message", backlog.HandlingNS, "ns"),
		evidenceOf("evidence backlog-load", backlog.Load, "count", "n", backlog.Consumers),
		evidenceOf("evidence backlog-slow-wait", gain.Slow.NS, "ns"))
	return []Verdict{v}
}

// handlingWork returns what takes most of the time of a group's goroutines, at the service's own line; nil if that is unknown.
func handlingWork(group *report.Group) *report.Cause {
	heaviest := heaviestWork(group, func(*report.Cause) bool { return true })
	if heaviest == nil {
		return nil
	}
	work := *heaviest
	if site := work.Site.OwnLine(); !site.Equal(work.Site) {
		work.Site, work.Call = site, "" // the line of the call is not named
	}
	return &work
}

// checkSaturated is WL2003 for consumers that always have a next message (report.Saturated).
func checkSaturated(in *Input, group *report.Group) []Verdict {
	s := group.Saturated
	if s == nil {
		return nil
	}
	work := handlingWork(group)
	if work == nil || s.Consumers > 1 && lockShare(group) >= threshold.MajorShare {
		return nil // more of them would wait for each other, too
	}
	rate := words.Number(int64(s.PerSecond + 0.5))
	v := Verdict{
		FixedSeverity: report.SeverityHigh, Changes: []predict.Change{}, Gain: Gain{TotalNS: int64(s.Consumers) * in.Report.Input.DurationNS},
		Finding: report.Finding{Cause: work.Cause, Site: work.Site, Group: group.ID, Confidence: 0.9},
	}
	if s.BlockedShare > 0 {
		v.addEvidence(evidenceOf("evidence saturated-blocked", s.BlockedShare, "share", "from", words.FuncName(s.From)))
	}
	title := textKey("title saturated")
	if s.Consumers > 1 {
		title = "title saturated-several"
	}
	most, fix := words.Number(int64(2*s.PerSecond+0.5)), ""
	switch {
	case group.Kind == report.KindGoroutine:
		fix = textOf("fix saturated-jobs", "site", v.Site, "n", 2*s.Consumers, "now", s.Consumers, "most", most)
	case work.Cause == report.CauseCPU && (in.Report.Runtime.Sched.PsIdle < 0.5 || s.Consumers >= in.Report.Input.GOMAXPROCS):
		fix = textOf("fix saturated-computes", "site", v.Site, "rate", rate, "now", s.Consumers)
	default:
		fix = textOf("fix saturated", "site", v.Site, "loop", s.Site, "n", 2*s.Consumers, "now", s.Consumers, "most", most)
	}
	askShare := float64(s.AskNS) / float64(max(s.EachNS, 1))
	if askShare >= threshold.NoticeableShare {
		fix = textOf("fix saturated-ask", "loop", s.Site, "share", words.Percent(askShare), "fix", fix)
	}
	v.Title = textOf(title, "group", words.FuncName(group.Name), "n", s.Consumers, "rate", rate, "activity", activityAt(work, nil))
	v.Fix = fix
	v.prependEvidence(evidenceOf("evidence saturated-rate", s.PerSecond, "1/s"))
	v.addEvidence(evidenceOf("evidence pool-message", s.EachNS, "ns"))
	if s.AskNS > 0 {
		v.Confidence = 0.8
		v.addEvidence(evidenceOf("evidence saturated-ask", s.AskNS, "ns", "loop", s.Site))
	}
	return []Verdict{v}
}

// lockShare returns the share of a group's time in which its requests wait for a lock.
func lockShare(group *report.Group) float64 {
	ns, all := int64(0), group.All()
	for i := range all.Causes {
		for _, r := range all.Causes[i].AllRoutes() {
			if slices.ContainsFunc(r.Via, func(v report.Via) bool { return v.Wait == report.WaitLock }) {
				ns += r.TotalNS
			}
		}
	}
	return float64(ns) / float64(max(group.TotalNS, 1))
}
