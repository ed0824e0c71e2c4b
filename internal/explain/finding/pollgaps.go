package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkPollGaps is WL5006, poll-gaps: messages waited in sockets because all Ps were busy and none polled the network. It is a
// doubt about latencies, because a request begins in the trace when its message is read. It is a fault if the median gap, less
// the quota's freezes, costs clients more than the median latency.
func checkPollGaps(in *Input) []Verdict {
	var worst *report.Group
	worstShare := 0.0
	for g := range each(in.Report.Groups) {
		share, _ := gainWithout(g, func(c *report.Cause) bool { return isPollGap(c) && !c.Observed })
		if gap := g.PollGapNS.P50; gap != nil && !in.Report.Kernel.IsComplete() && g.LatencyNS.P50 != nil {
			// A message that arrives during a gap waits before its request starts in the trace.
			share = max(share, float64(*gap)/float64(*gap+*g.LatencyNS.P50))
		}
		if share > worstShare {
			worst, worstShare = g, share
		}
	}
	if worstShare < 0.10 {
		return nil
	}
	result := report.Finding{
		Title: textOf("title poll-gaps"), Fix: textOf("fix poll-gaps"), Cause: report.CauseSchedPoll, Group: worst.ID, Share: worstShare, Confidence: 1,
		Evidence: []report.Evidence{evidenceOf("evidence unread-share", worstShare, "share")},
	}
	if gap := worst.PollGapNS.P99; gap != nil {
		result.Evidence = append(result.Evidence, evidenceOf("evidence poll-gap", *gap, "ns"))
	}
	// If most of the latency that clients see precedes the request in the trace, it is a fault, not only a doubt.
	if gap, latency := worst.PollGapNS.P50, worst.LatencyNS.P50; gap != nil && latency != nil && (*gap-meanFreezeNS(in.Report))/2 > *latency {
		// Messages arrive at any time of a gap: half of it is the mean loss.
		lostNS := (*gap - meanFreezeNS(in.Report)) / 2
		all := Loss{Share: float64(lostNS) / float64(lostNS+*latency), NS: lostNS}
		result.Share = all.Share
		result.Evidence[0] = evidenceOf("evidence unread-share-of-clients", all.Share, "share")
		result.Title = textOf("title poll-gaps-before-requests", "gap", words.Brief(*gap), "latency", words.Brief(*latency))
		result.Confidence = 0.6
		return []Verdict{{Finding: result, Changes: []predict.Change{}, Gain: Gain{All: all, Slow: all, TotalNS: lostNS * int64(worst.Count)}}}
	}
	return doubtVerdict(result)
}

// meanFreezeNS returns the mean duration for which a CPU quota froze the process; 0 if none did. No P polls during a
// freeze, so most gaps contain one freeze. Its time is due to the limit (WL4001), not to busy Ps.
func meanFreezeNS(r *report.Report) int64 {
	if t := &r.Runtime.Throttle; t.Verdict.HeldBack() && t.Freezes > 0 {
		return t.LostWallNS / int64(t.Freezes)
	}
	return 0
}
