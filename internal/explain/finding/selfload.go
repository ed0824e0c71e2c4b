package finding

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func selfLoadRule() Rule {
	return Rule{
		Code: report.RuleLoadInProcess, Name: "load-in-process",
		Summary: "the load seems to come from the same process",
		Doc: Doc{
			Means: "A load generator or test client runs in the same process as the server. It uses the server's Ps and CPU, wakes with it, and allocates on its " +
				"heap. Latencies and waits for Ps are those of both together; the server alone may behave differently.",
			Measured: "Goroutines that belong to no server and do nothing for its requests called an HTTP or gRPC client about as often as the process served HTTP " +
				"or gRPC requests. Calls by handlers, and by goroutines that they start or give work to, are the requests' own. " +
				"Where the recording has the process's sockets and none leads to itself, nothing is reported.",
			Wrong: "A service that calls others in the background at the same rate as it is called, and never lets a request wait for it, looks the same in a trace alone.",
		},
		Run: selfLoad,
	}
}

func selfLoad(in *Input) []Verdict {
	if in.Elsewhere {
		return nil
	}
	served := in.Report.Input.Observer
	for i := range in.Report.Groups {
		if g := &in.Report.Groups[i]; g.Kind.Protocol() != "" {
			served += g.Count
		}
	}
	if served < scale.Enough {
		return nil
	}
	runs := int64(0)
	for i := range in.Process.Asks {
		if a := &in.Process.Asks[i]; in.Serves == nil || !in.Serves(a.Start) {
			runs += a.Runs
		}
	}
	if 2*runs < int64(served) {
		return nil
	}
	return doubt(report.Finding{
		Title: "the load seems to come from the same process", Confidence: 0.8,
		Evidence: []report.Evidence{
			{Text: "calls of HTTP or gRPC clients outside of its requests, about", Value: float64(runs), Unit: "count"},
			{Text: "requests served", Value: float64(served), Unit: "count"},
		},
		Fix: "run the load generator as a separate process, if possible on another machine",
	})
}
