package finding

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// One fault has several symptoms: a slow call under a lock is a slow call for
// the goroutine that holds the lock, and a wait for the lock for all others. To
// report it once, every way to every cause of a group belongs to one rule. A way
// is the chain of waits that led to a cause:
//
//   - time of the collector, the scheduler or the kernel is not a wait: it
//     belongs to WL1, WL3 and WL4, whatever led there;
//   - time behind a lock or a sync.Once is a lock convoy (WL2002), whatever the
//     holder did;
//   - time behind a channel, select or Cond at which requests queue for the other
//     side is a pool that is too small (WL2003);
//   - time at the same site without a queue before it belongs to that convoy or
//     pool as well, unless the queue is by far the smaller part (see isMuch): then
//     all of it belongs to the rule of the site;
//   - the lock of an os.File or a log.Logger is not the service's own: time behind
//     it belongs to the rule of its cause;
//   - a goroutine that serves many requests is at times woken by one of them. The way then leads to the reason why that
//     request did not come earlier: its client was idle. If a sleep also ends that wait (a batcher's interval), the time
//     belongs to the sleep, otherwise to no rule;
//   - the wait of a WebSocket's handler for its client's next message belongs to no rule;
//   - the goroutine that ends a long poll with news is not late (see findPatience);
//   - a sleep, timer or limiter that paces a stream delays no request (see streams);
//   - the rest belongs to the rule of its cause: sleep (WL2001, WL2004),
//     network (WL2005, WL2006), syscall (WL2007).

// A waitKey identifies a wait as reports name it.
type waitKey struct {
	kind report.WaitKind
	call string
	site report.SiteKey
}

// waitKeyOf ignores where a dependency was called from: all callers share its lock or pool.
func waitKeyOf(v *report.Via) waitKey {
	return waitKey{kind: v.Wait, call: v.Call, site: v.Site.LineKey()}
}

// A leaf is a cause at a site. In a dependency, the site is the service's own line that called it, because one such call may
// wait at several places of the dependency, and there is one thing to change.
type causeSite struct {
	cause report.CauseName
	site  report.SiteKey
}

func causeSiteOf(c *report.Cause) causeSite {
	l := causeSite{cause: c.Cause, site: c.Site.Own().Key()}
	if c.Cause == report.CauseNetwork && c.Kind == "inbound" {
		l.cause = "inbound"
	}
	return l
}

// An owner is the rule and the one finding that a way to a cause belongs to.
type candidateKey struct {
	code      report.RuleCode
	wait      waitKey   // of a convoy or a pool
	causeSite causeSite // of all other findings
}

// attribution decides which owner each way to a cause of a group has.
type attribution struct {
	in             *Input
	group          *report.Group
	queueWaits     map[waitKey]bool             // waits at channels, selects and Conds that are queues
	contendedSites map[causeSite]waitKey        // sites whose own time belongs to a contended wait
	minorWaits     map[waitKey]bool             // contended waits too short to be the fault
	canonicalWaits map[waitKey]waitKey          // contended waits for the same site are one fault
	fixedSleeps    map[report.SiteKey]bool      // sleeps of a dependency that every request meets
	heaviestSleeps map[waitKey]*causeRoute      // the heaviest sleep behind the outermost wait
	longPolls      map[report.SiteKey]*longPoll // where requests wait on purpose
	// peersInReport says that the groups of this process for which requests wait over the network have findings of their own: what
	// happens there is found there.
	peersInReport bool
	candidates    []*candidate // what each owner has, in the order of causes
}

