package finding

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/report"
)

// One fault has several symptoms: a slow call under a lock is a slow call for the goroutine that holds the lock, and a wait for
// the lock for all others. To report it once, each route to each cause of a group is attributed to one candidate, and so to one
// rule:
//
//   - Time of the collector, the scheduler or the kernel is no wait: it belongs to WL1, WL3 and WL4, whatever led to it. Neither is
//     time behind a goroutine of a herd that Broadcast wakes (isInHerd).
//   - Time behind a lock or a sync.Once belongs to a lock convoy (WL2002), whatever the holder did.
//   - Time behind a channel, select or Cond at which requests queue for the other side belongs to a pool that is too small
//     (WL2003).
//   - Time at the same site without a queue before it belongs to that convoy or pool as well. Where the queue is by far the
//     smaller part (see siteTime.isMainlyQueued), all of the time belongs to the rule of the site.
//   - The lock of an os.File or a log.Logger was not chosen by the service: time behind it belongs to the rule of its cause.
//   - A goroutine that serves many requests is at times woken by one of them. The route of another request then leads to the
//     reason why the waking request did not come earlier: its client was idle. If a sleep also ends that wait (the interval of
//     a batch), the time belongs to the sleep, otherwise to no rule.
//   - The wait of a WebSocket's handler for its client's next message belongs to no rule.
//   - A long poll is no delay (see longpoll.go).
//   - A sleep, timer or limiter that paces a stream delays no request.
//   - All other time belongs to the rule of its cause: sleep (WL2001, WL2004), network (WL2005, WL2006), syscall (WL2007).

// A waitKey identifies a wait by its kind, call and line.
type waitKey struct {
	kind report.WaitKind
	call string
	site report.SiteKey
}

// waitKeyOf returns the key of a wait. It leaves out from where a dependency was called: all callers share its lock or pool.
func waitKeyOf(v *report.Via) waitKey {
	return waitKey{kind: v.Wait, call: v.Call, site: v.Site.LineKey()}
}

// A causeSite is a cause at a site. For a cause in a dependency it is the service's line that called the dependency: one call
// may wait at several lines of the dependency, but there is one line to change.
type causeSite struct {
	cause report.CauseName
	site  report.SiteKey
}

// causeSiteOf returns a cause with the line of the service that leads to its site. Network waits for clients have the cause
// "inbound", and those for flow control flowCause, so that they differ from waits for answers. A closure's name has no number: the
// compiler copies the closure when it inlines the function around it.
func causeSiteOf(c *report.Cause) causeSite {
	site := causeSite{cause: c.Cause, site: c.Site.OwnLine().Key()}
	site.site.Func = strings.TrimRight(site.site.Func, "0123456789")
	switch {
	case c.Cause == report.CauseNetwork && c.Kind == "inbound":
		site.cause = "inbound"
	case verdict.KindOf(c) == verdict.FlowControl:
		site.cause = flowCause
	}
	return site
}

// A candidateKey identifies a candidate: the rule, and the wait or site that its finding would name.
type candidateKey struct {
	code      report.RuleCode
	wait      waitKey   // the contended wait, for WL2002 and WL2003
	causeSite causeSite // for all other rules
}

// An attribution divides the time of one group among candidates: each route to a cause belongs to one candidate, or to none. The
// find functions fill the maps, in the order of attributionOf.
type attribution struct {
	in             *Input
	group          *report.Group
	queueWaits     map[waitKey]bool             // waits at channels, selects and Conds at which requests queue
	contendedSites map[causeSite]waitKey        // sites whose time without a queue belongs to that contended wait as well
	minorWaits     map[waitKey]bool             // contended waits that are not the fault
	canonicalWaits map[waitKey]waitKey          // of contended waits for the same site, the one that represents all
	fixedSleeps    map[report.SiteKey]bool      // sleeps of a dependency on the path of nearly every request
	nextRequestNS  map[waitKey]int64            // by a request's first wait, the time in it until another request came
	heaviestSleeps map[waitKey]*causeRoute      // by a request's first wait, the sleep behind it that took most time
	longPolls      map[report.SiteKey]*longPoll // by the line where requests wait on purpose
	herdLines      map[report.SiteKey]bool      // see findHerdLines
	streamPaces    map[report.SiteKey]bool      // see findStreamPaces
	// peersInReport means that requests wait over the network for other groups of this report: time in those groups' requests is
	// reported there.
	peersInReport bool
	candidates    []*candidate // ordered by the first of their causes in the report
}

