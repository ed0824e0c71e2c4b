package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkStopped is WL4003, stopped.
func checkStopped(in *Input) []Verdict {
	stops := in.Report.Runtime.Stops
	if stops == nil || stops.Count == 0 {
		return nil
	}
	meanNS := stops.TotalNS / int64(stops.Count)
	reason, fix := "", ""
	switch stops.State {
	case "stopped":
		reason, fix = "by a signal (SIGSTOP)", "find what sends the signal (kill -STOP, job control, gcore, a checkpoint), and do not send it to an instance that gets traffic"
	case "traced":
		reason, fix = "by a debugger", "attach debuggers and tracers (gdb, delve, strace) to an instance that gets no traffic"
	case "frozen":
		reason, fix = "by the freezer of its cgroup", "find what pauses the container (docker pause, a checkpoint, a snapshot), and drain the instance first"
	}
	v := Verdict{Changes: []predict.Change{}, Finding: report.Finding{
		Title: fmt.Sprintf("the process was stopped %s: %s, %s in total", reason, words.Count(stops.Count, "time", "times"), words.Brief(stops.TotalNS)), Confidence: stops.Confidence, Fix: fix,
		Evidence: []report.Evidence{
			measurement("mean length of a stop", meanNS, "ns"),
			measurement(fmt.Sprintf("requests that arrived in that time, of %d: their latency here does not show it", stops.Requests), stops.After, "requests"),
			measurement("requests in progress", stops.During, "requests"),
		},
	}}
	if stops.State == "" {
		v.Title = fmt.Sprintf("perhaps the process did not run: %s, %s in total", words.Count(stops.Count, "time", "times"), words.Brief(stops.TotalNS))
		v.Fix = "run whylate record on the service's own host: it samples the process's state"
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
	for i := range in.Report.Groups {
		if g := &in.Report.Groups[i]; g.Role == report.RoleRequests {
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
