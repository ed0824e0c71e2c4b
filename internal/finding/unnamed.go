package finding

import "github.com/whylate/whylate/report"

func unnamedRule() Rule {
	return Rule{
		Code: report.RuleBiasedNames, Name: "biased-names",
		Summary: "many requests show no handler, so the named groups look slower than they are",
		Doc: Doc{
			Means: "A request that never waits leaves no stack with its handler on it in the trace. Such requests, the fast ones, form a group of their own, and the percentiles of the named groups are " +
				"those of their slower part.",
			Measured: "More than 5 % of the requests of servers with several handlers show none.",
			Wrong:    "If only the slow requests are of interest: their causes are right.",
		},
		Run: func(in *Input) []Verdict {
			var named, unnamed, handlers int
			for i := range in.Report.Groups {
				switch g := &in.Report.Groups[i]; g.Kind {
				case report.KindHTTP1, report.KindHTTP2, report.KindGRPC:
					if g.Named {
						named += g.Count
						handlers++
					} else {
						unnamed += g.Count
					}
				}
			}
			if handlers < 2 || float64(unnamed) <= 0.05*float64(named+unnamed) {
				return nil
			}
			return doubt(report.Finding{
				Title: "many requests never waited and show no handler: percentiles of the named groups are biased upward", Confidence: 1,
				Evidence: []report.Evidence{{Text: "of the requests show no handler", Value: float64(unnamed) / float64(named+unnamed), Unit: "share"}},
				Fix:      "for exact groups, open a task in each handler: ctx, task := trace.NewTask(r.Context(), \"checkout\"); defer task.End()",
			})
		},
	}
}