// attributionOf divides the routes of a group's requests (wait chains, each to one cause) among candidates (possible findings).
// It computes an attribution on first use and keeps it in the Input. The order of the find functions matters: each uses what the
// earlier ones found.
func (in *Input) attributionOf(group *report.Group) *attribution {
	if attr := in.attributions[group]; attr != nil {
		return attr
	}
	attr := &attribution{in: in, group: group, queueWaits: map[waitKey]bool{}, contendedSites: map[causeSite]waitKey{}, minorWaits: map[waitKey]bool{}, canonicalWaits: map[waitKey]waitKey{},
		fixedSleeps: map[report.SiteKey]bool{}, heaviestSleeps: map[waitKey]*causeRoute{}, nextRequestNS: map[waitKey]int64{}, longPolls: map[report.SiteKey]*longPoll{}, herdLines: map[report.SiteKey]bool{}, streamPaces: map[report.SiteKey]bool{}}
	attr.peersInReport = in.peerGroups(group) != nil
	for c, r := range attr.routes(group.All()) {
		if verdict.IsNextRequest(c, r.Via) {
			attr.nextRequestNS[waitKeyOf(&r.Via[0])] += r.TotalNS
		} else if c.Cause == report.CauseSleep && len(r.Via) > 0 {
			if k := waitKeyOf(&r.Via[0]); attr.heaviestSleeps[k] == nil || attr.heaviestSleeps[k].routeNS < r.TotalNS {
				attr.heaviestSleeps[k] = &causeRoute{c, r.Via, r.TotalNS}
			}
		}
	}
	attr.findFixedSleeps()
	attr.findHerdLines()
	attr.findStreamPaces()
	attr.findQueueWaits()
	attr.findLongPolls()
	attr.findContendedSites()
	attr.buildCandidates()
	if in.attributions == nil {
		in.attributions = map[*report.Group]*attribution{}
	}
	in.attributions[group] = attr
	return attr
}

// candidatesOf iterates over the candidates of one rule in all groups, each with its group's attribution.
func (in *Input) candidatesOf(code report.RuleCode) iter.Seq2[*attribution, *candidate] {
	return func(yield func(*attribution, *candidate) bool) {
		for i := range in.Report.Groups {
			attr := in.attributionOf(&in.Report.Groups[i])
			for _, cand := range attr.candidates {
				if cand.code == code && !yield(attr, cand) {
					return
				}
			}
		}
	}
}

// buildCandidates fills candidates: it sorts the routes of all requests, and those of the slow requests, into one candidate for
// each key, and computes the share and gain of each candidate.
func (a *attribution) buildCandidates() {
	byKey := map[candidateKey]*candidate{}
	for c, r := range a.routes(a.group.All()) {
		key := a.candidateKeyOf(c, r.Via)
		if key.code == "" {
			continue
		}
		if byKey[key] == nil {
			byKey[key] = &candidate{candidateKey: key}
			a.candidates = append(a.candidates, byKey[key])
		}
		byKey[key].routes = append(byKey[key].routes, causeRoute{c, r.Via, r.TotalNS})
	}
	for c, r := range a.routes(a.group.Tail()) {
		if cand := byKey[a.candidateKeyOf(c, r.Via)]; cand != nil {
			cand.slowRoutes = append(cand.slowRoutes, causeRoute{c, r.Via, r.TotalNS})
		}
	}
	byTime := func(a, b causeRoute) int { return cmp.Compare(b.routeNS, a.routeNS) }
	for _, cand := range a.candidates {
		slices.SortStableFunc(cand.routes, byTime)
		slices.SortStableFunc(cand.slowRoutes, byTime)
		cand.share, cand.gain = gainWithoutRoutes(a.group, func(cause *report.Cause, via []report.Via) bool {
			return a.candidateKeyOf(cause, via) == cand.candidateKey
		})
	}
}

