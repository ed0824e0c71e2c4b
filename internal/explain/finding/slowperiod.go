package finding

import (
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkOneSlowPeriod is WL5010, one-slow-period: one time block of the trace, with at most 30 % of the group's requests, has more
// than 60 % of those above p90. Percentiles of the whole trace then describe that period, not the service.
func checkOneSlowPeriod(_ *Input, g *report.Group) []Verdict {
	if g.LatencyNS.P90 == nil || len(g.Blocks) < 5 {
		return nil
	}
	var all, slow, worstCount int64
	var worst *report.Block
	for b := range each(g.Blocks) {
		n := int64(0)
		for k, h := range b.Histogram {
			// The first bucket starts at 0. A bucket is slow if its lower bound is.
			if k > 0 && b.Histogram[k-1][0] >= *g.LatencyNS.P90 {
				n += h[1]
			}
		}
		slow += n
		all += int64(b.Count)
		if n > worstCount {
			worst, worstCount = b, n
		}
	}
	if slow < 20 || float64(worstCount) <= 0.6*float64(slow) || float64(worst.Count) > 0.3*float64(all) {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf("title one-slow-period", "group", words.FuncName(g.Name)), Fix: textOf("fix one-slow-period"), Group: g.ID, Confidence: 0.9,
		Evidence: []report.Evidence{
			evidenceOf("evidence slow-period-share", float64(worstCount)/float64(slow), "share"),
			evidenceOf("evidence slow-period-begin", worst.StartNS, "ns"),
			evidenceOf("evidence slow-period-length", worst.DurationNS, "ns"),
		},
	})
}
