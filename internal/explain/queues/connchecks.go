package queues

import "github.com/whylate/whylate/internal/knowledge"

// connCheckNS returns how long the answers to calls take that check a connection. What opens one is no check.
func (p *workerSum) connCheckNS(calls *requestCalls) (ns int64) {
	if sites := p.stage.Sites; !sites.HasRole(calls.stack, knowledge.ConnectionCheck) || sites.HasRole(calls.stack, knowledge.Dial) {
		return 0
	}
	return calls.AnswerNS - calls.ConnOpenNS
}

// usesPeer reports whether the request makes calls that neither check nor open a connection: else the check is its purpose.
func (p *workerSum) usesPeer() bool {
	return p.callIndex(func(c *requestCalls) bool { return c.AnswerNS > c.ConnOpenNS+p.connCheckNS(c) }) >= 0
}
