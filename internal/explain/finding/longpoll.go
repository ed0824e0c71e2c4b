package finding

import (
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// A request of a long poll is not late, however long it waits for an event. It hands no work over before the wait, except that it
// subscribes to the events (see queues.LongWaits), and then spends nearly all of its time in one wait:
//
//   - in a select or for a context, which bound the wait, until a goroutine that was idle or did unrelated work has an event;
//   - in any wait, until the next tick of a periodic activity. Work that the request left there under a lock would be
//     invisible, so a batch is neither excluded nor reported;
//   - until a time-out. A time-out alone does not distinguish a long poll from a pause, so it must be at least a second.

// A longPoll is an intended wait for an event.
type longPoll struct {
	site       *report.Site  // where requests wait
	timedOut   *report.Cause // the waits that ended by time-out; nil: none
	limitNS    int64         // longest wait until a time-out
	eventNS    int64         // total wait of the requests that got an event
	selectNS   int64         // part of eventNS in selects, which something else could have ended
	timeoutNS  int64         // total wait until a time-out
	intendedNS int64         // part of eventNS that is surely for an event
	wokenNS    int64         // another part, which requests end that never wait there themselves
	periodNS   int64         // period of the events; 0: not periodic
	isQueue    bool          // requests get events one after another, as in a queue
}

// key returns the key of the candidate that has all routes of the long poll.
func (p *longPoll) key() candidateKey {
	return candidateKey{code: report.RuleSleep, causeSite: causeSite{cause: pollCause, site: p.site.LineKey()}}
}

// pollCause is the cause of long polls in a candidate's key. It is no cause of a report, but makes all waits of one
// long poll one fault.
const pollCause report.CauseName = "poll"

// longWaitsAt returns the facts about requests that spend most of their time in one wait at this line; nil if there are none.
func (in *Input) longWaitsAt(site *report.Site) *queues.LongWaits {
	return firstMatch(in.LongWaits, func(r *queues.LongWaits) bool { return r.Site.Matches(site) })
}

// findLongPolls fills longPolls with the lines at which requests wait on purpose for an event (see above), if nearly all time of
// the group's requests is such a wait.
func (a *attribution) findLongPolls() {
	g := a.group
	if g.Kind != report.KindMark && !g.Kind.IsCall() && !(g.Kind == report.KindLoop && a.in.AcceptsConnections) {
		return
	}
	polls := map[report.SiteKey]*longPoll{}
	pollAt := func(s *report.Site) *longPoll {
		return entry.GetOrMake(polls, s.LineKey(), func() *longPoll { return &longPoll{site: s} })
	}
	for cause, r := range a.routes(g.All()) {
		switch {
		case cause.Site == nil:
		case len(r.Via) == 0 && cause.Cause == report.CauseSleep && (knowledge.Has(cause.Call, knowledge.SelectWait) || knowledge.Has(cause.Call, knowledge.ContextDeadline)):
			poll := pollAt(cause.Site)
			poll.timedOut = cause
			poll.timeoutNS += r.TotalNS
		case len(r.Via) > 0 && r.Via[0].Site != nil && isHandoverWait(r.Via[0].Wait):
			wait := waitKeyOf(&r.Via[0])
			slotWaits := a.in.slotWaitsAt(wait)
			// A library's timer (a batch's, a polling interval) delays its work for these requests; it is no event. Neither is a client that
			// reads.
			if isSlotPool(slotWaits) || isFlowControlWait(&causeRoute{Cause: cause, via: r.Via}) || isSemaphoreWait(wait) || cause.Cause == report.CauseSleep && cause.Site.Module != "" {
				continue
			}
			poll := pollAt(r.Via[0].Site)
			poll.isQueue = poll.isQueue || a.queueWaits[wait]
			poll.eventNS += r.TotalNS
			isSelect := wait.kind == report.WaitSelect
			if isSelect {
				poll.selectNS += r.TotalNS
			}
			if t := a.flushInterval(cause); t != nil {
				poll.periodNS = t.PeriodNS
				poll.intendedNS += r.TotalNS
			} else if isSelect && (slotWaits != nil && slotWaits.OtherRequestShare < 0.5 || cause.Cause == report.CauseNetwork && cause.Kind == "inbound" || a.mayBeClient(cause, r.Via) || cause.Cause == report.CauseChan) {
				poll.intendedNS += r.TotalNS
			} else if isSelect && slotWaits != nil && slotWaits.FormerWaiterShare < threshold.NoticeableShare {
				poll.wokenNS += r.TotalNS
			}
		}
	}
	for key, poll := range polls {
		// If many requests end without an event, those that another request wakes, which never waits there itself, had one.
		if poll.timedOut != nil && float64(poll.timedOut.Requests) >= threshold.NoticeableShare*float64(g.Count) {
			poll.intendedNS += poll.wokenNS
		}
		minShare := threshold.NearlyAllShare
		if poll.eventNS > 2*poll.selectNS { // nothing else can end the wait: the work before its end may be for these requests
			minShare = 1 - threshold.MinorShare
		}
		r := a.in.longWaitsAt(poll.site)
		isOneKind := float64(poll.timeoutNS+poll.eventNS) >= threshold.NearlyAllShare*float64(g.TotalNS) // a loop may serve several kinds of request
		if r == nil || !isOneKind && (g.Kind != report.KindLoop || r.TimeShare < threshold.NearlyAllShare) {
			continue
		}
		if r.Batched || poll.isQueue && poll.timedOut == nil || r.HandoverShare > threshold.NoticeableShare && !a.in.isSubscription(poll.site) || float64(poll.intendedNS) < minShare*float64(poll.eventNS) {
			continue
		}
		if r.WokenShare == 0 {
			poll.eventNS = 0
		}
		if poll.limitNS = longestTimeout(g, poll.site); poll.eventNS > 0 || poll.limitNS >= threshold.PatienceNS {
			a.longPolls[key] = poll
		}
	}
}

// longestTimeout returns the longest wait at a line, in ns, that a timer ended in one of the group's slowest requests. It
// returns 0 unless each of the slowest requests spent nearly all of its time in one such wait.
func longestTimeout(g *report.Group, site *report.Site) (limit int64) {
	for q := range each(g.Slowest) {
		longest := int64(0)
		for s := range each(q.Segments) {
			wait := s.Site
			if len(s.Via) == 1 { // for the function of a timer
				wait = s.Via[0].Site
			}
			if s.Cause == report.CauseSleep && len(s.Via) <= 1 && wait != nil && wait.LineKey() == site.LineKey() {
				longest = max(longest, s.DurationNS)
			}
		}
		if float64(longest) < threshold.NearlyAllShare*float64(q.LatencyNS) {
			return 0
		}
		limit = max(limit, longest)
	}
	return limit
}

// longPollOf returns the long poll that a route belongs to; nil if there is none.
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
		if p.site.Matches(site) {
			return p
		}
	}
	return nil
}

