package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func windowRule() Rule {
	return Rule{
		Code: report.RuleShortWindow, Name: "short-window",
		Summary: "the trace is short compared with its slowest requests",
		Doc: Doc{
			Means: "Most requests that are nearly as long as the trace are cut off at its beginning or end. So the slowest ones are missing or few, and " +
				"percentiles look better than they are.",
			Measured: fmt.Sprintf("The slowest request, or the oldest open one, of the group with the most time fits into the trace fewer than %d times.", scale.Few),
			Wrong:    "For streams and long polls, which are meant to stay open.",
		},
		Run: func(in *Input) []Verdict {
			if len(in.Report.Groups) == 0 {
				return nil
			}
			g := &in.Report.Groups[0]
			slowest := g.Open.OldestNS
			if g.LatencyNS.Max != nil {
				slowest = max(slowest, *g.LatencyNS.Max)
			}
			if g.Streaming || slowest*scale.Few <= in.Report.Input.DurationNS {
				return nil
			}
			return doubt(report.Finding{
				Title: "the trace is short compared with its slowest requests", Group: g.ID, Confidence: 1,
				Evidence: []report.Evidence{
					{Text: "slowest request", Value: float64(slowest), Unit: "ns"},
					{Text: "length of the trace", Value: float64(in.Report.Input.DurationNS), Unit: "ns"},
					{Text: "requests cut off at its ends", Value: float64(g.CutAtStart + g.Open.Count), Unit: "count"},
				},
				Fix: "record longer: at least ten times the slowest request",
			})
		},
	}
}
