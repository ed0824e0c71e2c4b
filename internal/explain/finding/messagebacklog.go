package finding

import (
	"cmp"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkBacklog is WL2003 for messages that queue for the goroutines of a loop (report.Backlog).
func checkBacklog(in *Input, group *report.Group) []Verdict {
	backlog := group.Backlog
	if backlog == nil {
		return nil
	}
	heaviest := heaviestWork(group, func(*report.Cause) bool { return true })
	if heaviest == nil {
		return nil
	}
	work := *heaviest
	if site := work.Site.OwnLine(); !site.Equal(work.Site) {
		work.Site, work.Call = site, "" // the line of the call is not named
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
	canRun := work.Cause != report.CauseCPU || in.Report.Runtime.Sched.PsIdle >= 0.5
	if backlog.Site != nil && sufficient > backlog.Consumers && canRun {
		v.Changes = append(v.Changes, predict.Slots(predict.SiteText(backlog.Site, ""), sufficient))
		v.ChangeText = textOf("phrase change-servers", "n", sufficient)
	}
	v.Title = textOf(title, "messages", words.FuncName(backlog.From), "time", words.Brief(gain.Slow.NS), "group", words.FuncName(group.Name),
		"n", backlog.Consumers, "activity", activityAt(&work, nil))
	v.Fix = textOf(fix, "site", work.Site, "loop", backlog.Site, "n", sufficient, "now", backlog.Consumers)
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
