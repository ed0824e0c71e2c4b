package finding

import (
	"strings"

	"github.com/whylate/whylate/report"
)

// doubtVerdict returns the verdict, a fact, about a property of the recording that makes the report less certain.
func doubtVerdict(f report.Finding) []Verdict { return []Verdict{{Fact: true, Finding: f}} }

// warningTexts returns the texts of those warnings about the input that have one of the codes.
func warningTexts(in *Input, codes ...string) []string {
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

// checkTruncated is WL5002, truncated: the trace is cut off or damaged, and the report covers only the generations before that.
func checkTruncated(in *Input) []Verdict {
	if !in.Report.Input.Truncated {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf("title truncated"), Fix: textOf("fix truncated"), Confidence: 1,
		Evidence: []report.Evidence{evidenceOf("evidence reported", in.Report.Input.DurationNS, "ns")},
	})
}

// checkClock is WL5007, clock: times in the trace contradict each other.
func checkClock(in *Input) []Verdict {
	texts := warningTexts(in, "clock")
	if len(texts) == 0 {
		return nil
	}
	return doubtVerdict(report.Finding{Title: textOf("title clock", "warning", texts[0]), Fix: textOf("fix clock"), Confidence: 1})
}

// checkLostEvents is WL5008, lost-events: the reader's warnings say that events are missing or were not understood.
func checkLostEvents(in *Input) []Verdict {
	texts := warningTexts(in, "lost-events", "unknown-event", "skipped-generation")
	if len(texts) == 0 {
		return nil
	}
	return doubtVerdict(report.Finding{Title: textOf("title lost-events", "warnings", strings.Join(texts, "; ")), Fix: textOf("fix lost-events"), Confidence: 1})
}
