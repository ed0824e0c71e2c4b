package finding

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkShortWindow is WL5009, short-window: the trace is shorter than threshold.SmallSample times the slowest or oldest request
// of the first group, so slow requests are likely to be cut off at its ends.
func checkShortWindow(in *Input) []Verdict {
	if len(in.Report.Groups) == 0 {
		return nil
	}
	g := &in.Report.Groups[0]
	slowest := g.Open.OldestNS
	if g.LatencyNS.Max != nil {
		slowest = max(slowest, *g.LatencyNS.Max)
	}
	if g.Streaming || g.Kind == report.KindRun || slowest*threshold.SmallSample <= in.Report.Input.DurationNS {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf("title short-window"), Fix: textOf("fix short-window"), Group: g.ID, Confidence: 1,
		Evidence: []report.Evidence{
			evidenceOf("evidence slowest-request", slowest, "ns"),
			evidenceOf("evidence trace-length", in.Report.Input.DurationNS, "ns"),
			evidenceOf("evidence requests-cut", g.CutAtStart+g.Open.Count, "count"),
		},
	})
}
