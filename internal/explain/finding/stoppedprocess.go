package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkStopped is WL4003, stopped: a signal, a debugger or the freezer stopped the whole process for some time. The gain is the
// time that arriving and open requests lost. Without samples of the process's state it is only suspected, and low.
func checkStopped(in *Input) []Verdict {
	stops := in.Report.Runtime.Stops
	if stops == nil || stops.Count == 0 {
		return nil
	}
	meanNS := stops.TotalNS / int64(stops.Count)
	title, reason, fix := textKey("title stopped"), "", textKey("")
	switch stops.State {
	case "stopped":
		reason, fix = textOf("phrase by-signal"), "fix stopped-by-signal"
	case "traced":
		reason, fix = textOf("phrase by-debugger"), "fix stopped-by-debugger"
	case "frozen":
		reason, fix = textOf("phrase by-freezer"), "fix stopped-by-freezer"
	default:
		title, fix = "title stopped-perhaps", "fix stopped-perhaps"
	}
	v := Verdict{Changes: []predict.Change{}, Finding: report.Finding{
		Title: textOf(title, "reason", reason, "times", words.Count(stops.Count, textOf("phrase time"), textOf("phrase times")), "time", words.Brief(stops.TotalNS)),
		Fix:   textOf(fix), Confidence: stops.Confidence,
		Evidence: []report.Evidence{
			evidenceOf("evidence process-stop-length", meanNS, "ns"),
			evidenceOf("evidence stopped-arrivals", stops.After, "requests", "n", stops.Requests),
			evidenceOf("evidence stopped-in-progress", stops.During, "requests"),
		},
	}}
	if stops.State == "" {
		v.addEvidence(report.Evidence{Text: stops.Text})
		v.FixedSeverity = report.SeverityLow
		return []Verdict{v}
	}
	affected := int64(stops.After + stops.During)
	if affected == 0 {
		v.Fact = true
		return []Verdict{v}
	}
	// Requests arrive at any time of a stop, so each loses half of it on average.
	lostNS, spentNS := int64(stops.After)*meanNS/2+int64(stops.During)*meanNS, int64(0)
	for g := range each(in.Report.Groups) {
		if g.Role == report.RoleRequests {
			spentNS += g.TotalNS
		}
	}
	requests := int64(max(stops.Requests, 1))
	slowNS := lostNS / affected
	v.Gain = Gain{
		TotalNS: lostNS, All: Loss{Share: float64(lostNS) / float64(lostNS+spentNS), NS: lostNS / requests},
		Slow: Loss{Share: float64(slowNS) / float64(slowNS+spentNS/requests), NS: slowNS, IsRare: areTooRare(int(affected), stops.Requests)},
	}
	return []Verdict{v}
}
