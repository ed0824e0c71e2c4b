package finding

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkFewRequests is WL5001, few-requests.
func checkFewRequests(in *Input) []Verdict {
	if len(in.Report.Groups) == 0 || len(warningTexts(in, "no-requests")) > 0 {
		return nil
	}
	g := &in.Report.Groups[0]
	if g.Count >= threshold.TailSample || g.Kind == report.KindRun {
		return nil
	}
	return doubt(report.Finding{
		Title: textOf(plural(g.Count, "title few-requests-one", "title few-requests-many"), "n", g.Count, "group", words.FuncName(g.Name)), Fix: textOf("fix few-requests"),
		Group: g.ID, Confidence: 1, Evidence: []report.Evidence{evidenceOf("evidence requests", g.Count, "count")},
	})
}

// doubt returns the verdict of a rule about a property of the recording that weakens the report.
func doubt(f report.Finding) []Verdict { return []Verdict{{Fact: true, Finding: f}} }

// warningTexts returns the texts of the report's warnings with one of these codes.
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

// checkTruncated is WL5002, truncated.
func checkTruncated(in *Input) []Verdict {
	if !in.Report.Input.Truncated {
		return nil
	}
	return doubt(report.Finding{
		Title: textOf("title truncated"), Fix: textOf("fix truncated"), Confidence: 1,
		Evidence: []report.Evidence{evidenceOf("evidence reported", in.Report.Input.DurationNS, "ns")},
	})
}

// checkClock is WL5007, clock.
func checkClock(in *Input) []Verdict {
	texts := warningTexts(in, "clock")
	if len(texts) == 0 {
		return nil
	}
	return doubt(report.Finding{Title: textOf("title clock", "warning", texts[0]), Fix: textOf("fix clock"), Confidence: 1})
}

// checkLostEvents is WL5008, lost-events.
func checkLostEvents(in *Input) []Verdict {
	texts := warningTexts(in, "lost-events", "unknown-event", "skipped-generation")
	if len(texts) == 0 {
		return nil
	}
	return doubt(report.Finding{Title: textOf("title lost-events", "warnings", strings.Join(texts, "; ")), Fix: textOf("fix lost-events"), Confidence: 1})
}

// checkShortWindow is WL5009, short-window.
func checkShortWindow(in *Input) []Verdict {
	if len(in.Report.Groups) == 0 {
		return nil
	}
	g := &in.Report.Groups[0]
	slowest := g.Open.OldestNS
	if g.LatencyNS.Max != nil {
		slowest = max(slowest, *g.LatencyNS.Max)
	}
	if g.Streaming || g.Kind == report.KindRun || slowest*threshold.SmallSample <= in.Report.Input.DurationNS {
		return nil
	}
	return doubt(report.Finding{
		Title: textOf("title short-window"), Fix: textOf("fix short-window"), Group: g.ID, Confidence: 1,
		Evidence: []report.Evidence{
			evidenceOf("evidence slowest-request", slowest, "ns"),
			evidenceOf("evidence trace-length", in.Report.Input.DurationNS, "ns"),
			evidenceOf("evidence requests-cut", g.CutAtStart+g.Open.Count, "count"),
		},
	})
}
