package finding

import (
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// checkLoadInProcess is WL5005, load-in-process: the process runs clients that probably send requests to its own server, so the
// load competes with it for the Ps. Client goroutines must have run at least once for every two requests served. It is silent if
// the host's sockets show no connection of the process to itself.
func checkLoadInProcess(in *Input) []Verdict {
	if in.NoSelfConnections {
		return nil
	}
	servedRequests := in.Report.Input.Observer
	for g := range each(in.Report.Groups) {
		if g.Kind.Protocol() != "" {
			servedRequests += g.Count
		}
	}
	if servedRequests < threshold.MedianSample {
		return nil
	}
	clientCalls := int64(0)
	for a := range each(in.Process.ClientCalls) {
		if in.WorksForServer == nil || !in.WorksForServer(a.Start) {
			clientCalls += a.Count
		}
	}
	if 2*clientCalls < int64(servedRequests) {
		return nil
	}
	return doubtVerdict(report.Finding{
		Title: textOf("title load-in-process"), Fix: textOf("fix load-in-process"), Confidence: 0.8,
		Evidence: []report.Evidence{
			evidenceOf("evidence client-calls", clientCalls, "count"),
			evidenceOf("evidence served-requests", servedRequests, "count"),
		},
	})
}
