package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/report"
)

// One fault shows in several ways: a call under a lock is a slow call for the
// one who holds it, and a wait for the lock for all others. So that it is
// reported once, every way to every cause of a group belongs to one rule:
//
//   - what the collector, the scheduler or the kernel took is not a wait: WL1,
//     WL3 and WL4 have it, however it was reached;
//   - behind a lock or a sync.Once it is a lock convoy (WL2002), whatever the
//     holder did;
//   - behind a channel, select or Cond for whose other side requests queue it
//     is a pool that is too small (WL2003);
//   - what a request spends at the same site without having queued belongs to
//     that convoy or pool as well, unless the queue is the smaller part by far
//     (see isMuch): then all of it belongs to the rule of the site;
//   - the lock of an os.File or a log.Logger is no lock of the service's: what is
//     behind it belongs to the rule of its cause;
//   - where a goroutine that serves many is woken by one of them now and then, the way leads to why that one did not
//     come earlier: its client, who rested. That is part of the sleep that ends the same wait (a batcher's interval),
//     if there is one, and else belongs to no rule;
//   - what the handler of a WebSocket waits for until its client says more belongs to no rule;
//   - who ends a long poll with news is not late with them (see findPatience);
//   - what paces a stream, a sleep, a timer or a limiter, holds nobody up (see streams);
//   - the rest belongs to the rule of the cause: sleep (WL2001, WL2004),
//     network (WL2005, WL2006), syscall (WL2007).

// A viaKey is a wait as reports name it.
type viaKey struct {
	wait report.WaitKind
	call string
	site report.SiteKey
}

// keyOfVia leaves aside from where a dependency was called: its lock, or its pool, is one for all.
func keyOfVia(v *report.Via) viaKey {
	return viaKey{wait: v.Wait, call: v.Call, site: v.Site.LineKey()}
}

// A leaf is a cause at a site: at the line of the service's own that led to a dependency's, because what that line asks
// for waits at several places of the dependency, and there is one thing to change.
type leaf struct {
	cause report.CauseName
	site  report.SiteKey
}

func leafOf(c *report.Cause) leaf {
	l := leaf{cause: c.Cause, site: c.Site.Own().Key()}
	if c.Cause == report.CauseSleep && c.Site != nil && c.Site.CalledFrom == nil && c.Site.Module != "" {
		l.site = report.SiteKey{Func: c.Site.Module} // its timers: nobody can change one without the others
	}
	if c.Cause == report.CauseNetwork && c.Kind == "inbound" {
		l.cause = "inbound"
	}
	return l
}

// An owner is the rule, and its one finding, that a way to a cause belongs to.
type owner struct {
	code report.RuleCode
	via  viaKey // of a convoy or a pool
	leaf leaf   // of all others
}

// claims says which owner the ways to the causes of a group have.
type claims struct {
	in    *Input
	g     *report.Group
	queue map[viaKey]bool              // waits for channels, selects, Conds that are queues
	lead  map[viaKey]leaf              // what is mostly done behind a contended wait
	own   map[leaf]viaKey              // sites whose own time belongs to a contended wait
	slack map[viaKey]bool              // contended waits that are not worth it
	alias map[viaKey]viaKey            // contended waits for one and the same site are one fault
	fixed map[report.SiteKey]bool      // sleeps of a dependency that every request meets
	sleep map[viaKey]*part             // the heaviest sleep behind the outermost wait
	polls map[report.SiteKey]*longPoll // where requests wait on purpose
	// served says that the groups of this process that requests wait for over the network are judged themselves: what
	// happens there is their fault, and their finding.
	served bool
}

// routesOf returns the ways that lead to a cause.
func routesOf(c *report.Cause) []report.Route {
	if len(c.Routes) > 0 {
		return c.Routes
	}
	return []report.Route{{Via: c.Via, TotalNS: c.TotalNS}}
}

