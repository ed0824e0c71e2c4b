package finding

import (
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkFewRequests is WL5001, few-requests.
func checkFewRequests(in *Input) []Verdict {
	if len(in.Report.Groups) == 0 || len(warningTexts(in, "no-requests")) > 0 {
		return nil
	}
	g := &in.Report.Groups[0]
	if g.Count >= threshold.TailSample {
		return nil
	}
	return doubt(report.Finding{
		Title: "the trace has only " + plural(g.Count, "one request", "%d requests") + " of " + shortFunc(g.Name), Group: g.ID, Confidence: 1,
		Evidence: []report.Evidence{measurement("requests", g.Count, "count")},
		Fix:      "record longer, or while the service is busier",
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
		Title: "the trace is cut: only whole generations before that are reported", Confidence: 1,
		Evidence: []report.Evidence{measurement("reported", in.Report.Input.DurationNS, "ns")},
		Fix:      "let the recording end by itself: stop the trace before the process exits, or close the connection after the last byte",
	})
}

// checkClock is WL5007, clock.
func checkClock(in *Input) []Verdict {
	texts := warningTexts(in, "clock")
	if len(texts) == 0 {
		return nil
	}
	return doubt(report.Finding{
		Title: "times in the trace contradict each other: " + texts[0], Confidence: 1,
		Fix: "record on another machine; check the clock source (/sys/devices/system/clocksource)",
	})
}

// checkLostEvents is WL5008, lost-events.
func checkLostEvents(in *Input) []Verdict {
	texts := warningTexts(in, "lost-events", "unknown-event", "skipped-generation")
	if len(texts) == 0 {
		return nil
	}
	return doubt(report.Finding{
		Title: "parts of the trace were left out: " + strings.Join(texts, "; "), Confidence: 1,
		Fix: "use a whylate that knows this version of Go; allow more memory (--max-memory)",
	})
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
	if g.Streaming || slowest*threshold.SmallSample <= in.Report.Input.DurationNS {
		return nil
	}
	return doubt(report.Finding{
		Title: "the trace is short compared with its slowest requests", Group: g.ID, Confidence: 1,
		Evidence: []report.Evidence{
			measurement("slowest request", slowest, "ns"),
			measurement("length of the trace", in.Report.Input.DurationNS, "ns"),
			measurement("requests cut off at its ends", g.CutAtStart+g.Open.Count, "count"),
		},
		Fix: "record longer: at least ten times the slowest request",
	})
}
