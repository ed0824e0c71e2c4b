package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// checkSlowClient is WL2006, slow-client: requests wait for their client to send or to read.
func checkSlowClient(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	v := attr.newVerdict(cand, top)
	v.Cause, v.Confidence, v.MaxSeverity = report.CauseNetwork, 0.95, report.SeverityLow // only the client itself is delayed
	v.Changes = []predict.Change{}
	attr.addSlowMean(&v, "evidence slow-wait-on", cand, top, top.via)
	switch {
	case knowledge.Has(top.Call, knowledge.TLSHandshake):
		v.Title, v.Fix = textOf("title slow-client-handshake"), textOf("fix slow-client-handshake")
	case knowledge.Has(top.Call, knowledge.AnswerWrite) || knowledge.Has(top.Call, knowledge.ConnectionWrite) || isFlowControlWait(top):
		v.Title, v.Fix = textOf("title slow-client-read", "site", v.Site), textOf("fix slow-client-read")
	default:
		v.Title, v.Fix = textOf("title slow-client", "site", v.Site), textOf("fix slow-client")
	}
	return v
}

// isFlowControlWait reports whether a handler's Write waits for the flow-control window of HTTP/2, which the client enlarges as
// it reads: the route leads from a select in Write to the connection's reader. A wait for a request's body is a Cond's instead.
func isFlowControlWait(route *causeRoute) bool {
	return route.Site != nil && knowledge.Has(route.Site.Func, knowledge.HTTP2Reader) &&
		len(route.via) > 0 && route.via[0].Wait == report.WaitSelect && knowledge.Has(route.via[0].Call, knowledge.AnswerWrite)
}