// findFixedSleeps adds to fixedSleeps the sleeps in other modules' code (libraries) that nearly every request waits for: a delay
// that the library imposes on all calls.
func (a *attribution) findFixedSleeps() {
	for c := range each(a.group.All().Causes) {
		if c.Cause == report.CauseSleep && c.Site != nil && c.Site.Module != "" && float64(c.Requests) >= threshold.NearlyAllShare*float64(a.group.Count) {
			a.fixedSleeps[c.Site.Key()] = true
		}
	}
}

// routes iterates over the attributable routes of a band, each with its cause. A route that crosses a call to another group of
// this process is shortened to the part inside the group that answers. If that group is in the report as well, the route is left
// out, because its time is reported there.
func (a *attribution) routes(b *report.Band) iter.Seq2[*report.Cause, *report.Route] {
	return func(yield func(*report.Cause, *report.Route) bool) {
		for c, r := range attributableRoutes(b) {
			inner, peerAnswers := verdict.AfterLastAnswer(r.Via)
			if peerAnswers > 0 && a.peersInReport {
				continue
			}
			route := *r
			route.Via = a.withTimedWait(c, inner)
			if !yield(c, &route) {
				return
			}
		}
	}
}

// attributableRoutes iterates over the routes of a band to each cause for which isAttributable holds.
func attributableRoutes(b *report.Band) iter.Seq2[*report.Cause, *report.Route] {
	return func(yield func(*report.Cause, *report.Route) bool) {
		for c := range each(b.Causes) {
			if !isAttributable(c) {
				continue
			}
			for r := range each(c.AllRoutes()) {
				if !yield(c, r) {
					return
				}
			}
		}
	}
}

// isAttributable reports whether the rules about waiting (WL2) report time of a cause: waits, and computing, because other
// requests may wait for it.
func isAttributable(c *report.Cause) bool {
	switch c.Cause {
	case report.CauseCPU, report.CauseSleep, report.CauseNetwork, report.CauseSyscall, report.CauseDisk, report.CauseLock, report.CauseChan:
		return true
	}
	return isFinalizerWait(c)
}

// isFinalizerWait reports whether a cause is the time in which the goroutine that runs finalizers or cleanups has none to run: the next
// ones come with a garbage collection.
func isFinalizerWait(c *report.Cause) bool {
	return c.Cause == report.CauseGCWait && c.Site != nil && knowledge.Has(c.Site.Func, knowledge.FinalizerLoop)
}

// canonicalWait returns the wait that represents all contended waits with the same work behind them, so that they become one
// finding: the one with most time, or k if there are no others.
func (a *attribution) canonicalWait(k waitKey) waitKey {
	if first, ok := a.canonicalWaits[k]; ok {
		return first
	}
	return k
}

// contendedWait returns the first wait of a wait chain at which requests queue: a lock, or a queue that findQueueWaits found.
// It returns false if the chain has none.
func (a *attribution) contendedWait(via []report.Via) (first waitKey, ok bool) {
	for i := range via {
		wait := waitKeyOf(&via[i])
		if isLockWait(wait) || a.queueWaits[wait] {
			return wait, true
		}
	}
	return waitKey{}, false
}

// withTimedWait returns a wait chain with the wait for a slot that a timer ended (verdict.WithTimedWait).
func (a *attribution) withTimedWait(c *report.Cause, via []report.Via) []report.Via {
	return verdict.WithTimedWait(c, via, func(wait *report.Via) bool { return isSlotPool(a.in.slotWaitsAt(waitKeyOf(wait))) })
}

