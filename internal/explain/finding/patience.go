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
	site   *report.Site  // where they wait
	over   *report.Cause // of those whose time was up; nil: it never was
	limit  int64         // for how long the slowest waited
	news   int64         // for how long those waited that got news, in all
	bound  int64         // of that, in waits that something else could have ended
	period int64         // at which there is news; 0: at none
	inLine bool          // they have it one after the other, as turns in a queue
}

func (p *longPoll) owner() candidateKey {
	return candidateKey{code: report.RuleSleep, causeSite: causeSite{cause: pollLeaf, site: p.site.LineKey()}}
}

// pollLeaf is what long polls are spent on: no cause of their own, but one fault if any.
const pollLeaf report.CauseName = "poll"

// readers returns the facts about requests that wait at a line; nil: none were seen.
func (in *Input) readers(at *report.Site) *queues.LongWaits {
	return firstMatch(in.LongWaits, func(r *queues.LongWaits) bool { return r.Site.Meets(at) })
}

// findPatience notes where requests only wait.
func (a *attribution) findPatience() {
	g := a.group
	if g.Kind != report.KindMark && !g.Kind.IsCall() && !(g.Kind == report.KindLoop && a.in.AcceptsConnections) {
		return
	}
	found := map[report.SiteKey]*longPoll{}
	at := func(s *report.Site) *longPoll {
		p := found[s.LineKey()]
		if p == nil {
			p = &longPoll{site: s}
			found[s.LineKey()] = p
		}
		return p
	}
	own, rest := map[*longPoll]int64{}, map[*longPoll]int64{}
	for c, r := range a.routes(g.All()) {
		switch {
		case c.Site == nil:
		case len(r.Via) == 0 && c.Cause == report.CauseSleep && (c.Call == inSelect || strings.HasPrefix(c.Call, "context.")):
			p := at(c.Site)
			p.over = c
			own[p] += r.TotalNS
		case len(r.Via) > 0 && r.Via[0].Site != nil && isHandoverWait(r.Via[0].Wait):
			k := waitKeyOf(&r.Via[0])
			who := a.in.slotWaitsAt(k)
			if isSlotPool(who) || isSemaphoreWait(k) {
				continue
			}
			p := at(r.Via[0].Site)
			p.inLine = p.inLine || a.queueWaits[k]
			p.news += r.TotalNS
			bound := k.kind == report.WaitSelect
			if bound {
				p.bound += r.TotalNS
			}
			if t := a.flushInterval(c); t != nil {
				p.period = t.PeriodNS
				rest[p] += r.TotalNS
			} else if bound && (who != nil && who.OtherRequestShare < 0.5 || c.Cause == report.CauseNetwork && c.Kind == "inbound" || a.mayBeClient(c, r.Via) || c.Cause == report.CauseChan) {
				rest[p] += r.TotalNS
			}
		}
	}
	for key, p := range found {
		least := scale.NearlyAll
		if p.news > 2*p.bound { // nothing else can end the wait: work before its end may be for them
			least = 1 - scale.Little
		}
		r := a.in.readers(p.site)
		if r == nil || r.Batched || p.inLine && p.over == nil || r.HandoverShare > scale.Some || float64(own[p]+p.news) < scale.NearlyAll*float64(g.TotalNS) || float64(rest[p]) < least*float64(p.news) {
			continue
		}
		if r.WokenShare == 0 {
			p.news = 0
		}
		if p.limit = timeOut(g, p.site); p.news > 0 || p.limit >= scale.Patience {
			a.longPolls[key] = p
		}
	}
}

// timeOut returns for how long the slowest requests waited at a line until their time was up, if each did so once and for nearly
// all of its time.
func timeOut(g *report.Group, at *report.Site) (limit int64) {
	for i := range g.Slowest {
		q := &g.Slowest[i]
		longest := int64(0)
		for k := range q.Segments {
			if s := &q.Segments[k]; s.Cause == report.CauseSleep && len(s.Via) == 0 && s.Site != nil && s.Site.LineKey() == at.LineKey() {
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

// polled returns the long poll that a way is a part of.
func (a *attribution) polled(c *report.Cause, via []report.Via) *longPoll {
	at := c.Site
	if len(via) > 0 {
		if !isHandoverWait(via[0].Wait) {
			return nil
		}
		at = via[0].Site
	} else if c.Cause != report.CauseSleep {
		return nil
	}
	for _, p := range a.longPolls {
		if p.site.Meets(at) {
			return p
		}
	}
	return nil
}

// pollVerdict is what WL2001 says of a long poll.
func pollVerdict(attr *attribution, cand *candidate, p *longPoll) Verdict {
	v := Verdict{Won: cand.won, Changes: []predict.Change{}, FixedSeverity: report.SeverityLow, Finding: report.Finding{
		Cause: report.CauseSleep, Site: p.site, Group: attr.group.ID, Share: cand.share, Confidence: 0.5,
		Fix: "nothing, if requests wait there for an event that may come at any time: their latency is then intended; ignore the finding with that reason, or mark only what follows the wait as the request",
	}}
	until := "something arrives"
	if p.over != nil {
		v.Site = nonStdSite(p.over, nil)
		v.addEvidence(measured("requests that timed out", p.over.Requests, "count"))
		if p.limit > 0 {
			v.addEvidence(measured("after", p.limit, "ns"))
			until += fmt.Sprintf(" or %s have passed", words.Brief(p.limit))
		} else {
			until += " or they time out"
		}
	}
	if p.period > 0 {
		v.Title = fmt.Sprintf("requests wait at %s until %s, at intervals of %s: a long poll, or a batch that they join under a lock", place(v.Site), until, words.Brief(p.period))
		v.Fix += "; if they leave work there that is done at that interval, do the work as soon as no other request is waiting to join"
		v.Fact = p.news <= 2*p.bound
		return v
	}
	if p.news > 0 {
		v.Title = fmt.Sprintf("requests wait at %s until %s: a long poll", place(v.Site), until)
		v.Fact, v.Confidence = true, 0.8
		return v
	}
	v.Title = fmt.Sprintf("requests wait at %s until %s have passed: a long poll without news, or a pause", place(v.Site), words.Brief(p.limit))
	v.Fix += "; if nothing can arrive there, make the pause shorter"
	return v
}