func claimsOf(in *Input, g *report.Group) *claims {
	cl := &claims{in: in, g: g, queue: map[viaKey]bool{}, lead: map[viaKey]leaf{}, own: map[leaf]viaKey{}, slack: map[viaKey]bool{}, alias: map[viaKey]viaKey{}, fixed: map[report.SiteKey]bool{}, sleep: map[viaKey]*part{}, polls: map[report.SiteKey]*longPoll{}}
	if len(g.Bands) == 0 {
		return cl
	}
	cl.served = in.servedOf(g) != nil
	cl.each(func(c *report.Cause, r *report.Route) {
		if c.Cause == report.CauseSleep && len(r.Via) > 0 {
			if k := keyOfVia(&r.Via[0]); cl.sleep[k] == nil || cl.sleep[k].ns < r.TotalNS {
				cl.sleep[k] = &part{c, r.Via, r.TotalNS}
			}
		}
	})
	cl.findFixed()
	cl.findQueues()
	cl.findPatience()
	cl.findLeads()
	return cl
}

// findFixed notes the sleeps of dependencies that every request meets.
func (cl *claims) findFixed() {
	for i := range cl.g.All().Causes {
		if c := &cl.g.All().Causes[i]; c.Cause == report.CauseSleep && c.Site != nil && c.Site.Module != "" && float64(c.Requests) >= scale.NearlyAll*float64(cl.g.Count) {
			cl.fixed[c.Site.Key()] = true
		}
	}
}

// findQueues decides by what most of the time behind a wait was.
func (cl *claims) findQueues() {
	yes, all := map[viaKey]int64{}, map[viaKey]int64{}
	cl.each(func(c *report.Cause, r *report.Route) {
		for i := range r.Via {
			if v := &r.Via[i]; isHandOver(v.Wait) {
				k := keyOfVia(v)
				p := cl.in.places(&k)
				if isOwnWork(p) && !isFanOut(&k, p) {
					continue // what it started itself may stand in line
				}
				all[k] += r.TotalNS
				if isNews(&k, p) {
					break
				}
				if t := cl.in.turns(c, r.Via); isFanOut(&k, p) || isSemaphore(&k) || poolsOfStd[k.call].only || isPool(p) || c.Cause == report.CauseNetwork && isCrew(p) || t != nil && isQueue(t, c, v) {
					yes[k] += r.TotalNS
				}
				break
			}
		}
	})
	for k, ns := range yes {
		cl.queue[k] = 2*ns > all[k]
	}
}

// each calls f for every way to every cause that rules about waits may claim.
func (cl *claims) each(f func(c *report.Cause, r *report.Route)) { cl.eachOf(cl.g.All(), f) }

// eachOf calls f for every way to a cause of a band that rules about waiting may claim. Of what was asked for over the
// network in this process, ways are told from where that begins, if at all.
func (cl *claims) eachOf(b *report.Band, f func(c *report.Cause, r *report.Route)) {
	eachRoute(b, func(c *report.Cause, r *report.Route) {
		inner, asked := verdict.Beyond(r.Via)
		if asked == 0 {
			f(c, r)
		} else if !cl.served {
			f(c, &report.Route{Via: inner, TotalNS: r.TotalNS})
		}
	})
}

// eachRoute calls f for every way to a cause of a band that rules about waiting may claim.
func eachRoute(b *report.Band, f func(c *report.Cause, r *report.Route)) {
	all := b.Causes
	for i := range all {
		if !waits(all[i].Cause) {
			continue
		}
		routes := routesOf(&all[i])
		for k := range routes {
			f(&all[i], &routes[k])
		}
	}
}

// waits are the causes that rules about waiting may claim.
func waits(cause report.CauseName) bool {
	switch cause {
	case report.CauseCPU, report.CauseSleep, report.CauseNetwork, report.CauseSyscall, report.CauseLock, report.CauseChan:
		return true
	}
	return false
}

func isHandOver(wait report.WaitKind) bool {
	return wait == report.WaitChan || wait == report.WaitChanSend || wait == report.WaitSelect || wait == report.WaitCond
}

// isQueue reports whether requests that wait at v queue for turns at c: the
// goroutines there are other requests' own, or serve one request at a time
// while others wait. One that serves all who wait at once is none, and nor is
// one that reads the answers of a connection that many share; who asks for each answer itself does one after the other.
func isQueue(t *queues.Turns, c *report.Cause, v *report.Via) bool {
	if t.Served < scale.Few || t.Together > 1.5 {
		return false
	}
	if t.Taken > 0.5 {
		return true
	}
	if c.Cause == report.CauseNetwork && t.Asked < scale.NearlyAll && v.Wait != "chan send" && !isPoolOfStd(v.Call) {
		return false
	}
	return t.Waiting >= 1.3 && t.Waiting >= 1.2*t.Together
}

