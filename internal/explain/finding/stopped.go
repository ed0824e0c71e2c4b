package finding

import (
	"fmt"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// checkStopped is WL4003, stopped.
func checkStopped(in *Input) []Verdict {
	s := in.Report.Runtime.Stops
	if s == nil || s.Count == 0 {
		return nil
	}
	mean := s.TotalNS / int64(s.Count)
	by, fix := "", ""
	switch s.By {
	case "stopped":
		by, fix = "by a signal (SIGSTOP)", "find what sends the signal (kill -STOP, job control, gcore, a checkpoint), and do not send it to an instance that gets traffic"
	case "traced":
		by, fix = "by a debugger", "attach debuggers and tracers (gdb, delve, strace) to an instance that gets no traffic"
	case "frozen":
		by, fix = "by the freezer of its cgroup", "find what pauses the container (docker pause, a checkpoint, a snapshot), and drain the instance first"
	}
	v := Verdict{Changes: []predict.Change{}, Finding: report.Finding{
		Title: fmt.Sprintf("the process was stopped %s: %s, %s in total", by, words.Count(s.Count, "time", "times"), words.Brief(s.TotalNS)), Confidence: s.Confidence, Fix: fix,
		Evidence: []report.Evidence{
			measured("mean length of a stop", mean, "ns"),
			measured(fmt.Sprintf("requests that arrived in that time, of %d: their latency here does not show it", s.Requests), s.After, "requests"),
			measured("requests in progress", s.During, "requests"),
		},
	}}
	if s.By == "" {
		v.Title = fmt.Sprintf("perhaps the process did not run: %s, %s in total", words.Count(s.Count, "time", "times"), words.Brief(s.TotalNS))
		v.Fix = "run whylate record on the service's own host: it samples the process's state"
		v.addEvidence(report.Evidence{Text: s.How})
		v.FixedSeverity = report.SeverityLow
		return []Verdict{v}
	}
	hit := int64(s.After + s.During)
	if hit == 0 {
		v.Fact = true
		return []Verdict{v}
	}
	// Who came meanwhile came at any time of the interval.
	lost, spent := int64(s.After)*mean/2+int64(s.During)*mean, int64(0)
	for i := range in.Report.Groups {
		if g := &in.Report.Groups[i]; g.Role == report.RoleRequests {
			spent += g.TotalNS
		}
	}
	all := int64(max(s.Requests, 1))
	slow := lost / hit
	v.Gain = Gain{
		TotalNS: lost, All: Loss{Share: float64(lost) / float64(lost+spent), NS: lost / all},
		Slow: Loss{Share: float64(slow) / float64(slow+spent/all), NS: slow, IsRare: areTooRare(int(hit), s.Requests)},
	}
	return []Verdict{v}
}
