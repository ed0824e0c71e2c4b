package finding

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// In a long poll no request is late, whenever the news comes. A request that waits for news hands nothing over before (see
// queues.Readers), and then spends nearly all of its time in one wait:
//
//   - in a select or for a context, which bound it, until a goroutine has news that had rested, or does work of its own;
//   - in any wait, until the next turn of something that happens at intervals. Work that the request left there under a lock would not
//     be seen, so a batch is neither ruled out nor blamed;
//   - until its own time is up. That alone does not distinguish a long poll from a pause, so it must be a second or more.

// A longPoll is a wait on purpose.
type longPoll struct {
	site     *report.Site  // where they wait
	timedOut *report.Cause // of those whose time was up; nil: it never was
	limitNS  int64         // for how long the slowest waited
	newsNS   int64         // for how long those waited that got news, in all
	boundNS  int64         // of that, in waits that something else could have ended
	periodNS int64         // at which there is news; 0: at none
	isQueue  bool          // they have it one after the other, as turns in a queue
}

func (p *longPoll) key() candidateKey {
	return candidateKey{code: report.RuleSleep, causeSite: causeSite{cause: pollCause, site: p.site.LineKey()}}
}

// pollCause is what long polls are spent on: no cause of their own, but one fault if any.
const pollCause report.CauseName = "poll"

// longWaitsAt returns the facts about requests that wait at a line; nil: none were seen.
func (in *Input) longWaitsAt(site *report.Site) *queues.LongWaits {
	return firstMatch(in.LongWaits, func(r *queues.LongWaits) bool { return r.Site.Meets(site) })
}

// findLongPolls notes where requests only wait.
func (a *attribution) findLongPolls() {
	g := a.group
	if g.Kind != report.KindMark && !g.Kind.IsCall() && !(g.Kind == report.KindLoop && a.in.AcceptsConnections) {
		return
	}
	polls := map[report.SiteKey]*longPoll{}
	pollAt := func(s *report.Site) *longPoll {
		p := polls[s.LineKey()]
		if p == nil {
			p = &longPoll{site: s}
			polls[s.LineKey()] = p
		}
		return p
	}
	timeoutNS, intendedNS := map[*longPoll]int64{}, map[*longPoll]int64{}
	for c, r := range a.routes(g.All()) {
		switch {
		case c.Site == nil:
		case len(r.Via) == 0 && c.Cause == report.CauseSleep && (c.Call == selectCall || strings.HasPrefix(c.Call, "context.")):
			p := pollAt(c.Site)
			p.timedOut = c
			timeoutNS[p] += r.TotalNS
		case len(r.Via) > 0 && r.Via[0].Site != nil && isHandoverWait(r.Via[0].Wait):
			wait := waitKeyOf(&r.Via[0])
			slotWaits := a.in.slotWaitsAt(wait)
			if isSlotPool(slotWaits) || isSemaphoreWait(wait) {
				continue
			}
			p := pollAt(r.Via[0].Site)
			p.isQueue = p.isQueue || a.queueWaits[wait]
			p.newsNS += r.TotalNS
			isBound := wait.kind == report.WaitSelect
			if isBound {
				p.boundNS += r.TotalNS
			}
			if t := a.flushInterval(c); t != nil {
				p.periodNS = t.PeriodNS
				intendedNS[p] += r.TotalNS
			} else if isBound && (slotWaits != nil && slotWaits.OtherRequestShare < 0.5 || c.Cause == report.CauseNetwork && c.Kind == "inbound" || a.mayBeClient(c, r.Via) || c.Cause == report.CauseChan) {
				intendedNS[p] += r.TotalNS
			}
		}
	}
	for key, p := range polls {
		minShare := scale.NearlyAll
		if p.newsNS > 2*p.boundNS { // nothing else can end the wait: work before its end may be for them
			minShare = 1 - scale.Little
		}
		r := a.in.longWaitsAt(p.site)
		if r == nil || r.Batched || p.isQueue && p.timedOut == nil || r.HandoverShare > scale.Some || float64(timeoutNS[p]+p.newsNS) < scale.NearlyAll*float64(g.TotalNS) || float64(intendedNS[p]) < minShare*float64(p.newsNS) {
			continue
		}
		if r.WokenShare == 0 {
			p.newsNS = 0
		}
		if p.limitNS = longestTimeout(g, p.site); p.newsNS > 0 || p.limitNS >= scale.Patience {
			a.longPolls[key] = p
		}
	}
}

// longestTimeout returns for how long the slowest requests waited at a line until their time was up, if each did so once and for nearly
// all of its time.
func longestTimeout(g *report.Group, site *report.Site) (limit int64) {
	for i := range g.Slowest {
		q := &g.Slowest[i]
		longest := int64(0)
		for k := range q.Segments {
			if s := &q.Segments[k]; s.Cause == report.CauseSleep && len(s.Via) == 0 && s.Site != nil && s.Site.LineKey() == site.LineKey() {
				longest = max(longest, s.DurationNS)
			}
		}
		if float64(longest) < scale.NearlyAll*float64(q.LatencyNS) {
			return 0
		}
		limit = max(limit, longest)
	}
	return limit
}

// longPollOf returns the long poll that a way is a part of.
func (a *attribution) longPollOf(c *report.Cause, via []report.Via) *longPoll {
	site := c.Site
	if len(via) > 0 {
		if !isHandoverWait(via[0].Wait) {
			return nil
		}
		site = via[0].Site
	} else if c.Cause != report.CauseSleep {
		return nil
	}
	for _, p := range a.longPolls {
		if p.site.Meets(site) {
			return p
		}
	}
	return nil
}

// pollVerdict is what WL2001 says of a long poll.
func pollVerdict(attr *attribution, cand *candidate, p *longPoll) Verdict {
	v := Verdict{Gain: cand.gain, Changes: []predict.Change{}, FixedSeverity: report.SeverityLow, Finding: report.Finding{
		Cause: report.CauseSleep, Site: p.site, Group: attr.group.ID, Share: cand.share, Confidence: 0.5,
		Fix: "nothing, if requests wait there for an event that may come at any time: their latency is then intended; ignore the finding with that reason, or mark only what follows the wait as the request",
	}}
	condition := "something arrives"
	if p.timedOut != nil {
		v.Site = nonStdSite(p.timedOut, nil)
		v.addEvidence(measurement("requests that timed out", p.timedOut.Requests, "count"))
		if p.limitNS > 0 {
			v.addEvidence(measurement("after", p.limitNS, "ns"))
			condition += fmt.Sprintf(" or %s have passed", words.Brief(p.limitNS))
		} else {
			condition += " or they time out"
		}
	}
	if p.periodNS > 0 {
		v.Title = fmt.Sprintf("requests wait at %s until %s, at intervals of %s: a long poll, or a batch that they join under a lock", siteText(v.Site), condition, words.Brief(p.periodNS))
		v.Fix += "; if they leave work there that is done at that interval, do the work as soon as no other request is waiting to join"
		v.Fact = p.newsNS <= 2*p.boundNS
		return v
	}
	if p.newsNS > 0 {
		v.Title = fmt.Sprintf("requests wait at %s until %s: a long poll", siteText(v.Site), condition)
		v.Fact, v.Confidence = true, 0.8
		return v
	}
	v.Title = fmt.Sprintf("requests wait at %s until %s have passed: a long poll without news, or a pause", siteText(v.Site), words.Brief(p.limitNS))
	v.Fix += "; if nothing can arrive there, make the pause shorter"
	return v
}