// isFanOut reports whether a request waits for a place among the goroutines that it may start at a time: they are its
// own, a goroutine for each piece of work, and no other request's turns.
func isFanOut(k *viaKey, p *queues.Places) bool {
	if k.wait == report.WaitChanSend && strings.HasPrefix(k.site.Func, "golang.org/x/sync/errgroup.(*Group).") {
		return true
	}
	return isOwnWork(p) && k.wait == report.WaitChanSend && p.Most > 1 && p.Each < 2
}

// isOwnWork reports whether what ends the waits are goroutines that those who wait have started themselves.
func isOwnWork(p *queues.Places) bool { return p != nil && p.Children > 0.5 }

// isPool reports whether requests wait for a place that others give back.
func isPool(p *queues.Places) bool {
	return p != nil && p.Ended >= scale.Few && p.Mutual >= scale.Much && p.Together <= 1.5
}

// isCrew reports whether requests wait for a worker that is free, who then does what they give it. It decides where that one
// waits for the network: others' answers come the same way to who reads them all (see isQueue).
func isCrew(p *queues.Places) bool {
	return p != nil && p.Ended >= scale.Few && p.Serving > 0.5 && p.Together <= 1.5
}

// isNews reports whether requests wait for what other requests have to say (a long poll, a subscription): those end many waits
// and never waited there themselves. Of a pool's places some are held by who has waited.
func isNews(k *viaKey, p *queues.Places) bool {
	return !isPoolOfStd(k.call) && p != nil && p.Ended >= scale.Enough && p.Mutual == 0 && p.Serving == 0 && p.Others > 0.5
}

// places returns the facts about those who ended the waits at a line.
func (in *Input) places(k *viaKey) *queues.Places {
	for i := range in.Places {
		if p := &in.Places[i]; p.Wait == k.wait && p.Site.LineKey() == k.site {
			return p
		}
	}
	return nil
}

// isSemaphore reports whether a request waits for a place of a semaphore: whoever has one gives it back, so that all who wait
// there queue, whatever the others do meanwhile and on which goroutine.
func isSemaphore(k *viaKey) bool {
	return k.wait == report.WaitSelect && k.site.Func == "golang.org/x/sync/semaphore.(*Weighted).Acquire"
}

// turns returns the facts about those who waited for others at a cause.
func (in *Input) turns(c *report.Cause, via []report.Via) *queues.Turns {
	site := c.Site
	if c.Cause == report.CauseCPU {
		if len(via) == 0 {
			return nil
		}
		site = via[len(via)-1].Site
	}
	for i := range in.Turns {
		if t := &in.Turns[i]; report.CauseName(t.Cause) == c.Cause && t.Site.Meets(site) {
			return t
		}
	}
	return nil
}

// findLeads finds what is done behind each contended wait, and what of the
// time at that site without waiting belongs to it.
func (cl *claims) findLeads() {
	behind, own := map[viaKey]map[leaf]int64{}, map[leaf]int64{}
	cl.each(func(c *report.Cause, r *report.Route) {
		l := leafOf(c)
		k, ok := cl.contended(r.Via)
		if !ok {
			own[l] += r.TotalNS
			return
		}
		if behind[k] == nil {
			behind[k] = map[leaf]int64{}
		}
		behind[k][l] += r.TotalNS
	})
	keys := make([]viaKey, 0, len(behind))
	for k := range behind {
		keys = append(keys, k)
	}
	total := func(k viaKey) (ns int64) {
		for _, v := range behind[k] {
			ns += v
		}
		return ns
	}
	slices.SortFunc(keys, func(a, b viaKey) int { return cmp.Or(cmp.Compare(total(b), total(a)), compareVia(a, b)) })
	waited := map[leaf]int64{} // at a site, by all who queued for it
	for _, k := range keys {
		lead := topLeaf(behind[k])
		cl.lead[k] = lead
		waited[lead] += behind[k][lead]
	}
	slow := cl.slow()
	for _, k := range keys {
		lead := cl.lead[k]
		if t := cl.others(lead); !isMuch(waited[lead], own[lead]) && !isMuch(slow[lead].queued, slow[lead].own) && !(isLock(&k) && isMuch(t.queued, t.own)) {
			cl.slack[k] = true
			continue
		}
		if first, ok := cl.own[lead]; ok {
			cl.alias[k] = first
		} else {
			cl.own[lead] = k
		}
	}
}

