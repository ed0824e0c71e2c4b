package finding

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

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