// attributionOf divides the ways to the causes of a group.
func (in *Input) attributionOf(g *report.Group) *attribution {
	if attr := in.attributions[g]; attr != nil {
		return attr
	}
	attr := &attribution{in: in, group: g, queueWaits: map[waitKey]bool{}, contendedSites: map[causeSite]waitKey{}, minorWaits: map[waitKey]bool{}, canonicalWaits: map[waitKey]waitKey{},
		fixedSleeps: map[report.SiteKey]bool{}, heaviestSleeps: map[waitKey]*causeRoute{}, longPolls: map[report.SiteKey]*longPoll{}}
	attr.peersInReport = in.peerGroups(g) != nil
	for c, r := range attr.routes(g.All()) {
		if c.Cause == report.CauseSleep && len(r.Via) > 0 {
			if k := waitKeyOf(&r.Via[0]); attr.heaviestSleeps[k] == nil || attr.heaviestSleeps[k].routeNS < r.TotalNS {
				attr.heaviestSleeps[k] = &causeRoute{c, r.Via, r.TotalNS}
			}
		}
	}
	attr.findFixedSleeps()
	attr.findQueueWaits()
	attr.findPatience()
	attr.findLeads()
	attr.buildCandidates()
	if in.attributions == nil {
		in.attributions = map[*report.Group]*attribution{}
	}
	in.attributions[g] = attr
	return attr
}

// candidatesOf returns what belongs to a rule, group by group.
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

// buildCandidates makes a claim of the ways of each owner.
func (a *attribution) buildCandidates() {
	byKey := map[candidateKey]*candidate{}
	for c, r := range a.routes(a.group.All()) {
		key := a.keyOf(c, r.Via)
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
		if cand := byKey[a.keyOf(c, r.Via)]; cand != nil {
			cand.slowRoutes = append(cand.slowRoutes, causeRoute{c, r.Via, r.TotalNS})
		}
	}
	byTime := func(a, b causeRoute) int { return cmp.Compare(b.routeNS, a.routeNS) }
	for _, cand := range a.candidates {
		slices.SortStableFunc(cand.routes, byTime)
		slices.SortStableFunc(cand.slowRoutes, byTime)
		cand.share, cand.won = weighRoutes(a.group, func(cause *report.Cause, via []report.Via) bool { return a.keyOf(cause, via) == cand.candidateKey })
	}
}

// findFixedSleeps notes the sleeps of dependencies that every request meets.
func (a *attribution) findFixedSleeps() {
	for i := range a.group.All().Causes {
		if c := &a.group.All().Causes[i]; c.Cause == report.CauseSleep && c.Site != nil && c.Site.Module != "" && float64(c.Requests) >= scale.NearlyAll*float64(a.group.Count) {
			a.fixedSleeps[c.Site.Key()] = true
		}
	}
}

// routes are all ways to every cause of a band that rules about waiting may claim. For requests sent over the network within this
// process they begin where the answering request begins, or are left out if that has its own findings.
func (a *attribution) routes(b *report.Band) iter.Seq2[*report.Cause, *report.Route] {
	return func(yield func(*report.Cause, *report.Route) bool) {
		for c, r := range attributableRoutes(b) {
			inner, peerHops := verdict.AfterLastAnswer(r.Via)
			if peerHops > 0 && a.peersInReport {
				continue
			}
			if peerHops > 0 {
				r = &report.Route{Via: inner, TotalNS: r.TotalNS}
			}
			if !yield(c, r) {
				return
			}
		}
	}
}

// attributableRoutes are all ways to every cause of a band that rules about waiting may claim.
func attributableRoutes(b *report.Band) iter.Seq2[*report.Cause, *report.Route] {
	return func(yield func(*report.Cause, *report.Route) bool) {
		for i := range b.Causes {
			c := &b.Causes[i]
			if !isAttributable(c.Cause) {
				continue
			}
			routes := c.AllRoutes()
			for k := range routes {
				if !yield(c, &routes[k]) {
					return
				}
			}
		}
	}
}

// isAttributable are the causes that rules about waiting may claim.
func isAttributable(cause report.CauseName) bool {
	switch cause {
	case report.CauseCPU, report.CauseSleep, report.CauseNetwork, report.CauseSyscall, report.CauseLock, report.CauseChan:
		return true
	}
	return false
}