// A split is the time at a site: of those who queued for it, and of those who did not.
type split struct{ queued, own int64 }

// isMuch reports whether requests spent so much in a queue that it is the fault, and not what they queued for.
func isMuch(waited, own int64) bool {
	return waited > 0 && float64(waited) >= scale.Much*float64(waited+own)
}

// slow returns what the slow requests spent at each site: a queue is what makes a request slow whose own turn is as long
// as everybody's.
func (cl *claims) slow() map[leaf]split {
	of := map[leaf]split{}
	if b := cl.g.Tail(); b.Band != report.BandAll && b.Count >= scale.Few {
		cl.eachOf(b, func(c *report.Cause, r *report.Route) {
			t := of[leafOf(c)]
			if _, ok := cl.contended(r.Via); ok {
				t.queued += r.TotalNS
			} else {
				t.own += r.TotalNS
			}
			of[leafOf(c)] = t
		})
	}
	return of
}

// others returns what requests of all groups spent at a site: those who queue for a lock may be others than those who
// hold it.
func (cl *claims) others(l leaf) split {
	if cl.in.atSites == nil {
		cl.in.atSites = map[leaf]split{}
		for i := range cl.in.Report.Groups {
			g := &cl.in.Report.Groups[i]
			if len(g.Bands) == 0 {
				continue
			}
			eachRoute(g.All(), func(c *report.Cause, r *report.Route) {
				if _, asked := verdict.Beyond(r.Via); asked > 0 {
					return // they are told by the group that serves them
				}
				t := cl.in.atSites[leafOf(c)]
				if slices.ContainsFunc(r.Via, func(v report.Via) bool { k := keyOfVia(&v); return isLock(&k) }) {
					t.queued += r.TotalNS
				} else {
					t.own += r.TotalNS
				}
				cl.in.atSites[leafOf(c)] = t
			})
		}
	}
	return cl.in.atSites[l]
}

func compareVia(a, b viaKey) int {
	return cmp.Or(cmp.Compare(a.wait, b.wait), a.site.Compare(b.site), strings.Compare(a.call, b.call))
}

func topLeaf(of map[leaf]int64) leaf {
	var best leaf
	top := int64(-1)
	for l, ns := range of {
		if ns > top || ns == top && cmp.Or(cmp.Compare(l.cause, best.cause), l.site.Compare(best.site)) < 0 {
			best, top = l, ns
		}
	}
	return best
}

// contended returns the first wait of a way that is contended.
func (cl *claims) contended(via []report.Via) (viaKey, bool) {
	for i := range via {
		k := keyOfVia(&via[i])
		if isLock(&k) || cl.queue[k] {
			return k, true
		}
	}
	return viaKey{}, false
}

// isLock reports whether a wait is for a lock that the service chose to take.
// An os.File's own, and that of a log.Logger, only keep what is written in order:
// the fault is where they write to. A handler of log/slog, as a core of another
// library, is the service's choice, and its lock with it. A wait that had begun
// before the trace, of which neither kind nor place is known, is no lock.
func isLock(k *viaKey) bool {
	return k.site.Func != "" && (k.wait == report.WaitOnce || k.wait == report.WaitLock && !isFile(k.call) && !isLogger(k.call))
}

func isLogger(call string) bool {
	return strings.HasPrefix(call, "log.")
}

