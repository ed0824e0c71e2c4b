package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

func pollGapRule() Rule {
	return Rule{
		Code: report.RulePollGaps, Name: "poll-gaps",
		Summary: "a part of the time is an upper bound: nobody polled the network",
		Doc: Doc{
			Means: "With all Ps busy the network is looked at about every 10 ms only. A message that is read after such a gap may have come at its beginning or at its end; the trace cannot tell. " +
				"So the time given to sched-poll is an upper bound, and ready_to_run a lower one; and the network is neither cleared nor blamed for it.",
			Measured: "At least 10 % of the time of a group is sched-poll. It also counts before the request: see poll_gap_ns in the report. Where in the median half of the gap before a request is longer than the request, it is no footnote: " +
				"clients may wait most of their time before anything that the trace shows; half of it counts as lost, and its confidence is 0.6. Where a CPU limit froze the process, the length of a freeze is taken off the gap first.",
			Wrong: "It is an upper bound: messages may have come at the end of the gap. Free Ps make it go away.",
		},
		Run: func(in *Input) []Verdict {
			var worst *report.Group
			most := 0.0
			for i := range in.Report.Groups {
				g := &in.Report.Groups[i]
				share, _ := Weigh(g, func(c *report.Cause) bool { return c.Cause == report.CauseSchedPoll })
				if gap := g.PollGapNS.P50; gap != nil && g.LatencyNS.P50 != nil {
					// What came in during a gap waited before its request began, for the trace.
					share = max(share, float64(*gap)/float64(*gap+*g.LatencyNS.P50))
				}
				if share > most {
					worst, most = g, share
				}
			}
			if most < 0.10 {
				return nil
			}
			f := report.Finding{
				Title: "messages may have lain unread: with all Ps busy nobody polls the network", Cause: report.CauseSchedPoll, Group: worst.ID, Share: most, Confidence: 1,
				Evidence: []report.Evidence{{Text: "of the time, at most, before a message was looked for", Value: most, Unit: "share"}},
				Fix:      "measure latency at the client as well; free the Ps (see WL1001, WL1002)",
			}
			if gap := worst.PollGapNS.P99; gap != nil {
				f.Evidence = append(f.Evidence, report.Evidence{Text: "gap before a request, 99th percentile", Value: float64(*gap), Unit: "ns"})
			}
			// Where most of what clients see lies before what the trace can show, that is what is wrong, and no footnote.
			if gap, own := worst.PollGapNS.P50, worst.LatencyNS.P50; gap != nil && own != nil && (*gap-frozenAtOnce(in.Report))/2 > *own {
				// A message comes at any time of it: half of it is what is lost on average.
				lost := (*gap - frozenAtOnce(in.Report)) / 2
				all := Lost{Share: float64(lost) / float64(lost+*own), NS: lost}
				f.Share = all.Share
				f.Evidence[0] = report.Evidence{Text: "of what clients see, if messages come at any time of a gap", Value: all.Share, Unit: "share"}
				f.Title = fmt.Sprintf("requests lay unread for up to %s before their %s began: with all Ps busy nobody polls the network", words.Brief(*gap), words.Brief(*own))
				f.Confidence = 0.6
				return []Verdict{{Finding: f, Changes: []predict.Change{}, Won: Won{All: all, SlowShare: all.Share, SlowNS: all.NS, TotalNS: lost * int64(worst.Count)}}}
			}
			return doubt(f)
		},
	}
}

// frozenAtOnce is how long the kernel held the process back at a time, on average. Nobody polls meanwhile, so most gaps have
// one freeze in them, which is the limit's (WL4001), not that of busy Ps.
func frozenAtOnce(r *report.Report) int64 {
	if t := &r.Runtime.Throttle; t.Verdict.HeldBack() && t.Freezes > 0 {
		return t.LostWallNS / int64(t.Freezes)
	}
	return 0
}
