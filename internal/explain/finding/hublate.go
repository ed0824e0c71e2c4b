package finding

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A hubWait is the time that a group's requests wait for one hub: a goroutine that several requests wait for at once, such as the
// reader of a shared connection.
type hubWait struct {
	*queues.Hub
	isSender bool // it runs late after it has waited for another request to receive a message, as a subscriber does
	share    float64
	gain     Gain
}

// minDelayedPerRun is how many requests a hub delays each time that it runs late, on average: a goroutine that delays fewer is no hub.
const minDelayedPerRun = 1.3

// hubWaitsOf returns the waits of a group's requests for a P on which a hub runs late, the longest first. A goroutine is a hub if
// it ran late threshold.SmallSample times and delayed minDelayedPerRun requests each time, on average, and is not the goroutine of a
// request.
func hubWaitsOf(in *Input, group *report.Group) (out []*hubWait) {
	for hub := range each(in.Hubs) {
		if hub.LateRuns < threshold.SmallSample || float64(hub.DelayedRequests) < minDelayedPerRun*float64(hub.LateRuns) || len(hub.Sites) == 0 || request.IsServerStart(hub.Start) {
			continue // a goroutine that serves requests is no hub: it delays others only while it holds a lock
		}
		wait := &hubWait{Hub: hub}
		isSend := func(v report.Via) bool { return v.Wait == report.WaitChanSend && hub.Sites[0].Matches(v.Site) }
		isBehindSend := func(c *report.Cause, via []report.Via) bool {
			return slices.ContainsFunc(via, isSend) && in.attributionOf(group).candidateKeyOf(c, via).code == ""
		}
		for c, r := range attributableRoutes(group.All()) {
			wait.isSender = wait.isSender || isBehindSend(c, r.Via) && isForOtherRequest(in.serviceAt(c, r.Via))
		}
		wait.share, wait.gain = gainWithoutPart(group, func(c *report.Cause) float64 {
			switch {
			case wait.hasWait(c) && (isSched(c) || wait.isSender && c.Cause == report.CauseSchedWake) && !isBehindHub(out, c):
				return 1 - ranMarkingPart(c)
			case wait.isSender:
				return ratio(routeTimes(c, isBehindSend))
			}
			return 0
		})
		if wait.share > 0 {
			out = append(out, wait)
		}
	}
	slices.SortStableFunc(out, func(a, b *hubWait) int { return cmp.Compare(b.gain.TotalNS>>10, a.gain.TotalNS>>10) }) // to 1 µs
	return out
}

// hasWait reports whether a cause is a wait for the hub.
func (h *hubWait) hasWait(c *report.Cause) bool {
	return len(c.Via) > 0 && slices.ContainsFunc(h.Sites, func(s *report.Site) bool { return s.Matches(c.Site) })
}

// isBehindHub reports whether a cause is a wait for one of the hubs.
func isBehindHub(hubs []*hubWait, c *report.Cause) bool {
	return slices.ContainsFunc(hubs, func(h *hubWait) bool { return h.hasWait(c) })
}

// checkHubLate is WL1001, hub-late: a goroutine that many requests wait for is ready to run, but waits for a P.
func checkHubLate(in *Input, group *report.Group) (out []Verdict) {
	for _, wait := range hubWaitsOf(in, group) {
		out = append(out, wait.newVerdict(in, group))
	}
	return out
}

// newVerdict returns the verdict about a hub. The evidence names what ran on the Ps while the hub was ready.
func (h *hubWait) newVerdict(in *Input, group *report.Group) Verdict {
	delayedPerRun := float64(h.DelayedRequests) / float64(h.LateRuns)
	v := Verdict{Gain: h.gain, Finding: report.Finding{
		Title: textOf("title hub-late", "start", words.FuncName(h.Start), "requests", fmt.Sprintf("%.1f", delayedPerRun)), Fix: textOf("fix hub-late"),
		Cause: report.CauseSched, Site: h.Sites[0], Group: group.ID, Share: h.share, Confidence: 0.85,
	}}
	if h.isSender {
		v.Title, v.Fix = textOf("title hub-sends", "start", words.FuncName(h.Start), "site", v.Site, "requests", fmt.Sprintf("%.1f", delayedPerRun)), textOf("fix hub-sends", "site", v.Site)
		v.Changes = []predict.Change{}
		if l := libraryOfFunc(v.Site); l != nil && l.orderAdvice != "" {
			v.Fix = l.fix(l.orderAdvice)
		}
	}
	v.addEvidence(evidenceOf("evidence hub-delay", float64(h.LateNS)/float64(h.LateRuns), "ns"), evidenceOf("evidence hub-requests", delayedPerRun, "count"))
	for i, r := range h.RanInstead {
		if i < 2 && r.Site != nil && r.Share >= 0.1 {
			v.addEvidence(evidenceOf("evidence ran-meanwhile", r.Share, "share", "function", words.FuncName(r.Site.Func)))
		}
	}
	if len(h.RanInstead) > 0 && h.RanInstead[0].Site != nil {
		// The goroutines that ran instead may be a herd.
		if r := h.RanInstead[0]; r.Share >= threshold.HalfShare && !h.isSender {
			v.Fix = textOf("fix hub-late-behind", "function", words.FuncName(r.Site.Func), "share", words.Percent(r.Share))
		}
		t := occupant{site: h.RanInstead[0].Site, share: h.RanInstead[0].Share}
		t.startFunc, _ = startOfRunsIn(in.Process, t.site.Func)
		if herd := herdOf(in.Process, &t); herd != nil {
			v.addEvidence(evidenceOf("evidence hub-herd", herd.Largest, "count", "start", words.FuncName(herd.Start)))
		}
	}
	if h.PollGapNS*20 > h.LateNS {
		v.addEvidence(evidenceOf("evidence hub-poll-gap", float64(h.PollGapNS)/float64(h.LateRuns), "ns"))
	}
	network, _ := gainWithout(group, isNetwork)
	v.addEvidence(evidenceOf("evidence hub-longest-delay", h.MaxNS, "ns"), evidenceOf("evidence hub-late-runs", h.LateRuns, "count"), evidenceOf("evidence hub-network", network, "share"))
	return v
}