// of returns the owner of a way to a cause; its code is "" if no rule about
// waits claims it.
func (cl *claims) of(c *report.Cause, via []report.Via) owner {
	if !waits(c.Cause) {
		return owner{}
	}
	via, asked := verdict.Beyond(via)
	if asked > 0 && cl.served {
		return owner{}
	}
	if isOthersRest(c, via) {
		if s := cl.sleep[keyOfVia(&via[0])]; s != nil {
			return cl.of(s.Cause, s.via)
		}
		return owner{}
	}
	if p := cl.polled(c, via); p != nil {
		return p.owner()
	}
	if isNextMessage(c) {
		return owner{}
	}
	at := c.Site
	if len(via) > 0 {
		at = via[0].Site
	}
	if c.Cause == report.CauseSleep && cl.in.streams(at) {
		return owner{code: report.RuleSleep, leaf: leaf{streamLeaf, at.Own().Key()}}
	}
	if k, ok := cl.contended(via); ok && !cl.slack[k] {
		if first, ok := cl.alias[k]; ok {
			k = first
		}
		return ownerOf(k)
	}
	l := leafOf(c)
	if k, ok := cl.own[l]; ok {
		return ownerOf(k)
	}
	switch code := report.RuleCode(""); c.Cause {
	case report.CauseSleep:
		if cl.fixed[c.Site.Key()] {
			l.site = report.SiteKey{Func: c.Site.Module}
		}
		code = report.RuleSleep
		switch {
		case verdict.KindOf(c) == verdict.Limiter:
			code = report.RulePoolTooSmall
		case len(via) > 0 && cl.flush(c) != nil: // what a request's own goroutine does at intervals, it begins itself
			code = report.RuleFlushInterval
		}
		return owner{code: code, leaf: l}
	case "network":
		code = report.RuleSlowPeer
		if cl.in.Queued[cl.g.ID] >= scale.Half {
			return backlog
		}
		if isFile(c.Call) {
			code = report.RuleBlockingSyscall
		} else if c.Kind == "inbound" {
			code = report.RuleSlowClient
		}
		return owner{code: code, leaf: l}
	case "syscall":
		if cause.IsSocket(c.Call) {
			return owner{} // it never blocks: its thread was held up
		}
		return owner{code: report.RuleBlockingSyscall, leaf: l}
	}
	return owner{}
}

// isOthersRest reports whether a way leads to a connection that waits for its client's next request.
func isOthersRest(c *report.Cause, via []report.Via) bool {
	return c.Cause == report.CauseNetwork && c.Kind == "inbound" && len(via) > 0 && c.Site != nil && c.Site.Func == "net/http.(*conn).serve"
}

// isNextMessage reports whether a WebSocket's handler waits for what its client says next: nobody waits for that.
func isNextMessage(c *report.Cause) bool {
	return c.Cause == report.CauseNetwork && c.Kind == "inbound" && c.Site != nil && strings.Contains(c.Site.Func, "websocket.") && strings.Contains(strings.ToLower(c.Site.Func), "read")
}

// heaviest returns the first part with a cause, the heaviest one of all if none has it.
func (c *claim) heaviest(cause report.CauseName) *part {
	for i := range c.parts {
		if c.parts[i].Cause.Cause == cause {
			return &c.parts[i]
		}
	}
	return &c.parts[0]
}

func ownerOf(k viaKey) owner {
	if isLock(&k) {
		return owner{code: report.RuleLockConvoy, via: k}
	}
	return owner{code: report.RulePoolTooSmall, via: k}
}

// isFile reports whether a call reads or writes an os.File: where the poller
// waits for one it is a pipe, a terminal or a device.
func isFile(call string) bool { return strings.HasPrefix(call, "os.(*File).") }

// A claim is what one owner has of a group.
type claim struct {
	owner
	share float64 // of the group's time
	won   Won
	parts []part // of all requests, by time, the most first
	slow  []part // of the slow ones alone
}

// slowPart returns the part of slow requests that has the same cause, nil if there is none.
func (c *claim) slowPart(p *part) *part {
	for i := range c.slow {
		if s := &c.slow[i]; leafOf(s.Cause) == leafOf(p.Cause) {
			return s
		}
	}
	return nil
}

// met is the evidence of how many of the slow requests, of which the mean beside it is, met a part.
func (cl *claims) met(c *claim, p *part, what string) report.Evidence {
	e := report.Evidence{Text: "requests that " + what, Value: float64(p.Requests), Unit: "count"}
	if b := cl.g.Tail(); b.Band != report.BandAll {
		e.Text, e.Value = fmt.Sprintf("slow requests that %s, of %d", what, b.Count), 0
		if s := c.slowPart(p); s != nil {
			e.Value = float64(s.Requests)
		}
	}
	return e
}

