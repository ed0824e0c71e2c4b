package finding

import (
	"cmp"
	"math"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// tickerIntervalNS returns the interval in ns at which a ticker releases requests one after another: the intended pace of a rate
// limiter, not a goroutine that is busy with requests. It returns 0 if no ticker does.
func (a *attribution) tickerIntervalNS(top *causeRoute) int64 {
	if top.Cause.Cause != report.CauseSleep || knowledge.Has(top.Call, knowledge.SleepWait) {
		return 0
	}
	if t := a.in.serviceAt(top.Cause, top.via); t != nil && t.OtherRequestShare <= 0.5 {
		return t.PeriodNS
	}
	return 0
}

// limiterVerdict returns the verdict on a rate limiter. If its queue is empty at times, it delays only requests that arrive
// together, and the prediction is that no request queues. If the queue is never empty, or the interval is a ticker's, the limit
// is intended and there is no prediction.
func limiterVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	durationNS := attr.in.Report.Input.DurationNS
	l := newLittleLaw(top.Requests, durationNS, top.routeNS, 0)
	v := attr.newVerdict(cand, top)
	changes := v.Changes
	v.Cause, v.Changes = report.CauseSleep, []predict.Change{}
	v.Title, v.Fix = textOf("title limiter", "site", v.Site), textOf("fix limiter")
	v.addEvidence(
		evidenceOf("evidence limiter-rate", l.rate, "1/s"),
		evidenceOf("evidence limiter-wait", l.waitNS, "ns"),
		evidenceOf("evidence pool-waiting", l.waiting, "count"))
	if intervalNS := attr.tickerIntervalNS(top); intervalNS != 0 {
		v.Title, v.Fix = textOf("title limiter-paced", "interval", words.Brief(intervalNS), "site", v.Site), textOf("fix limiter-paced")
		return v
	}
	if l := libraryOfFunc(&report.Site{Func: top.Call}); l != nil && l.pauseAdvice != "" { // the limiter is that library's
		v.Fix, v.Changes, v.ChangeText = l.fix(l.pauseAdvice), changes, textOf("phrase change-no-queue")
		return v
	}
	limiter := firstMatch(attr.in.Limiters, func(l *queues.Limiter) bool { return l.Site.Matches(top.Site) })
	if limiter == nil || limiter.Rate == 0 || durationNS <= 0 {
		return v
	}
	arrivals := float64(attr.group.Count+attr.group.Open.Count) / float64(durationNS) * 1e9
	v.Title = textOf("title limiter-rate", "rate", words.Figure(limiter.Rate), "site", v.Site)
	v.addEvidence(evidenceOf("evidence limiter-grants", limiter.Rate, "1/s"), evidenceOf("evidence limiter-arrivals", arrivals, "1/s"))
	library := cmp.Or(libraryAt(top.Site), &library{})
	calls, isFull := arrivals*limiter.WaitsPerRequest, limiter.QueuedShare >= threshold.NearlyAllShare
	if isFull {
		calls = max(calls, limiter.Rate)
	}
	rate := textOf("phrase limiter-more-rate", "rate", cmp.Or(library.rateOption, textOf("phrase limiter-rate", "site", top.ownLine())), "now", words.Figure(limiter.Rate), "needed", words.Figure(math.Round(limiterRoom*calls)))
	if isFull {
		v.Fix = textOf("fix limiter-full", "rate", rate, "calls", words.Figure(math.Round(calls)))
		return v
	}
	advice := textOf("phrase limiter-more-burst", "burst", cmp.Or(library.burstOption, textOf("phrase limiter-burst")), "n", limiter.BurstDeficit)
	if limiterRoom*calls > limiter.Rate {
		advice = textOf("phrase limiter-more-of-both", "burst", advice, "rate", rate) // at other times more calls may come than in this trace
	}
	v.Fix = textOf("fix limiter-bursts", "advice", advice, "arrivals", words.Figure(math.Round(arrivals)), "waiters", limiter.MaxWaiters)
	v.Changes, v.ChangeText = changes, textOf("phrase change-no-queue")
	return v
}

// limiterRoom times the rate of requests that arrive at random lets them wait for one interval on average (M/D/1).
const limiterRoom = 1.5