// candidateKeyOf decides which rule, and which candidate of that rule, a cause that is reached by the wait chain via belongs
// to. The comment at the top of this file has the rules of precedence. An empty code means that it belongs to no rule about
// waiting.
func (a *attribution) candidateKeyOf(c *report.Cause, via []report.Via) candidateKey {
	if !isAttributable(c) || a.isInHerd(c, via) {
		return candidateKey{}
	}
	via, peerAnswers := verdict.AfterLastAnswer(via)
	if peerAnswers > 0 && a.peersInReport {
		return candidateKey{}
	}
	via = a.withTimedWait(c, via)
	if p := a.longPollOf(c, via); p != nil {
		return p.key()
	}
	if key := a.nextRequestKey(c, via); key.code != "" {
		return key
	}
	if verdict.IsNextRequest(c, via) {
		if s := a.heaviestSleeps[waitKeyOf(&via[0])]; s != nil {
			return a.candidateKeyOf(s.Cause, s.via)
		}
		return candidateKey{}
	}
	if isWebSocketIdle(c) || len(via) == 0 && c.Cause == report.CauseSleep && a.streamPaces[c.Site.Key()] {
		return candidateKey{}
	}
	waitSite := c.Site
	if len(via) > 0 {
		waitSite = via[0].Site
	}
	if code := a.streamRule(c, via); code != "" && a.in.isStream(c, waitSite) {
		return candidateKey{code: code, causeSite: causeSite{streamCause, waitSite.OwnLine().Key()}}
	}
	if wait, ok := a.contendedWait(via); ok && !a.minorWaits[wait] {
		return contentionKey(a.canonicalWait(wait))
	}
	site := causeSiteOf(c)
	if wait, ok := a.contendedSites[site]; ok && !a.isOwnWork(c, via) {
		return contentionKey(wait)
	}
	switch code := report.RuleCode(""); c.Cause {
	case report.CauseSleep:
		if call := a.hedgedCall(waitSite); call != nil {
			return candidateKey{code: report.RuleSlowPeer, causeSite: causeSiteOf(call)}
		}
		if a.fixedSleeps[c.Site.Key()] {
			site.site = report.SiteKey{Func: c.Site.Module}
		}
		code = report.RuleSleep
		switch {
		case verdict.KindOf(c) == verdict.Limiter, isAcquireTimeout(c, via):
			code = report.RulePoolTooSmall
		case len(via) > 0 && a.flushInterval(c) != nil: // without a wait in between, the request's own goroutine began that sleep
			code = report.RuleFlushInterval
		}
		return candidateKey{code: code, causeSite: site}
	case report.CauseNetwork:
		code = report.RuleSlowPeer
		if a.in.BacklogShares[a.group.ID] >= threshold.HalfShare && c.Kind != "inbound" {
			return backlogKey
		}
		if knowledge.Has(c.Call, knowledge.File) {
			code = report.RuleBlockingSyscall
		} else if c.Kind == "inbound" {
			if code = report.RuleSlowClient; a.isBehindOtherClient(&causeRoute{Cause: c, via: via}) {
				site.cause = otherClientCause
			}
		}
		return candidateKey{code: code, causeSite: site}
	case report.CauseDisk:
		return candidateKey{code: report.RuleBlockingSyscall, causeSite: site}
	case report.CauseSyscall:
		if knowledge.Has(c.Call, knowledge.Socket) && !a.in.SyscallCounts[a.group.ID].AreMany() {
			return candidateKey{} // calls on sockets do not block: the thread had no CPU
		}
		if a.isSharedWrite(c) {
			site.site = c.Site.LineKey() // whichever line of the service logs, the file is slow
		}
		return candidateKey{code: report.RuleBlockingSyscall, causeSite: site}
	}
	return candidateKey{}
}

// isWebSocketIdle reports whether a WebSocket's handler waits for its client's next message: that delays no request.
func isWebSocketIdle(c *report.Cause) bool {
	return c.Cause == report.CauseNetwork && c.Kind == "inbound" && c.Site != nil && knowledge.Has(c.Site.Func, knowledge.WebSocketRead)
}

// heaviestRoute returns the route with the most time to a cause; if no route leads to that cause, the one with the most time of
// all.
func (c *candidate) heaviestRoute(cause report.CauseName) *causeRoute {
	return cmp.Or(firstMatch(c.routes, func(p *causeRoute) bool { return p.Cause.Cause == cause }), &c.routes[0])
}

// contentionKey returns the candidate of a contended wait: of the rule lock-convoy for a lock, else of pool-too-small.
func contentionKey(k waitKey) candidateKey {
	if isLockWait(k) {
		return candidateKey{code: report.RuleLockConvoy, wait: k}
	}
	return candidateKey{code: report.RulePoolTooSmall, wait: k}
}

