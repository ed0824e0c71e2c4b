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
			Means: "A load generator or test client runs in the same process as the server: it takes Ps and CPU from it, wakes with it, and allocates on its heap. Latencies and waits for Ps are those of both " +
				"together, and the server alone may behave otherwise.",
			Measured: "Goroutines that are no server's and do nothing for its requests called an HTTP or gRPC client about as often as HTTP or gRPC requests were served. Calls by handlers, and by goroutines that are started or " +
				"given work by them, are the requests' own.",
			Wrong: "A service that calls others in the background at the same rate as it is called, and never lets a request wait for it, looks the same.",
		},
		Run: selfLoad,
	}
}

func selfLoad(in *Input) []Verdict {
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
			{Text: "calls of HTTP or gRPC clients that are not for its requests, about", Value: float64(runs), Unit: "count"},
			{Text: "requests served", Value: float64(served), Unit: "count"},
		},
		Fix: "run the load generator as a process of its own, best on another machine",
	})
}
