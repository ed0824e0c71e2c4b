package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// checkSlowClient is WL2006, slow-client: requests wait for their client to send the body or to read the answer. It is at most
// low, because only that client is delayed, except where one client's slow reading fills a channel that requests of other clients
// send on (isOtherClient).
func checkSlowClient(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	v := attr.newVerdict(cand, top)
	v.Cause, v.Confidence, v.MaxSeverity = report.CauseNetwork, 0.95, report.SeverityLow // only the client itself is delayed
	v.Changes = []predict.Change{}
	attr.addSlowMean(&v, "evidence slow-wait-on", cand, top, top.via)
	switch {
	case knowledge.Has(top.Call, knowledge.TLSHandshake):
		v.Title, v.Fix = textOf("title slow-client-handshake"), textOf("fix slow-client-handshake")
	case isOtherClient(top):
		v.Title, v.Fix = textOf("title other-client-read", "sender", top.via[0].Site, "site", v.Site), textOf("fix other-client-read", "sender", top.via[0].Site)
		v.MaxSeverity, v.Changes = "", nil
	case isFlowControlWait(top) && attr.rewriteForHeldFirst(&v, top, &heldAnswerTexts):
		v.MaxSeverity, v.Changes = "", attr.withoutSite(top)
	case knowledge.Has(top.Call, knowledge.AnswerWrite) || knowledge.Has(top.Call, knowledge.ConnectionWrite) || isFlowControlWait(top):
		v.Title, v.Fix = textOf("title slow-client-read", "site", v.Site), textOf("fix slow-client-read")
	default:
		v.Title, v.Fix = textOf("title slow-client", "site", v.Site), textOf("fix slow-client")
	}
	return v
}

// isOtherClient reports whether a route leads through a full channel to a goroutine that waits for its client to read: one client
// delays the requests of others.
func isOtherClient(route *causeRoute) bool {
	isRead := knowledge.Has(route.Call, knowledge.AnswerWrite) || knowledge.Has(route.Call, knowledge.ConnectionWrite) || isFlowControlWait(route)
	return isRead && len(route.via) > 0 && route.via[0].Wait == report.WaitChanSend && route.via[0].Site != nil
}

// isFlowControlWait reports whether a route leads from a select in the write of an answer to the reader of the HTTP/2 connection:
// the write waits until the client has read and enlarges the flow-control window. A wait for a request's body is at a Cond
// instead.
func isFlowControlWait(route *causeRoute) bool {
	return route.Site != nil && knowledge.Has(route.Site.Func, knowledge.HTTP2Reader) && slices.ContainsFunc(route.via, func(v report.Via) bool {
		isWrite := knowledge.Has(v.Call, knowledge.AnswerWrite) || v.Site != nil && v.Site.CalledFrom != nil && knowledge.Has(v.Site.CalledFrom.Calls, knowledge.AnswerWrite)
		return v.Wait == report.WaitSelect && isWrite
	})
}
