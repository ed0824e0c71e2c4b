package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/report"
)

// checkSlowClient is WL2006, slow-client: requests wait for their client to send or to read.
func checkSlowClient(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	v := attr.newVerdict(cand, top)
	v.Cause, v.Confidence, v.MaxSeverity = report.CauseNetwork, 0.95, report.SeverityLow // only the client itself is delayed
	v.Title = "the server waits for its client to send at " + siteText(v.Site)
	v.addEvidence(measurement("mean wait per slow request, "+goroutineText(top.via), cand.gain.Slow.NS, "ns"), attr.requestCountEvidence(cand, top))
	v.Fix = "read the body before taking anything that other requests need, limit it (http.MaxBytesReader, ReadTimeout), and leave slow clients to a proxy that buffers bodies"
	if top.Call == "net/http.checkConnErrorWriter.Write" || isFlowControlWait(top) {
		v.Title = fmt.Sprintf("the server waits for its client to read the answer at %s", siteText(v.Site))
		v.Fix = "release what other requests need before writing the answer, make it smaller (compress, page), set WriteTimeout, and leave slow clients to a proxy that buffers answers"
	}
	if top.Call == "crypto/tls.(*Conn).HandshakeContext" {
		v.Title = "the server waits for its client's part of a TLS handshake"
		v.Fix = "let clients keep connections and resume sessions (keep-alives on, session tickets enabled): each handshake takes one or two round trips before its first request"
	}
	return v
}

// isFlowControlWait reports whether a handler's Write waits for the flow-control window of HTTP/2, which the client enlarges as
// it reads: the route leads from a select in Write to the connection's reader. A wait for a request's body is a Cond's instead.
func isFlowControlWait(route *causeRoute) bool {
	if route.Site == nil || !strings.HasSuffix(route.Site.Func, "erverConn).readFrames") || len(route.via) == 0 || route.via[0].Wait != report.WaitSelect {
		return false
	}
	return strings.Contains(route.via[0].Call, "esponseWriter).")
}
