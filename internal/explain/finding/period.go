package finding

import (
	"fmt"

	"github.com/whylate/whylate/report"
)

func periodRule() Rule {
	return Rule{
		Code: report.RuleOneSlowPeriod, Name: "one-slow-period",
		Summary: "most slow requests fall into one interval of the trace",
		Doc: Doc{
			Means: "One incident makes the tail, not the service's usual behaviour: a restart, another process, a deployment, one bad query. Its causes say what " +
				"happened then. Another trace may show none of it, and percentiles over the whole trace mix two states.",
			Measured: "Of at least 20 requests slower than the 90th percentile, more than 60 % ended in one of at least five intervals of 250 ms or more, in which " +
				"no more than 30 % of all requests ended.",
			Wrong: "If that interval is the one you study.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			for i := range in.Report.Groups {
				if f := onePeriod(&in.Report.Groups[i]); f != nil {
					out = append(out, doubt(*f)...)
				}
			}
			return out
		},
	}
}

// onePeriod returns the finding for a group whose slow requests fall into one of its blocks.
func onePeriod(g *report.Group) *report.Finding {
	if g.LatencyNS.P90 == nil || len(g.Blocks) < 5 {
		return nil
	}
	var all, slow, most int64
	var worst *report.Block
	for i := range g.Blocks {
		b := &g.Blocks[i]
		n := int64(0)
		for k, h := range b.Histogram {
			// The first bucket counts from 0; a bucket is slow if all of it is.
			if k > 0 && b.Histogram[k-1][0] >= *g.LatencyNS.P90 {
				n += h[1]
			}
		}
		slow += n
		all += int64(b.Count)
		if n > most {
			worst, most = b, n
		}
	}
	if slow < 20 || float64(most) <= 0.6*float64(slow) || float64(worst.Count) > 0.3*float64(all) {
		return nil
	}
	return &report.Finding{
		Title: fmt.Sprintf("most slow requests of %s fall into one interval of the trace", short(g.Name)), Group: g.ID, Confidence: 0.9,
		Evidence: []report.Evidence{
			{Text: "share of the slow requests in it", Value: float64(most) / float64(slow), Unit: "share"},
			{Text: "it begins at", Value: float64(worst.StartNS), Unit: "ns"},
			{Text: "its length", Value: float64(worst.DurationNS), Unit: "ns"},
		},
		Fix: "explain that interval alone (--from, --to), and the rest without it",
	}
}
