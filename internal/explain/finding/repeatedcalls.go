package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// rewriteForRepeats rewrites a verdict on calls that some requests make again after a pause, and most make once: the first one does not
// suffice. It returns false, and changes nothing, for others. The change is one call in each request, without the pauses.
func (a *attribution) rewriteForRepeats(v *Verdict, cand *candidate, calls *queues.PeerCalls) bool {
	if calls.RepeatRequests < threshold.SmallSample || float64(calls.RepeatRequests) > threshold.HalfShare*float64(calls.Requests) ||
		float64(calls.Repeats) < threshold.MostShare*float64(calls.Calls-calls.Requests) ||
		float64(calls.RepeatNS) < threshold.NoticeableShare*float64(calls.TotalNS) || !isOwnCode(calls.Pause) {
		return false
	}
	callCount := 1 + float64(calls.Repeats)/float64(calls.RepeatRequests)
	share := words.Percent(float64(calls.RepeatRequests) / float64(calls.Requests))
	v.Title = textOf("title repeated-call", "share", share, "n", words.Figure(callCount), "site", v.Site)
	v.Fix = textOf("fix repeated-call", "pause", calls.Pause)
	if calls.Transaction != nil {
		v.Fix = textOf("fix call-in-transaction", "begin", calls.Transaction, "pause", calls.Pause)
	}
	v.prependEvidence(
		evidenceOf("evidence repeated-calls", callCount, "count"),
		evidenceOf("evidence repeating-requests", calls.RepeatRequests, "count", "n", calls.Requests))
	v.Gain = cand.gain.scaled(float64(calls.RepeatNS) / float64(calls.TotalNS))
	v.Gain.Slow = cand.gain.Slow.scaled(1 - 1/callCount)
	v.MaxSeverity = report.SeverityMedium // it may wait until something is done
	v.Changes = []predict.Change{
		predict.Calls(predict.SiteText(cand.routes[0].Site, report.CauseNetwork), 1),
		predict.Remove(report.CauseSleep, predict.SiteText(calls.Pause, report.CauseSleep)),
	}
	a.predictAs(v, "phrase change-one-call")
	return true
}
