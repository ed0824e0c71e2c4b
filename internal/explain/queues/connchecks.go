package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A connCheckSum adds up calls that only check a connection. The fields are those of PeerCalls.
type connCheckSum struct {
	requests, ns int64
	site         tracefmt.FrameID
}

// add adds another sum, multiplied by a weight.
func (s *connCheckSum) add(addend *connCheckSum, weight int64) {
	s.requests, s.ns, s.site = s.requests+addend.requests*weight, s.ns+addend.ns*weight, max(s.site, addend.site)
}

// connCheckNS returns how long the answers to calls take that check a connection. What opens one is no check.
func (p *workerSum) connCheckNS(calls *requestCalls) (ns int64) {
	if sites := p.stage.Sites; !sites.HasRole(calls.stack, knowledge.ConnectionCheck) || sites.HasRole(calls.stack, knowledge.Dial) {
		return 0
	}
	return calls.answerNS - calls.connOpens.ns
}

// addConnCheck adds calls to the sum of their request, if they check a connection.
func (p *workerSum) addConnCheck(sum *connCheckSum, calls *requestCalls) {
	if ns := p.connCheckNS(calls); ns > 0 {
		sum.requests, sum.ns, sum.site = 1, sum.ns+ns, p.stage.Sites.CallerOf(calls.stack, knowledge.ConnectionCheck)
	}
}

// usesPeer reports whether a request makes calls that neither check nor open a connection: else the check is its purpose.
func (p *workerSum) usesPeer(list []requestCalls) bool {
	return slices.ContainsFunc(list, func(c requestCalls) bool { return c.answerNS > c.connOpens.ns+p.connCheckNS(&c) })
}
