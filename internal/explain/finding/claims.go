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

// One fault has several symptoms: a slow call under a lock is a slow call for
// the goroutine that holds the lock, and a wait for the lock for all others. So
// that it is reported once, every way to every cause of a group belongs to one
// rule:
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

// A viaKey identifies a wait as reports name it.
type viaKey struct {
	wait report.WaitKind
	call string
	site report.SiteKey
}

// keyOfVia ignores where a dependency was called from: all callers share its lock or pool.
func keyOfVia(v *report.Via) viaKey {
	return viaKey{wait: v.Wait, call: v.Call, site: v.Site.LineKey()}
}

// A leaf is a cause at a site. In a dependency, the site is the service's own line that called it, because one such call may
// wait at several places of the dependency, and there is one thing to change.
type leaf struct {
	cause report.CauseName
	site  report.SiteKey
}

func leafOf(c *report.Cause) leaf {
	l := leaf{cause: c.Cause, site: c.Site.Own().Key()}
	if c.Cause == report.CauseNetwork && c.Kind == "inbound" {
		l.cause = "inbound"
	}
	return l
}

// An owner is the rule and the one finding that a way to a cause belongs to.
type owner struct {
	code report.RuleCode
	via  viaKey // of a convoy or a pool
	leaf leaf   // of all other findings
}

// claims decides which owner each way to a cause of a group has.
type claims struct {
	in    *Input
	g     *report.Group
	queue map[viaKey]bool              // waits at channels, selects and Conds that are queues
	lead  map[viaKey]leaf              // what takes most of the time behind a contended wait
	own   map[leaf]viaKey              // sites whose own time belongs to a contended wait
	slack map[viaKey]bool              // contended waits too short to be the fault
	alias map[viaKey]viaKey            // contended waits for the same site are one fault
	fixed map[report.SiteKey]bool      // sleeps of a dependency that every request meets
	sleep map[viaKey]*part             // the heaviest sleep behind the outermost wait
	polls map[report.SiteKey]*longPoll // where requests wait on purpose
	// served says that the groups of this process for which requests wait over the network have findings of their own: what
	// happens there is found there.
	served bool
}

// routesOf returns the ways to a cause.
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

