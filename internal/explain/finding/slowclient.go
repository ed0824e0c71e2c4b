package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// otherClientCause replaces the cause of a candidate whose requests wait behind the client of another one.
const otherClientCause = report.CauseName("other-client")

// checkSlowClient is WL2006, slow-client: requests wait for their client to send the body or to read the answer. It is at most
// low, because only that client is delayed, except where one client's slow reading delays the requests of others
// (isBehindOtherClient).
func checkSlowClient(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	v := attr.newVerdict(cand, top)
	v.Cause, v.Confidence, v.MaxSeverity = report.CauseNetwork, 0.95, report.SeverityLow // only the client itself is delayed
	v.Changes = []predict.Change{}
	attr.addSlowMean(&v, "evidence slow-wait-on", cand, top, top.via)
	switch {
	case knowledge.Has(top.Call, knowledge.TLSHandshake):
		v.Title, v.Fix = textOf("title slow-client-handshake"), textOf("fix slow-client-handshake")
	case cand.causeSite.cause == otherClientCause:
		attr.rewriteForOtherClient(&v, cand, top)
	case isFlowControlWait(top) && attr.rewriteForHeldFirst(&v, top, &heldAnswerTexts):
		v.MaxSeverity, v.Changes = "", attr.withoutSite(top)
	case isClientRead(top.Cause) || isFlowControlWait(top):
		v.Title, v.Fix = textOf("title slow-client-read", "site", v.Site), textOf("fix slow-client-read")
	default:
		v.Title, v.Fix = textOf("title slow-client", "site", v.Site), textOf("fix slow-client")
	}
	return v
}

// rewriteForOtherClient rewrites a verdict on requests that wait behind another client: for a place in a channel, or for a goroutine
// that the client holds up, as the reader of a connection that many streams share, or the sender to many subscribers.
func (a *attribution) rewriteForOtherClient(v *Verdict, cand *candidate, top *causeRoute) {
	v.MaxSeverity, v.Changes, v.Queue = "", a.withoutSite(top), &report.Queue{For: textOf("phrase held-up-goroutine")}
	if !isFlowControlWait(top) {
		v.Site = top.Site // where the client's answer is written, also in a library
	}
	v.Title, v.Fix = textOf("title other-client", "wait", top.via[0].Site.OwnLine(), "site", v.Site), textOf("fix other-client", "site", v.Site)
	if l := libraryOfRoute(top); l != nil && l.orderAdvice != "" {
		v.Fix = l.fix(l.orderAdvice)
	} else if send := firstMatch(top.via, func(v *report.Via) bool { return v.Wait == report.WaitChanSend && v.Site != nil }); send != nil {
		v.Fix = textOf("fix other-client-send", "sender", send.Site)
	}
	for route := range each(cand.routes) {
		if wait := &route.via[0]; !v.Queue.Contains(wait) {
			v.Queue.Waits = append(v.Queue.Waits, *wait)
		}
	}
}

// isBehindOtherClient reports whether a route leads to a goroutine that waits for a client to read, which is not that of the waiting
// request: through a full channel, to a goroutine that serves another request, or to one for which several requests wait at once.
func (a *attribution) isBehindOtherClient(route *causeRoute) bool {
	if len(route.via) == 0 || route.via[0].Site == nil {
		return false
	}
	isFull, service := route.via[0].Wait == report.WaitChanSend, a.in.serviceAt(route.Cause, route.via)
	return isFull && isFlowControlWait(route) || isClientRead(route.Cause) && (isFull || isForOtherRequest(service) || service != nil && service.WaitersPerServer >= 2)
}

// isForOtherRequest reports whether the servers that requests wait for serve other requests.
func isForOtherRequest(service *queues.ServiceStats) bool {
	return service != nil && service.OtherRequestShare > threshold.HalfShare
}

// isClientRead reports whether a cause is a wait until a client has read.
func isClientRead(c *report.Cause) bool {
	return c.Kind == "inbound" && (knowledge.Has(c.Call, knowledge.AnswerWrite) || knowledge.Has(c.Call, knowledge.ConnectionWrite))
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
