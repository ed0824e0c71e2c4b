package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func fewRule() Rule {
	return Rule{
		Code: report.RuleFewRequests, Name: "few-requests",
		Summary: "too few requests to judge slow ones",
		Doc: Doc{
			Means:    "Percentiles and the causes of the slow band rest on a handful of requests: the next trace may show others.",
			Measured: fmt.Sprintf("The group with the most time has fewer than %d requests that ended within the trace.", scale.Many),
			Wrong:    "Where all requests have the same problem, a few are enough to show it. To be sure, record longer (whylate record -d 30s) or under more load.",
		},
		Run: func(in *Input) []Verdict {
			if len(in.Report.Groups) == 0 || len(warned(in, "no-requests")) > 0 {
				return nil
			}
			g := &in.Report.Groups[0]
			if g.Count >= scale.Many {
				return nil
			}
			seen := fmt.Sprintf("the trace has only %d requests of %s", g.Count, short(g.Name))
			if g.Count == 1 {
				seen = fmt.Sprintf("the trace has only one request of %s", short(g.Name))
			}
			return doubt(report.Finding{
				Title: seen, Group: g.ID, Confidence: 1,
				Evidence: []report.Evidence{{Text: "requests", Value: float64(g.Count), Unit: "count"}},
				Fix:      "record longer, or while the service is busier",
			})
		},
	}
}

// doubt is the verdict of a rule about what weakens the report.
func doubt(f report.Finding) []Verdict { return []Verdict{{Fact: true, Finding: f}} }

// warned returns the texts of the report's warnings with one of these codes.
func warned(in *Input, codes ...string) []string {
	var out []string
	for _, w := range in.Report.Input.Warnings {
		for _, c := range codes {
			if w.Code == c {
				out = append(out, w.Text)
			}
		}
	}
	return out
}
