package finding

import (
	"strings"

	"github.com/whylate/whylate/report"
)

func lostRule() Rule {
	return Rule{
		Code: report.RuleLostEvents, Name: "lost-events",
		Summary: "parts of the trace were left out",
		Doc: Doc{
			Means:    "Some events could not be used: of a type that this build does not know, without the goroutine or P they belong to, or in a generation that was too large for the memory allowed.",
			Measured: "Counted while decoding; the warnings of the report have the numbers.",
			Wrong:    "A few lost events touch a few requests only.",
		},
		Run: func(in *Input) []Verdict {
			texts := warned(in, "lost-events", "unknown-event", "skipped-generation")
			if len(texts) == 0 {
				return nil
			}
			return doubt(report.Finding{
				Title: "parts of the trace were left out: " + strings.Join(texts, "; "), Confidence: 1,
				Fix: "use a newer whylate for a newer Go; allow more memory (--max-memory)",
			})
		},
	}
}