// pollVerdict returns the verdict of WL2001 on a long poll: a fact if events end the waits, low if only time-outs do, or only a
// periodic activity.
func pollVerdict(attr *attribution, cand *candidate, poll *longPoll) Verdict {
	v := Verdict{Gain: cand.gain, Changes: []predict.Change{}, FixedSeverity: report.SeverityLow, Finding: report.Finding{
		Cause: report.CauseSleep, Site: poll.site, Group: attr.group.ID, Share: cand.share, Confidence: 0.5, Fix: textOf("fix long-poll"),
	}}
	condition, limit := textOf("phrase long-poll-until-event"), words.Brief(poll.limitNS)
	if poll.timedOut != nil {
		v.Site = nonStdSite(poll.timedOut, nil)
		v.addEvidence(evidenceOf("evidence long-poll-timed-out", poll.timedOut.Requests, "count"))
		if poll.limitNS > 0 {
			v.addEvidence(evidenceOf("evidence long-poll-limit", poll.limitNS, "ns"))
			condition = textOf("phrase long-poll-until-limit", "limit", limit)
		} else {
			condition = textOf("phrase long-poll-until-timeout")
		}
	}
	if poll.periodNS > 0 {
		v.Title = textOf("title long-poll-periodic", "site", v.Site, "condition", condition, "period", words.Brief(poll.periodNS))
		v.Fix = textOf("fix long-poll-periodic", "fix", v.Fix)
		v.Fact = poll.eventNS <= 2*poll.selectNS
		return v
	}
	if poll.eventNS > 0 {
		v.Title = textOf("title long-poll", "site", v.Site, "condition", condition)
		v.Fact, v.Confidence = true, 0.8
		return v
	}
	v.Title = textOf("title long-poll-without-event", "site", v.Site, "limit", limit)
	v.Fix = textOf("fix long-poll-without-event", "fix", v.Fix)
	return v
}

// nextRequestCause is the cause of waits for other requests in a candidate's key. It is no cause of a report.
const nextRequestCause report.CauseName = "next-request"

// nextRequestKey returns the key of the candidate for waits of requests that have handed work over, and most of the time wait until
// another request comes, which brings no event for them; else until a timer fires. The code is empty for other waits, for queues, and
// if requests handed nothing over, as in a long poll or a stream.
func (a *attribution) nextRequestKey(c *report.Cause, via []report.Via) candidateKey {
	if len(via) == 0 || via[0].Site == nil || c.Cause != report.CauseSleep && !verdict.IsNextRequest(c, via) {
		return candidateKey{}
	}
	wait, waits := waitKeyOf(&via[0]), a.in.longWaitsAt(via[0].Site)
	_, isContended := a.contendedWait(via)
	if sleep := a.heaviestSleeps[wait]; a.nextRequestNS[wait] == 0 || sleep != nil && sleep.routeNS >= a.nextRequestNS[wait] ||
		isContended || waits == nil || waits.HandoverShare < threshold.HalfShare || a.in.isStream(c, via[0].Site) {
		return candidateKey{}
	}
	return candidateKey{code: report.RuleSleep, causeSite: causeSite{nextRequestCause, via[0].Site.LineKey()}}
}

// nextRequestVerdict returns the verdict of WL2001 on requests that wait until another request comes.
func nextRequestVerdict(attr *attribution, cand *candidate, top *causeRoute) Verdict {
	v := attr.newVerdict(cand, top)
	v.Cause, v.Site, v.Confidence, v.Changes = report.CauseChan, top.via[0].Site, 0.7, attr.withoutSites(each(cand.routes))
	v.Title, v.Fix = textOf("title next-request", "site", v.Site), textOf("fix next-request", "site", v.Site.OwnLine())
	return v
}
