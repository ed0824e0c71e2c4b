package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// rewriteForRepeats rewrites a verdict on calls that some requests make again after a pause, and most make once: the first one does not
// suffice. It returns false, and changes nothing, for others. The change is one call in each request, without the pauses.
func (w *peerWait) rewriteForRepeats(v *Verdict) bool {
	if w.calls.RepeatRequests < threshold.SmallSample || float64(w.calls.RepeatRequests) > threshold.HalfShare*float64(w.calls.Requests) ||
		float64(w.calls.Repeats) < threshold.MostShare*float64(w.calls.Calls-w.calls.Requests) ||
		float64(w.calls.RepeatNS) < threshold.NoticeableShare*float64(w.calls.TotalNS) || !isOwnCode(w.calls.Pause) || !w.isAnswer || w.maybeClient {
		return false
	}
	callCount := 1 + float64(w.calls.Repeats)/float64(w.calls.RepeatRequests)
	share := words.Percent(float64(w.calls.RepeatRequests) / float64(w.calls.Requests))
	v.Title = textOf("title repeated-call", "share", share, "n", words.Figure(callCount), "site", v.Site)
	v.Fix = textOf("fix repeated-call", "pause", w.calls.Pause)
	if w.calls.Transaction != nil {
		v.Fix = textOf("fix call-in-transaction", "begin", w.calls.Transaction, "pause", w.calls.Pause)
	}
	v.prependEvidence(
		evidenceOf("evidence repeated-calls", callCount, "count"),
		evidenceOf("evidence repeating-requests", w.calls.RepeatRequests, "count", "n", w.calls.Requests))
	v.Gain = w.cand.gain.scaled(float64(w.calls.RepeatNS) / float64(w.calls.TotalNS))
	v.Gain.Slow = w.cand.gain.Slow.scaled(1 - 1/callCount)
	v.MaxSeverity = report.SeverityMedium // it may wait until something is done
	v.Changes = []predict.Change{
		predict.Calls(predict.SiteText(w.cand.routes[0].Site, report.CauseNetwork), 1),
		predict.Remove(report.CauseSleep, predict.SiteText(w.calls.Pause, report.CauseSleep)),
	}
	w.predictAs(v, "phrase change-one-call")
	return true
}
