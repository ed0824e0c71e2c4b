package finding

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// doubtVerdict returns the verdict, a fact, about a property of the recording that makes the report less certain.
func doubtVerdict(f report.Finding) []Verdict { return []Verdict{{Fact: true, Finding: f}} }

// warningVerdict returns the verdict that warnings about the input with one of the codes give doubts; nil if there are none.
func warningVerdict(in *Input, title, fix textKey, codes ...string) []Verdict {
	var texts []string
	for _, w := range in.Report.Input.Warnings {
		if slices.Contains(codes, w.Code) {
			texts = append(texts, w.Text)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return doubtVerdict(report.Finding{Title: textOf(title, "warnings", strings.Join(texts, "; ")), Fix: textOf(fix), Confidence: 1})
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
func checkClock(in *Input) []Verdict { return warningVerdict(in, "title clock", "fix clock", "clock") }

// checkLostEvents is WL5008, lost-events: the reader's warnings say that events are missing or were not understood.
func checkLostEvents(in *Input) []Verdict {
	return warningVerdict(in, "title lost-events", "fix lost-events", "lost-events", "unknown-event", "skipped-generation")
}

// checkFewRequests is WL5001, few-requests: the first group has fewer than threshold.TailSample requests, so its p99 is not
// reliable.
func checkFewRequests(in *Input) []Verdict {
	if len(in.Report.Groups) == 0 {
		return nil
	}
	g := &in.Report.Groups[0]
	if g.Count >= threshold.TailSample || g.Kind == report.KindRun {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf(plural(g.Count, "title few-requests-one", "title few-requests-many"), "n", g.Count, "group", words.FuncName(g.Name)), Fix: textOf("fix few-requests"),
		Group: g.ID, Confidence: 1, Evidence: []report.Evidence{evidenceOf("evidence requests", g.Count, "count")},
	})
}

// checkShortWindow is WL5009, short-window: the trace is shorter than threshold.SmallSample times the slowest or oldest request
// of the first group, so slow requests are likely to be cut off at its ends.
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
	return doubtVerdict(report.Finding{
		Title: textOf("title short-window"), Fix: textOf("fix short-window"), Group: g.ID, Confidence: 1,
		Evidence: []report.Evidence{
			evidenceOf("evidence slowest-request", slowest, "ns"),
			evidenceOf("evidence trace-length", in.Report.Input.DurationNS, "ns"),
			evidenceOf("evidence requests-cut", g.CutAtStart+g.Open.Count, "count"),
		},
	})
}

// checkOneSlowPeriod is WL5010, one-slow-period: one time block of the trace, with at most 30 % of the group's requests, has more
// than 60 % of those above p90. Percentiles of the whole trace then describe that period, not the service.
func checkOneSlowPeriod(_ *Input, g *report.Group) []Verdict {
	if g.LatencyNS.P90 == nil || len(g.Blocks) < 5 {
		return nil
	}
	var all, slow, worstCount int64
	var worst *report.Block
	for b := range each(g.Blocks) {
		n := int64(0)
		for k, h := range b.Histogram {
			// The first bucket starts at 0. A bucket is slow if its lower bound is.
			if k > 0 && b.Histogram[k-1][0] >= *g.LatencyNS.P90 {
				n += h[1]
			}
		}
		slow += n
		all += int64(b.Count)
		if n > worstCount {
			worst, worstCount = b, n
		}
	}
	if slow < 20 || float64(worstCount) <= 0.6*float64(slow) || float64(worst.Count) > 0.3*float64(all) {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf("title one-slow-period", "group", words.FuncName(g.Name)), Fix: textOf("fix one-slow-period"), Group: g.ID, Confidence: 0.9,
		Evidence: []report.Evidence{
			evidenceOf("evidence slow-period-share", float64(worstCount)/float64(slow), "share"),
			evidenceOf("evidence slow-period-begin", worst.StartNS, "ns"),
			evidenceOf("evidence slow-period-length", worst.DurationNS, "ns"),
		},
	})
}
