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
			Means: "Some events could not be used: this build does not know their type, the goroutine or P they belong to is missing, or their generation was " +
				"too large for the memory limit.",
			Measured: "The decoder counts them; the report's warnings have the numbers.",
			Wrong:    "A few lost events affect only a few requests.",
		},
		Run: func(in *Input) []Verdict {
			texts := warned(in, "lost-events", "unknown-event", "skipped-generation")
			if len(texts) == 0 {
				return nil
			}
			return doubt(report.Finding{
				Title: "parts of the trace were left out: " + strings.Join(texts, "; "), Confidence: 1,
				Fix: "use a whylate that knows this version of Go; allow more memory (--max-memory)",
			})
		},
	}
}
