package finding

import (
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// flowCause replaces the cause of a candidate whose requests wait until the peer allows more bytes of their bodies.
const flowCause = report.CauseName("flow-control")

// flowVerdict returns the verdict on waits for the flow control of HTTP/2. A request that has sent nothing of its body waits for the
// connection, of which others have used what the peer allows: those that are woken together with it.
func flowVerdict(attr *attribution, cand *candidate) Verdict {
	top := &cand.routes[0]
	v := attr.newVerdict(cand, top)
	v.Changes = []predict.Change{predict.Remove(report.CauseNetwork, predict.SiteText(top.Site.LineKey().Site(), report.CauseNetwork))}
	v.Title, v.Fix, v.ChangeText = textOf("title flow-control", "site", v.Site), textOf("fix flow-control"), textOf("phrase change-no-flow-control")
	attr.addSlowMean(&v, "evidence slow-wait-on", cand, top, top.via)
	held := firstMatch(attr.in.HeldBodies, func(h *queues.HeldBody) bool { return len(top.via) > 0 && h.Site.Matches(top.via[0].Site) })
	if held == nil || held.FirstShare < threshold.HalfShare {
		return v
	}
	v.InService = true // it can send over other connections
	v.addEvidence(evidenceOf("evidence body-unsent", held.FirstShare, "share"))
	if held.With == nil || held.WithShare < threshold.MajorShare {
		v.Title, v.Fix = textOf("title flow-control-of-connection", "site", v.Site), textOf("fix flow-control-of-connection")
		return v
	}
	v.addEvidence(evidenceOf("evidence held-together", held.WithShare, "share", "with", held.With))
	v.Title, v.Fix = textOf("title flow-control-behind", "site", v.Site, "with", held.With), textOf("fix flow-control-behind", "with", held.With)
	return v
}
