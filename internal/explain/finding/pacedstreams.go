package finding

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// streamCause is the cause of a stream's pace in a candidate's key. It is no cause of a report, but makes all waits of
// one stream one fault.
const streamCause report.CauseName = "stream"

// isStream reports whether requests that wait at a line repeatedly, for a cause, write to their client between these waits: mostly, or,
// as not every tick of a timer finds something to send, often.
func (in *Input) isStream(c *report.Cause, site *report.Site) bool {
	leastShare := threshold.HalfShare
	if c.Cause == report.CauseSleep {
		leastShare = threshold.MajorShare
	}
	return slices.ContainsFunc(in.Streams, func(s queues.Stream) bool { return s.WriteShare >= leastShare && s.Site.Matches(site) })
}

// findStreamPaces adds to streamPaces the sleeps of other goroutines that pace a stream of requests, if the group's iterations may be
// those of such a goroutine: it sends the parts to the requests' goroutines, which report the pace.
func (a *attribution) findStreamPaces() {
	if a.group.Kind != report.KindLoop || len(a.in.Streams) == 0 {
		return
	}
	for i := range a.in.Report.Groups {
		for c, r := range attributableRoutes(a.in.Report.Groups[i].All()) {
			if c.Cause == report.CauseSleep && len(r.Via) > 0 && a.in.isStream(c, r.Via[0].Site) {
				a.streamPaces[c.Site.Key()] = true
			}
		}
	}
}

// streamRule returns the rule that reports a cause, reached by the wait chain via, when requests wait for it between the parts
// of a stream that they write to their client, which the caller has checked by Input.isStream: WL2001 for the pace of a timer,
// WL2005 for the parts of a peer's answer, whichever goroutine reads them. It returns "" for other causes, and for requests that
// call the peer for each part: they are slow because of the calls.
func (a *attribution) streamRule(c *report.Cause, via []report.Via) report.RuleCode {
	switch {
	case c.Cause == report.CauseSleep:
		return report.RuleSleep
	case c.Cause == report.CauseNetwork && c.Kind != "inbound" && (len(via) == 0 || isHandoverWait(via[0].Wait)):
		if calls := a.peerCallsAt(&causeRoute{Cause: c, via: via}); calls != nil && calls.Calls < threshold.Repeats*calls.Requests {
			return report.RuleSlowPeer
		}
	}
	return ""
}

// streamVerdict returns the fact that requests are streams, which last for as long as they send. There is no prediction, because
// the client receives each part when it is sent.
func streamVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	v := attr.newVerdict(cand, top)
	v.Confidence, v.Fact, v.Changes = 0.8, true, []predict.Change{}
	if v.Site = nonStdSite(top.Cause, nil); len(top.via) > 0 {
		v.Site = top.via[0].Site
	}
	v.Title, v.Fix = textOf("title stream", "site", v.Site), textOf("fix stream")
	if top.Cause.Cause == report.CauseNetwork {
		v.Title, v.Fix = textOf("title peer-stream", "site", v.Site), textOf("fix peer-stream")
	}
	attr.addSlowMean(&v, "evidence slow-mean-on", cand, top, nil)
	return v
}
