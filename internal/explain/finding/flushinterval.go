package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// flushInterval returns the facts about the goroutine that sleeps at a cause if requests wait for the next tick of its fixed
// interval, as for a batcher; nil for other sleeps. The sleep must end for several requests, and must have begun before most of
// them waited: a pause that the request itself causes is not an interval.
func (a *attribution) flushInterval(c *report.Cause) *queues.ServiceStats {
	service := a.in.serviceAt(c, nil)
	if service == nil || c.Cause != report.CauseSleep || service.PeriodNS == 0 || service.OtherRequestShare > 0.5 || service.Requests < 2*threshold.SmallSample || service.Requests < 5*service.Servers {
		return nil
	}
	underWay := service.BegunEarlyShare >= 0.5
	if !knowledge.Has(c.Call, knowledge.SleepWait) {
		underWay = underWay || service.BatchSize >= 1.5 || float64(service.WaitedSleepNS) < 0.95*float64(service.PeriodNS)
	}
	if !underWay {
		return nil
	}
	return service
}

// checkFlushInterval is WL2004, flush-interval: requests wait for the next tick of a goroutine that works at a fixed interval
// (attribution.flushInterval). If a tick serves several requests at once, they are a batch. If it serves one, the goroutine polls for
// work, or, where requests wait through earlier ticks, each has its own due time, and the interval only makes it later.
func checkFlushInterval(attr *attribution, cand *candidate) Verdict {
	top := cand.heaviestRoute(report.CauseSleep)
	service := attr.flushInterval(top.Cause)
	v := attr.newVerdict(cand, top)
	v.Cause = report.CauseSleep
	interval := words.Brief(service.PeriodNS)
	title, fix, wait := textKey("title polled-work"), textKey("fix polled-work"), v.Site
	switch waitNS := top.TotalNS / int64(max(top.Requests, 1)); {
	case service.BatchSize >= 1.5:
		title, fix = "title flush-interval", "fix flush-interval"
		// What else wakes the goroutine in the interval, such as the next message, only makes the batch larger.
		v.Changes = []predict.Change{predict.Remove("", predict.SiteText(top.Site, ""))}
	case waitNS > service.PeriodNS:
		title, fix, wait = "title coarse-timer", "fix coarse-timer", top.via[0].Site
	}
	if wait == v.Site && top.Site != nil && top.Site.Module != "" { // whose lines the reader does not change
		fix = "fix interval-in-dependency"
	}
	v.Title, v.Fix = textOf(title, "interval", interval, "site", v.Site), textOf(fix, "interval", interval, "site", v.Site, "wait", wait)
	if verdict.KindOf(top.Cause) == verdict.BatchDue { // the first request of a batch starts the timer
		v.Title = textOf("title batch-window", "time", words.Brief(cand.gain.Slow.NS), "site", v.Site)
	}
	if l := pausingLibrary(top); l != nil && l.pauseAdvice != "" {
		advice, _, _, _ := l.adviceForPause(0)
		v.Fix, v.hasOption = l.fix(advice), true
	}
	v.addEvidence(evidenceOf("evidence flush-interval", service.PeriodNS, "ns"))
	v.addSlowEvidence(evidenceOf("evidence slow-wait-on", cand.gain.Slow.NS, "ns", "goroutine", goroutineText(top.via)))
	v.addEvidence(evidenceOf("evidence flush-batch", service.BatchSize, "count"))
	return v
}

// checkHeldAnswers is WL2004 for a protocol that only the service knows: one goroutine reads messages and neither answers nor
// hands them over, and another, which only a timer wakes, writes about as often as there are connections with messages. Each
// message then waits half a period on average. The severity is at most medium, because no event connects a message and its
// answer.
func checkHeldAnswers(in *Input, group *report.Group) []Verdict {
	held := in.HeldAnswers[group.ID]
	if held == nil || in.UnawaitedGroups[group.ID] {
		return nil
	}
	// Each message waits for half a period on average, at most for all of it; the recorded latency does not include that.
	lossOf := func(b *report.Band, ns int64) Loss {
		var latencyNS int64
		for i := range b.Causes {
			latencyNS += b.Causes[i].TotalNS / int64(max(b.Count, 1))
		}
		return Loss{Share: float64(ns) / float64(ns+latencyNS), NS: ns}
	}
	interval, meanNS := words.Brief(held.PeriodNS), held.PeriodNS/2
	v := Verdict{
		Gain:        Gain{All: lossOf(group.All(), meanNS), Slow: lossOf(group.Tail(), meanNS), TotalNS: meanNS * int64(group.Count)},
		MaxSeverity: report.SeverityMedium, Changes: []predict.Change{},
		Finding: report.Finding{Cause: report.CauseSleep, Site: held.WriteSite, Group: group.ID, Confidence: 0.7, Doubt: textOf("phrase doubt-buffer")},
	}
	if !held.HasIdle {
		v.Confidence, v.MaxSeverity = 0.4, report.SeverityLow // it may be a heartbeat
	}
	v.Title, v.Fix = textOf("title held-answers", "interval", interval, "site", held.WriteSite), textOf("fix held-answers", "interval", interval)
	v.addEvidence(evidenceOf("evidence held-mean", meanNS, "ns"), evidenceOf("evidence held-messages", held.Messages, "count"), evidenceOf("evidence held-writes", held.Writes, "count", "site", held.WriteSite),
		evidenceOf("evidence held-interval", held.PeriodNS, "ns"))
	return []Verdict{v}
}
