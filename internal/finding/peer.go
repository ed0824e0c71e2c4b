package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/report"
)

func peerRule() Rule {
	return Rule{
		Code: report.RuleSlowPeer, Name: "slow-peer",
		Summary: "requests wait for the answer of a peer over the network",
		Doc: Doc{
			Means: "Requests wait for a peer that they have asked over the network: a database, another service, a name server. What the peer, the network between, and the kernels on both sides took " +
				"cannot be told apart from here.",
			Measured: "The goroutine that the request depends on waits in the network poller for a connection that is not its client's. The end of such a wait during which nobody polled is sched-poll instead, so the " +
				"share is what the data really was not there for. The site is the nearest line that is not the standard library's; via leads there. Confidence is 0.9, less by the part of sched-poll beside it.",
			Before: "for _, id := range ids {\n\tv, err := c.Get(ctx, id)",
			After:  "vs, err := c.GetAll(ctx, ids) // or errgroup: all at once",
			Wrong:  "Where the wait is for something that the peer sends when it wants to (a subscription, a long poll). Retransmissions on the way look the same: record with --pid on the service's host and WL2008 tells.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleSlowPeer, func(cl *claims, c *claim) {
				v := peerVerdict(cl, c)
				v.Evidence = append(v.Evidence, networkEvidence(in.Report.Host)...)
				out = append(out, v)
			})
			return out
		},
	}
}

func peerVerdict(cl *claims, c *claim) Verdict {
	top := &c.parts[0]
	what, fix := "a peer's answer", "ask the peer less often or for several things at once, ask in parallel, or find out there why it is slow"
	if l := libraryOf(top); l != nil && l.peer != "" {
		fix = "in " + l.name + ": " + l.peer
	}
	switch call := top.Call; {
	case isDNS(call) || top.Site != nil && isDNS(top.Site.Func):
		what, fix = "a name server", "keep connections open so that names are looked up less often, or remember addresses; look why the name server is slow (search domains and ndots ask it several times)"
	case strings.HasPrefix(call, "net.(*Dialer)."), strings.Contains(call, "dial"):
		what, fix = "a connection to be opened", "keep connections and use them again (read answers to their end, raise MaxIdleConnsPerHost)"
	case strings.HasPrefix(call, "crypto/tls."):
		what, fix = "a TLS handshake", "keep connections and use them again, or resume sessions (ClientSessionCache)"
	}
	gap := weighGap(cl.g)
	return Verdict{Won: c.won, Changes: halfOf(top.Cause), Finding: report.Finding{
		Title: fmt.Sprintf("requests wait for %s at %s", what, place(users(top.Cause, top.via))), Cause: report.CauseNetwork,
		Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share, Confidence: 0.9 * (1 - min(0.5, gap)),
		Evidence: append([]report.Evidence{
			{Text: "mean wait of a slow request, " + onWhose(top.via), Value: float64(c.won.SlowNS), Unit: "ns"},
			cl.met(c, top, "waited"),
		}, callEvidence(c, top)...),
		Fix: fix,
	}}
}

// weighGap is the share of a group's time in which data may have been there
// without anybody looking.
func weighGap(g *report.Group) float64 {
	share, _ := Weigh(g, func(c *report.Cause) bool { return c.Cause == report.CauseSchedPoll })
	return share
}

// callEvidence names the library functions at either end of a wait.
func callEvidence(c *claim, p *part) []report.Evidence {
	var out []report.Evidence
	if s := c.slowPart(p); s != nil {
		p = s
	}
	if call := inCall(p.Call); call != "" {
		out = append(out, report.Evidence{Text: "in " + call + ": mean of those requests", Value: float64(p.TotalNS) / float64(max(p.Requests, 1)), Unit: "ns"})
	}
	return out
}

func isDNS(fn string) bool {
	return strings.HasPrefix(fn, "net.(*Resolver).") || strings.HasPrefix(fn, "net.cgoLookup") || strings.HasPrefix(fn, "net._C") || strings.HasPrefix(fn, "net.Lookup") ||
		strings.HasPrefix(fn, "net.doBlockingWithCtx")
}
