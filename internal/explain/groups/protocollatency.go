package groups

import (
	"slices"

	"github.com/whylate/whylate/report"
)

// Servers returns, for each protocol (kind of calls), the number and the latencies of all ended requests together, in the order
// of the rows. It leaves out monitoring requests and streams.
func (s *Sum) Servers(rows []Row) (out []report.Server) {
	var latencies []histogram // of out
	for i := range rows {
		r := &rows[i]
		if !r.Kind.IsCall() || r.Role != report.RoleRequests || r.Streaming || r.Count == 0 {
			continue
		}
		index := slices.IndexFunc(out, func(o report.Server) bool { return o.Kind == r.Kind })
		if index < 0 {
			index = len(out)
			out, latencies = append(out, report.Server{Kind: r.Kind}), append(latencies, histogram{})
		}
		latencies[index].merge(&s.tables[0].groups[r.PathGroup].latencies)
	}
	for i := range out {
		out[i].Count, out[i].LatencyNS = int(latencies[i].count), latencyOf(&latencies[i])
	}
	return out
}
