package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/report"
)

func clientRule() Rule {
	return Rule{
		Code: report.RuleSlowClient, Name: "slow-client",
		Summary: "requests wait for their client to send or to read",
		Doc: Doc{
			Means: "The server waits for its own client: for the rest of a request's body, or for room to write the answer because the client, or the network to " +
				"it, is slow to take it. The service itself is not late.",
			Measured: "The request's goroutine waits in the network poller for the connection on which the request arrived (cause network, kind inbound): in Read " +
				"of the body, in Write of the response, or in a TLS handshake. In HTTP/2 the connection's reader waits for the client, and the request waits " +
				"for that reader: in a select in Write, until the client enlarges the flow-control window. Confidence is 0.95. Severity is low at most: nobody but " +
				"the client waits for it, and others that wait for what the request holds meanwhile have findings of their own.",
			Before: "io.Copy(w, report) // a handler that holds a lock or a connection meanwhile",
			After:  "read what is needed first, release what others need, then write; set ReadTimeout and WriteTimeout",
			Wrong:  "For intentionally large uploads and downloads, and for streams.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleSlowClient, func(cl *claims, c *claim) { out = append(out, clientVerdict(cl, c)) })
			return out
		},
	}
}

func clientVerdict(cl *claims, c *claim) Verdict {
	top := &c.parts[0]
	f := report.Finding{
		Title: "the server waits for its client to send at " + place(users(top.Cause, top.via)), Cause: report.CauseNetwork,
		Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.95,
		Evidence: []report.Evidence{
			{Text: "mean wait per slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			cl.met(c, top, "have this wait"),
		},
		Fix: "read the body before taking anything that other requests need, limit it (http.MaxBytesReader, ReadTimeout), and leave slow clients to a proxy that buffers bodies",
	}
	if top.Call == "net/http.checkConnErrorWriter.Write" || isWindow(top) {
		f.Title = fmt.Sprintf("the server waits for its client to read the answer at %s", place(f.Site))
		f.Fix = "release what other requests need before writing the answer, make it smaller (compress, page), set WriteTimeout, and leave slow clients to a proxy that buffers answers"
	}
	if top.Call == "crypto/tls.(*Conn).HandshakeContext" {
		f.Title = "the server waits for its client's part of a TLS handshake"
		f.Fix = "let clients keep connections and resume sessions (keep-alives on, session tickets enabled): each handshake takes one or two round trips before its first request"
	}
	return Verdict{Won: c.won, Finding: f, Changes: cl.halfOf(top.Cause), Most: report.SeverityLow} // nobody but the client itself waits for it
}

// isWindow reports whether a way leads from a Write of an HTTP/2 handler to its connection's reader: the write waits for
// the window of flow control, which the client makes larger as it reads. The wait for a body is a Cond's.
func isWindow(p *part) bool {
	if p.Site == nil || !strings.HasSuffix(p.Site.Func, "erverConn).readFrames") || len(p.via) == 0 || p.via[0].Wait != report.WaitSelect {
		return false
	}
	return strings.Contains(p.via[0].Call, "esponseWriter).")
}