// findQueues decides which waits are queues, by what most of the time behind each was.
func (cl *claims) findQueues() {
	yes, all := map[viaKey]int64{}, map[viaKey]int64{}
	cl.each(func(c *report.Cause, r *report.Route) {
		for i := range r.Via {
			if v := &r.Via[i]; isHandOver(v.Wait) {
				k := keyOfVia(v)
				p := cl.in.places(&k)
				if isOwnWork(p) && !isFanOut(&k, p) {
					continue // goroutines that the request started may queue elsewhere
				}
				all[k] += r.TotalNS
				if isNews(&k, p) {
					break
				}
				if t := cl.in.turns(c, r.Via); isFanOut(&k, p) || isSemaphore(&k) || poolsOfStd[k.call].only || isPool(p) || t != nil && isQueue(t, c, v) {
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

// eachOf calls f for every way to a cause of a band that rules about waiting may claim. For requests sent over the
// network within this process, ways begin where the answering request begins, or are left out if that has its own findings.
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
// while others wait. A goroutine that serves all waiters at once has no queue, nor has one that reads the answers of a
// connection that many share, unless it also sends each request itself: then it serves them one after the other.
func isQueue(t *queues.Turns, c *report.Cause, v *report.Via) bool {
	if t.Served < scale.Few {
		return false
	}
	if asksInPassing(t, c) {
		return true
	}
	if t.Together > 1.5 {
		return false
	}
	if t.Taken > 0.5 {
		return true
	}
	if c.Cause == report.CauseNetwork && t.Asked < scale.NearlyAll && !isPoolOfStd(v.Call) {
		return false
	}
	waiting := t.Waiting * (1 - t.Locked) // who came through a lock queues there
	return waiting >= 1.3 && waiting >= 1.2*t.Together
}

// asksInPassing reports whether a goroutine asks a peer while others wait for it for whom it does not ask: they queue, however many it serves when
// it has the answer. Who asks for all that lies there lets those who come later wait for its next answer.
func asksInPassing(t *queues.Turns, c *report.Cause) bool {
	return c.Cause == report.CauseNetwork && t.Asked >= scale.NearlyAll && t.Ahead >= scale.Much
}

// isFanOut reports whether a request waits because it may start only so many goroutines at a time: they are its own, one for
// each piece of work, and not other requests' turns.
func isFanOut(k *viaKey, p *queues.Places) bool {
	if k.wait == report.WaitChanSend && strings.HasPrefix(k.site.Func, "golang.org/x/sync/errgroup.(*Group).") {
		return true
	}
	return isOwnWork(p) && k.wait == report.WaitChanSend && p.Most > 1 && p.Each < 2
}

// isOwnWork reports whether the waits are ended by goroutines that the waiters started themselves.
func isOwnWork(p *queues.Places) bool { return p != nil && p.Children > 0.5 }

// isPool reports whether requests wait for a place that other requests free.
func isPool(p *queues.Places) bool {
	return p != nil && p.Ended >= scale.Few && p.Mutual >= scale.Much && p.Together <= 1.5
}

// isCrew reports whether requests wait for a free worker, which then does what they hand to it. It decides if that worker
// waits for the network: a goroutine that reads all answers of a shared connection looks the same otherwise (see isQueue).
func isCrew(p *queues.Places) bool {
	return p != nil && p.Ended >= scale.Few && p.Serving > 0.5 && p.Together <= 1.5
}

// isNews reports whether requests wait for news from other requests (a long poll, a subscription): those end many waits and
// never waited there themselves. In a pool, some of those who hold a place have waited for it.
func isNews(k *viaKey, p *queues.Places) bool {
	return !isPoolOfStd(k.call) && p != nil && p.Ended >= scale.Enough && p.Mutual == 0 && p.Serving == 0 && p.Others > 0.5
}

// places returns the facts about the goroutines that ended the waits at a line.
func (in *Input) places(k *viaKey) *queues.Places {
	for i := range in.Places {
		if p := &in.Places[i]; p.Wait == k.wait && p.Site.LineKey() == k.site {
			return p
		}
	}
	return nil
}

// isSemaphore reports whether a request waits for a place of a semaphore. Every holder frees its place, so all waiters queue,
// whatever the holders do meanwhile and on which goroutine.
func isSemaphore(k *viaKey) bool {
	return k.wait == report.WaitSelect && k.site.Func == acquire
}

const (
	semaphores = "golang.org/x/sync/semaphore."
	acquire    = semaphores + "(*Weighted).Acquire"
)

// inVain reports whether a request waits for a place until its own deadline ends that: nobody gave one back.
func inVain(c *report.Cause) bool {
	return verdict.KindOf(c) == verdict.Deadline && c.Site != nil && (c.Site.Func == acquire || poolsOfStd[c.Call].only)
}

// turns returns the facts about requests that waited for others at a cause.
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

// findLeads finds what takes most of the time behind each contended wait, and
// whether time at that site without a wait belongs to the same fault.
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
	waited := map[leaf]int64{} // at a site, by all requests that queued for it
	for _, k := range keys {
		lead := topLeaf(behind[k])
		cl.lead[k] = lead
		waited[lead] += behind[k][lead]
	}
	slow := cl.slow()
	for _, k := range keys {
		lead := cl.lead[k]
		if cl.in.siblings(&k) && float64(own[lead]) >= scale.Some*float64(own[lead]+waited[lead]) {
			cl.slack[k] = true // the request waits for that without the lock, too: it guards a result for which all of its goroutines wait
			continue
		}
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

// A split is the time at a site: of requests that queued for it, and of those that did not.
type split struct{ queued, own int64 }

// isMuch reports whether requests spent so much time in a queue that the queue is the fault, not what they queued for.
func isMuch(waited, own int64) bool {
	return waited > 0 && float64(waited) >= scale.Much*float64(waited+own)
}

// slow returns what the slow requests spent at each site: if a request's own turn is as long as all others', the queue is
// what makes it slow.
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

// others returns what requests of all groups spent at a site: the group that queues for a lock need not be the one that
// holds it.
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
					return // the group that serves them has that time
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

// contended returns the first contended wait of a way.
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
// The locks of an os.File and a log.Logger only keep writes in order: the fault
// is where they write to. A handler of log/slog, or another library's, is the
// service's choice, and so is its lock. A wait that began before the trace, whose
// kind and place are unknown, is not a lock.
func isLock(k *viaKey) bool {
	return k.site.Func != "" && (k.wait == report.WaitOnce || k.wait == report.WaitLock && !isFile(k.call) && !isLogger(k.call))
}

// siblings reports whether those who hold a lock work for the same request as those who wait for it.
func (in *Input) siblings(k *viaKey) bool {
	return isLock(k) && slices.ContainsFunc(in.Siblings, func(s queues.Siblings) bool { return s.Part >= scale.Most && s.Site.LineKey() == k.site })
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
		case verdict.KindOf(c) == verdict.Limiter, inVain(c):
			code = report.RulePoolTooSmall
		case len(via) > 0 && cl.flush(c) != nil: // without via, the request's own goroutine sleeps, and began that itself
			code = report.RuleFlushInterval
		}
		return owner{code: code, leaf: l}
	case "network":
		code = report.RuleSlowPeer
		if cl.in.Queued[cl.g.ID] >= scale.Half && c.Kind != "inbound" {
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
			return owner{} // the call never blocks: its thread did not get a CPU
		}
		return owner{code: report.RuleBlockingSyscall, leaf: l}
	}
	return owner{}
}

// isOthersRest reports whether a way leads to a connection that waits for its client's next request.
func isOthersRest(c *report.Cause, via []report.Via) bool {
	return c.Cause == report.CauseNetwork && c.Kind == "inbound" && len(via) > 0 && c.Site != nil && c.Site.Func == "net/http.(*conn).serve"
}

// isNextMessage reports whether a WebSocket's handler waits for its client's next message: that delays no request.
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

// A claim is one owner's part of a group.
type claim struct {
	owner
	share float64 // of the group's time
	won   Won
	parts []part // of all requests, the longest first
	slow  []part // of the slow requests alone
}

// slowPart returns the slow requests' part with the same leaf, nil if there is none.
func (c *claim) slowPart(p *part) *part {
	for i := range c.slow {
		if s := &c.slow[i]; leafOf(s.Cause) == leafOf(p.Cause) {
			return s
		}
	}
	return nil
}

// met is the evidence of how many slow requests met a part: the mean beside it is over the same requests.
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

// claimsBy calls f with each claim of a rule, group by group.
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

// weighWays is Weigh for some of the ways to a cause.
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

// users returns the site nearest to a cause that is not in the standard library:
// the cause's own, or that of a wait that led there.
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

// oneFault adds to a finding about what holders do that other requests queue behind them meanwhile: one fix removes both.
// If the holders are turns of a loop, for which requests wait only through that queue, the finding becomes info.
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