// canonicalWait returns the wait that stands for all contended waits for the same site.
func (a *attribution) canonicalWait(k waitKey) waitKey {
	if first, ok := a.canonicalWaits[k]; ok {
		return first
	}
	return k
}

// contendedWait returns the first contended wait of a way.
func (a *attribution) contendedWait(via []report.Via) (waitKey, bool) {
	for i := range via {
		wait := waitKeyOf(&via[i])
		if isLockWait(wait) || a.queueWaits[wait] {
			return wait, true
		}
	}
	return waitKey{}, false
}

// keyOf returns the owner of a way to a cause; its code is "" if no rule about
// waits claims it.
func (a *attribution) keyOf(c *report.Cause, via []report.Via) candidateKey {
	if !isAttributable(c.Cause) {
		return candidateKey{}
	}
	via, peerHops := verdict.AfterLastAnswer(via)
	if peerHops > 0 && a.peersInReport {
		return candidateKey{}
	}
	if isIdleClient(c, via) {
		if s := a.heaviestSleeps[waitKeyOf(&via[0])]; s != nil {
			return a.keyOf(s.Cause, s.via)
		}
		return candidateKey{}
	}
	if p := a.polled(c, via); p != nil {
		return p.owner()
	}
	if isWebSocketIdle(c) {
		return candidateKey{}
	}
	waitSite := c.Site
	if len(via) > 0 {
		waitSite = via[0].Site
	}
	if c.Cause == report.CauseSleep && a.in.streams(waitSite) {
		return candidateKey{code: report.RuleSleep, causeSite: causeSite{streamLeaf, waitSite.Own().Key()}}
	}
	if wait, ok := a.contendedWait(via); ok && !a.minorWaits[wait] {
		return contentionKey(a.canonicalWait(wait))
	}
	site := causeSiteOf(c)
	if wait, ok := a.contendedSites[site]; ok {
		return contentionKey(wait)
	}
	switch code := report.RuleCode(""); c.Cause {
	case report.CauseSleep:
		if a.fixedSleeps[c.Site.Key()] {
			site.site = report.SiteKey{Func: c.Site.Module}
		}
		code = report.RuleSleep
		switch {
		case verdict.KindOf(c) == verdict.Limiter, isAcquireTimeout(c):
			code = report.RulePoolTooSmall
		case len(via) > 0 && a.flushInterval(c) != nil: // without via, the request's own goroutine sleeps, and began that itself
			code = report.RuleFlushInterval
		}
		return candidateKey{code: code, causeSite: site}
	case report.CauseNetwork:
		code = report.RuleSlowPeer
		if a.in.BacklogShares[a.group.ID] >= scale.Half && c.Kind != "inbound" {
			return backlog
		}
		if isFileCall(c.Call) {
			code = report.RuleBlockingSyscall
		} else if c.Kind == "inbound" {
			code = report.RuleSlowClient
		}
		return candidateKey{code: code, causeSite: site}
	case report.CauseSyscall:
		if cause.IsSocket(c.Call) {
			return candidateKey{} // the call never blocks: its thread did not get a CPU
		}
		return candidateKey{code: report.RuleBlockingSyscall, causeSite: site}
	}
	return candidateKey{}
}

// isIdleClient reports whether a way leads to a connection that waits for its client's next request.
func isIdleClient(c *report.Cause, via []report.Via) bool {
	return c.Cause == report.CauseNetwork && c.Kind == "inbound" && len(via) > 0 && c.Site != nil && c.Site.Func == "net/http.(*conn).serve"
}

// isWebSocketIdle reports whether a WebSocket's handler waits for its client's next message: that delays no request.
func isWebSocketIdle(c *report.Cause) bool {
	return c.Cause == report.CauseNetwork && c.Kind == "inbound" && c.Site != nil && strings.Contains(c.Site.Func, "websocket.") && strings.Contains(strings.ToLower(c.Site.Func), "read")
}