// A part is a way to a cause.
type part struct {
	*report.Cause
	via []report.Via
	ns  int64
}

// claimsBy returns what the findings of a rule have of each group's causes,
// the weightiest first.
func claimsBy(in *Input, code report.RuleCode, f func(cl *claims, c *claim)) {
	for i := range in.Report.Groups {
		g := &in.Report.Groups[i]
		cl := claimsOf(in, g)
		found := map[owner]*claim{}
		var list []*claim
		if len(g.Bands) == 0 {
			continue
		}
		cl.each(func(c *report.Cause, r *report.Route) {
			o := cl.of(c, r.Via)
			if o.code != code {
				return
			}
			if found[o] == nil {
				found[o] = &claim{owner: o}
				list = append(list, found[o])
			}
			found[o].parts = append(found[o].parts, part{c, r.Via, r.TotalNS})
		})
		cl.eachOf(g.Tail(), func(c *report.Cause, r *report.Route) {
			if of := found[cl.of(c, r.Via)]; of != nil {
				of.slow = append(of.slow, part{c, r.Via, r.TotalNS})
			}
		})
		byTime := func(a, b part) int { return cmp.Compare(b.ns, a.ns) }
		for _, c := range list {
			slices.SortStableFunc(c.parts, byTime)
			slices.SortStableFunc(c.slow, byTime)
			c.share, c.won = weighWays(g, func(cause *report.Cause, via []report.Via) bool { return cl.of(cause, via) == c.owner })
			f(cl, c)
		}
	}
}

// weighWays is Weigh for some of the ways that lead to a cause.
func weighWays(g *report.Group, match func(*report.Cause, []report.Via) bool) (share float64, won Won) {
	return weighPart(g, func(c *report.Cause) float64 {
		mine, all := onRoutes(c, match)
		if all == 0 {
			return 0
		}
		return float64(mine) / float64(all)
	})
}

// onRoutes returns the time of the ways to a cause that match, and of all of
// them.
func onRoutes(c *report.Cause, match func(*report.Cause, []report.Via) bool) (matching, all int64) {
	routes := routesOf(c)
	for i := range routes {
		all += routes[i].TotalNS
		if match(c, routes[i].Via) {
			matching += routes[i].TotalNS
		}
	}
	return matching, all
}

// users returns the site nearest to a cause that is not the standard library's:
// its own, or that of the wait that led there.
func users(c *report.Cause, via []report.Via) *report.Site {
	if c.Site != nil && !isStd(c.Site) {
		return c.Site
	}
	for i := len(via) - 1; i >= 0; i-- {
		if s := via[i].Site; s != nil && !isStd(s) {
			return s
		}
	}
	return c.Site
}

func isStd(s *report.Site) bool { return !strings.HasPrefix(s.Func, "main.") && stdlib.Is(s.Func) }

// oneFault says of a finding about what holders do, on their own behalf, that others queue for them meanwhile: both go
// away with one fix. Of a loop's turns, for which nobody waits but by that queue, it is told quietly.
func oneFault(in *Input, all []Verdict) {
	for i := range all {
		v := &all[i]
		if v.Code != report.RuleSleep && v.Code != report.RuleSlowPeer && v.Code != report.RuleBlockingSyscall || v.Site == nil {
			continue
		}
		for k := range all {
			q := &all[k]
			if (q.Code == report.RuleLockConvoy || q.Code == report.RulePoolTooSmall) && q.Group != v.Group && q.Cause == v.Cause && q.Site != nil && q.Site.Key() == v.Site.Key() {
				v.Evidence = append(v.Evidence, report.Evidence{Text: "one fault with " + string(q.Code) + ": its requests queue behind this; they stop queueing once it is moved out of what they queue for"})
				if g := in.Report.Group(v.Group); g != nil && g.Kind == report.KindLoop && rank(q.Severity) <= rank(v.Severity) {
					v.Severity, v.Decided = report.SeverityInfo, nil
				}
				break
			}
		}
	}
}
