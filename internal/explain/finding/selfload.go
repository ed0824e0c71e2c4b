package finding

import (
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// checkLoadInProcess is WL5005, load-in-process.
func checkLoadInProcess(in *Input) []Verdict {
	if in.NoSelfConnections {
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
	for i := range in.Process.ClientCalls {
		if a := &in.Process.ClientCalls[i]; in.WorksForServer == nil || !in.WorksForServer(a.Start) {
			runs += a.Runs
		}
	}
	if 2*runs < int64(served) {
		return nil
	}
	return doubt(report.Finding{
		Title: "the load seems to come from the same process", Confidence: 0.8,
		Evidence: []report.Evidence{
			measured("calls of HTTP or gRPC clients outside of its requests, about", runs, "count"),
			measured("requests served", served, "count"),
		},
		Fix: "run the load generator as a separate process, if possible on another machine",
	})
}