// heaviestRoute returns the first part with a cause, the heaviest one of all if none has it.
func (c *candidate) heaviestRoute(cause report.CauseName) *causeRoute {
	if p := firstMatch(c.routes, func(p *causeRoute) bool { return p.Cause.Cause == cause }); p != nil {
		return p
	}
	return &c.routes[0]
}

func contentionKey(k waitKey) candidateKey {
	if isLockWait(k) {
		return candidateKey{code: report.RuleLockConvoy, wait: k}
	}
	return candidateKey{code: report.RulePoolTooSmall, wait: k}
}

// isFileCall reports whether a call reads or writes an os.File: where the poller
// waits for one it is a pipe, a terminal or a device.
func isFileCall(call string) bool { return strings.HasPrefix(call, "os.(*File).") }

// A claim is one owner's part of a group.
type candidate struct {
	candidateKey
	share      float64 // of the group's time
	won        Won
	routes     []causeRoute // of all requests, the longest first
	slowRoutes []causeRoute // of the slow requests alone
}

// slowRoute returns the slow requests' part with the same leaf, nil if there is none.
func (c *candidate) slowRoute(route *causeRoute) *causeRoute {
	return firstMatch(c.slowRoutes, func(s *causeRoute) bool { return causeSiteOf(s.Cause) == causeSiteOf(route.Cause) })
}

// requestCountEvidence is the evidence of how many slow requests met a part: the mean beside it is over the same requests.
func (a *attribution) requestCountEvidence(cand *candidate, route *causeRoute) report.Evidence {
	band := a.group.Tail()
	if band.Band == report.BandAll {
		return measured("requests that have this wait", route.Requests, "count")
	}
	count := 0
	if s := cand.slowRoute(route); s != nil {
		count = s.Requests
	}
	return measured(fmt.Sprintf("slow requests that have this wait, of %d", band.Count), count, "count")
}

// A part is a way to a cause.
type causeRoute struct {
	*report.Cause
	via     []report.Via
	routeNS int64
}

// nonStdSite is the service's line that a finding about a part names.
func (r *causeRoute) nonStdSite() *report.Site { return nonStdSite(r.Cause, r.via) }

// newVerdict begins what is said of a claim, by the part that stands for it.
func (a *attribution) newVerdict(cand *candidate, route *causeRoute) Verdict {
	return Verdict{Won: cand.won, Changes: a.halfOf(route.Cause), Finding: report.Finding{
		Cause: route.Cause.Cause, Site: route.nonStdSite(), Group: a.group.ID, Share: cand.share, Confidence: 0.9,
	}}
}

// weighRoutes is weigh for some of the ways to a cause.
func weighRoutes(g *report.Group, match func(*report.Cause, []report.Via) bool) (share float64, won Won) {
	return weighPart(g, func(c *report.Cause) float64 {
		matching, all := routeTimes(c, match)
		if all == 0 {
			return 0
		}
		return float64(matching) / float64(all)
	})
}

// routeTimes returns the time of the ways to a cause that match, and of all of
// them.
func routeTimes(c *report.Cause, match func(*report.Cause, []report.Via) bool) (matching, all int64) {
	routes := c.AllRoutes()
	for i := range routes {
		all += routes[i].TotalNS
		if match(c, routes[i].Via) {
			matching += routes[i].TotalNS
		}
	}
	return matching, all
}

// nonStdSite returns the site nearest to a cause that is not in the standard library:
// the cause's own, or that of a wait that led there.
func nonStdSite(c *report.Cause, via []report.Via) *report.Site {
	if c.Site != nil && !isStdSite(c.Site) {
		return c.Site
	}
	for i := len(via) - 1; i >= 0; i-- {
		if s := via[i].Site; s != nil && !isStdSite(s) {
			return s
		}
	}
	return c.Site
}

func isStdSite(s *report.Site) bool { return !strings.HasPrefix(s.Func, "main.") && stdlib.Is(s.Func) }
