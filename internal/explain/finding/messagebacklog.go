package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkBacklog is WL2003 for a loop on one goroutine that handles messages of clients: messages queue because the goroutine
// handles one at a time (request.Backlog). At least threshold.MedianSample messages must have queued. It makes no prediction,
// because the trace does not show whether several goroutines may share the messages.
func checkBacklog(in *Input, group *report.Group) []Verdict {
	backlog := in.Backlogs[group.ID]
	if backlog == nil || backlog.Queued < threshold.MedianSample {
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
	loss := func(from, to int) (l Loss) {
		var sum int64
		for _, ns := range backlog.WaitsNS[from:to] {
			sum += ns
		}
		l.NS = sum / int64(max(to-from, 1))
		l.Share = float64(l.NS) / float64(max(l.NS+backlog.HandlingNS, 1))
		return l
	}
	gain := Gain{All: loss(0, backlog.Count), Slow: loss(backlog.Count*90/100, backlog.Count*99/100)}
	gain.TotalNS = gain.All.NS * int64(backlog.Count)
	busy := min(1, float64(backlog.WorkNS)/float64(max(in.Report.Input.DurationNS, 1)))
	title, fix, queued := textKey("title backlog"), textKey("fix backlog"), textKey("evidence backlog-queued")
	switch {
	case backlog.Goroutines > 1:
		title, fix, queued = "title backlog-socket", "fix pool-backlog-websocket", "evidence backlog-unread"
	case backlog.Messages == "":
		title, fix = "title backlog-read", "fix pool-backlog"
	}
	v := Verdict{Gain: gain, Changes: []predict.Change{}, Finding: report.Finding{
		Cause: work.Cause, Site: work.Site, Group: group.ID, Share: gain.All.Share, Confidence: 0.7,
		Title: textOf(title, "messages", words.FuncName(backlog.Messages), "time", words.Brief(gain.Slow.NS), "group", words.FuncName(group.Name),
			"n", backlog.Goroutines, "busy", words.Percent(busy), "activity", activityAt(&work, nil)),
		Fix: textOf(fix, "site", work.Site),
	}}
	if backlog.Messages == "" && gain.Slow.NS < 2*backlog.HandlingNS {
		v.MaxSeverity = report.SeverityLow // as in any queue that is not always empty
	}
	v.addEvidence(
		evidenceOf(queued, float64(backlog.Queued)/float64(backlog.Count), "share", "n", backlog.Count),
		evidenceOf("evidence backlog-wait", gain.All.NS, "ns"),
		evidenceOf("evidence pool-message", backlog.HandlingNS, "ns"),
		evidenceOf("evidence backlog-busy", busy, "share"),
		evidenceOf("evidence backlog-slow-wait", gain.Slow.NS, "ns"))
	return []Verdict{v}
}
