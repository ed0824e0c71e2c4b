package finding

import "github.com/whylate/whylate/report"

func truncatedRule() Rule {
	return Rule{
		Code: report.RuleTruncated, Name: "truncated",
		Summary: "the trace is cut or damaged",
		Doc: Doc{
			Means: "The trace ends in the middle of a generation (about a second), or part of it cannot be read. Whole generations before that are reported; " +
				"nothing after it is known.",
			Measured: "From the trace's own format: a batch or generation without its end.",
			Wrong:    "Never; but if the rest is long enough, the other findings stand.",
		},
		Run: func(in *Input) []Verdict {
			if !in.Report.Input.Truncated {
				return nil
			}
			return doubt(report.Finding{
				Title: "the trace is cut: only whole generations before that are reported", Confidence: 1,
				Evidence: []report.Evidence{{Text: "reported", Value: float64(in.Report.Input.DurationNS), Unit: "ns"}},
				Fix:      "let the recording end by itself: stop the trace before the process exits, or close the connection after the last byte",
			})
		},
	}
}
