package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func fewRule() Rule {
	return Rule{
		Code: report.RuleFewRequests, Name: "few-requests",
		Summary: "too few requests to speak of slow ones",
		Doc: Doc{
			Means:    "Percentiles and the causes of the slow band rest on a handful of requests: the next trace may say something else.",
			Measured: fmt.Sprintf("The group with the most time has fewer than %d requests that ended within the trace.", scale.Many),
			Wrong:    "Where all requests suffer from the same thing, a few are enough to see it. Record for longer (whylate record -d 30s) or under more load to be sure.",
		},
		Run: func(in *Input) []Verdict {
			if len(in.Report.Groups) == 0 || len(warned(in, "no-requests")) > 0 {
				return nil
			}
			g := &in.Report.Groups[0]
			if g.Count >= scale.Many {
				return nil
			}
			seen := fmt.Sprintf("only %d requests of %s were seen", g.Count, short(g.Name))
			if g.Count == 1 {
				seen = fmt.Sprintf("only one request of %s was seen", short(g.Name))
			}
			return doubt(report.Finding{
				Title: seen, Group: g.ID, Confidence: 1,
				Evidence: []report.Evidence{{Text: "requests", Value: float64(g.Count), Unit: "count"}},
				Fix:      "record for longer, or while the service is busier",
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