// A candidate is a possible finding of one rule about one group: the routes of one key, and their time.
type candidate struct {
	candidateKey
	share      float64 // of the time of all requests of the group
	gain       Gain
	routes     []causeRoute // of all requests, the longest first
	slowRoutes []causeRoute // of the slow requests alone, the longest first
}

// slowRoute returns the slow requests' longest route to the same cause and site as route, nil if there is none.
func (c *candidate) slowRoute(route *causeRoute) *causeRoute {
	return firstMatch(c.slowRoutes, func(s *causeRoute) bool { return causeSiteOf(s.Cause) == causeSiteOf(route.Cause) })
}

// addSlowMean adds two pieces of evidence: the mean gain of the candidate in a slow request, worded by the text mean with the goroutine of via, and
// how many of the slow requests have the cause of the route. If the group has no band of slow requests, it counts all requests.
func (a *attribution) addSlowMean(v *Verdict, mean textKey, cand *candidate, route *causeRoute, via []report.Via) {
	v.addSlowEvidence(evidenceOf(mean, cand.gain.Slow.NS, "ns", "goroutine", goroutineText(via)))
	band := a.group.Tail()
	if band.Band == report.BandAll {
		v.addEvidence(evidenceOf("evidence requests-with-wait", route.Requests, "count"))
		return
	}
	count := 0
	if s := cand.slowRoute(route); s != nil {
		count = s.Requests
	}
	v.addSlowEvidence(evidenceOf("evidence slow-requests-with-wait", count, "count", "n", band.Count))
}

// A causeRoute is a cause with one of the routes that lead to it: the waits in via, from the request's own to the last one, and
// the time on this route alone.
type causeRoute struct {
	*report.Cause
	via     []report.Via
	routeNS int64
}

// nonStdSite returns the site that a finding about the route names.
func (r *causeRoute) nonStdSite() *report.Site { return nonStdSite(r.Cause, r.via) }

// newVerdict returns a verdict about a candidate. The route that represents the candidate supplies its cause and its site.
func (a *attribution) newVerdict(cand *candidate, route *causeRoute) Verdict {
	return Verdict{Gain: cand.gain, Changes: a.withoutSite(route), Finding: report.Finding{
		Cause: route.Cause.Cause, Site: route.nonStdSite(), Group: a.group.ID, Share: cand.share, Confidence: 0.9,
	}}
}

// gainWithoutRoutes returns what the requests of a group would save without the routes that match: the share of the time of all
// requests, and the gain. The part of a cause that matches is the share of its time on matching routes.
func gainWithoutRoutes(g *report.Group, match func(*report.Cause, []report.Via) bool) (share float64, gain Gain) {
	return gainWithoutPart(g, func(c *report.Cause) float64 {
		return ratio(routeTimes(c, match))
	})
}

// routeTimes returns the time in ns of those routes to a cause that match, and of all its routes.
func routeTimes(c *report.Cause, match func(*report.Cause, []report.Via) bool) (matching, all int64) {
	for r := range each(c.AllRoutes()) {
		all += r.TotalNS
		if match(c, r.Via) {
			matching += r.TotalNS
		}
	}
	return matching, all
}

// nonStdSite returns the site that a finding names for a cause: the cause's own site, unless it is in the standard library. Then
// it is that of the last wait of the route outside the standard library. If there is none, it is the cause's own, which may be
// nil.
func nonStdSite(c *report.Cause, via []report.Via) *report.Site {
	if c.Site != nil && !isStdSite(c.Site) {
		return c.Site
	}
	for _, v := range slices.Backward(via) {
		if v.Site != nil && !isStdSite(v.Site) {
			return v.Site
		}
	}
	return c.Site
}

// isStdSite reports whether a site is in the standard library.
func isStdSite(s *report.Site) bool {
	return knowledge.Has(s.Func, knowledge.Stdlib)
}

// isOwnCode reports whether a site is code of the service, not of a library or the standard library; false for nil.
func isOwnCode(s *report.Site) bool { return s != nil && s.Module == "" && !isStdSite(s) }
