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
	own   map[leaf]viaKey              // sites whose own time belongs to a contended wait
	slack map[viaKey]bool              // contended waits too short to be the fault
	alias map[viaKey]viaKey            // contended waits for the same site are one fault
	fixed map[report.SiteKey]bool      // sleeps of a dependency that every request meets
	sleep map[viaKey]*part             // the heaviest sleep behind the outermost wait
	polls map[report.SiteKey]*longPoll // where requests wait on purpose
	// served says that the groups of this process for which requests wait over the network have findings of their own: what
	// happens there is found there.
	served bool
	list   []*claim // what each owner has, in the order of causes
}

// claimsOf divides the ways to the causes of a group.
func (in *Input) claimsOf(g *report.Group) *claims {
	if cl := in.claims[g]; cl != nil {
		return cl
	}
	cl := &claims{in: in, g: g, queue: map[viaKey]bool{}, own: map[leaf]viaKey{}, slack: map[viaKey]bool{}, alias: map[viaKey]viaKey{},
		fixed: map[report.SiteKey]bool{}, sleep: map[viaKey]*part{}, polls: map[report.SiteKey]*longPoll{}}
	cl.served = in.servedOf(g) != nil
	for c, r := range cl.ways(g.All()) {
		if c.Cause == report.CauseSleep && len(r.Via) > 0 {
			if k := keyOfVia(&r.Via[0]); cl.sleep[k] == nil || cl.sleep[k].ns < r.TotalNS {
				cl.sleep[k] = &part{c, r.Via, r.TotalNS}
			}
		}
	}
	cl.findFixed()
	cl.findQueues()
	cl.findPatience()
	cl.findLeads()
	cl.divide()
	if in.claims == nil {
		in.claims = map[*report.Group]*claims{}
	}
	in.claims[g] = cl
	return cl
}

// claimedBy returns what belongs to a rule, group by group.
func (in *Input) claimedBy(code report.RuleCode) iter.Seq2[*claims, *claim] {
	return func(yield func(*claims, *claim) bool) {
		for i := range in.Report.Groups {
			cl := in.claimsOf(&in.Report.Groups[i])
			for _, c := range cl.list {
				if c.code == code && !yield(cl, c) {
					return
				}
			}
		}
	}
}

// divide makes a claim of the ways of each owner.
func (cl *claims) divide() {
	of := map[owner]*claim{}
	for c, r := range cl.ways(cl.g.All()) {
		o := cl.of(c, r.Via)
		if o.code == "" {
			continue
		}
		if of[o] == nil {
			of[o] = &claim{owner: o}
			cl.list = append(cl.list, of[o])
		}
		of[o].parts = append(of[o].parts, part{c, r.Via, r.TotalNS})
	}
	for c, r := range cl.ways(cl.g.Tail()) {
		if its := of[cl.of(c, r.Via)]; its != nil {
			its.slow = append(its.slow, part{c, r.Via, r.TotalNS})
		}
	}
	byTime := func(a, b part) int { return cmp.Compare(b.ns, a.ns) }
	for _, c := range cl.list {
		slices.SortStableFunc(c.parts, byTime)
		slices.SortStableFunc(c.slow, byTime)
		c.share, c.won = weighWays(cl.g, func(cause *report.Cause, via []report.Via) bool { return cl.of(cause, via) == c.owner })
	}
}

// findFixed notes the sleeps of dependencies that every request meets.
func (cl *claims) findFixed() {
	for i := range cl.g.All().Causes {
		if c := &cl.g.All().Causes[i]; c.Cause == report.CauseSleep && c.Site != nil && c.Site.Module != "" && float64(c.Requests) >= scale.NearlyAll*float64(cl.g.Count) {
			cl.fixed[c.Site.Key()] = true
		}
	}
}

// ways are all ways to every cause of a band that rules about waiting may claim. For requests sent over the network within this
// process they begin where the answering request begins, or are left out if that has its own findings.
func (cl *claims) ways(b *report.Band) iter.Seq2[*report.Cause, *report.Route] {
	return func(yield func(*report.Cause, *report.Route) bool) {
		for c, r := range ways(b) {
			inner, asked := verdict.AfterLastAnswer(r.Via)
			if asked > 0 && cl.served {
				continue
			}
			if asked > 0 {
				r = &report.Route{Via: inner, TotalNS: r.TotalNS}
			}
			if !yield(c, r) {
				return
			}
		}
	}
}

// ways are all ways to every cause of a band that rules about waiting may claim.
func ways(b *report.Band) iter.Seq2[*report.Cause, *report.Route] {
	return func(yield func(*report.Cause, *report.Route) bool) {
		for i := range b.Causes {
			c := &b.Causes[i]
			if !waits(c.Cause) {
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

// waits are the causes that rules about waiting may claim.
func waits(cause report.CauseName) bool {
	switch cause {
	case report.CauseCPU, report.CauseSleep, report.CauseNetwork, report.CauseSyscall, report.CauseLock, report.CauseChan:
		return true
	}
	return false
}

// fault returns the wait that stands for all contended waits for the same site.
func (cl *claims) fault(k viaKey) viaKey {
	if first, ok := cl.alias[k]; ok {
		return first
	}
	return k
}

// contended returns the first contended wait of a way.
func (cl *claims) contended(via []report.Via) (viaKey, bool) {
	for i := range via {
		k := keyOfVia(&via[i])
		if isLock(k) || cl.queue[k] {
			return k, true
		}
	}
	return viaKey{}, false
}

// of returns the owner of a way to a cause; its code is "" if no rule about
// waits claims it.
func (cl *claims) of(c *report.Cause, via []report.Via) owner {
	if !waits(c.Cause) {
		return owner{}
	}
	via, asked := verdict.AfterLastAnswer(via)
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
		return ownerOf(cl.fault(k))
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
		case len(via) > 0 && cl.interval(c) != nil: // without via, the request's own goroutine sleeps, and began that itself
			code = report.RuleFlushInterval
		}
		return owner{code: code, leaf: l}
	case report.CauseNetwork:
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
	case report.CauseSyscall:
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
	if p := first(c.parts, func(p *part) bool { return p.Cause.Cause == cause }); p != nil {
		return p
	}
	return &c.parts[0]
}

func ownerOf(k viaKey) owner {
	if isLock(k) {
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
	return first(c.slow, func(s *part) bool { return leafOf(s.Cause) == leafOf(p.Cause) })
}

// met is the evidence of how many slow requests met a part: the mean beside it is over the same requests.
func (cl *claims) met(c *claim, p *part) report.Evidence {
	b := cl.g.Tail()
	if b.Band == report.BandAll {
		return measured("requests that have this wait", p.Requests, "count")
	}
	n := 0
	if s := c.slowPart(p); s != nil {
		n = s.Requests
	}
	return measured(fmt.Sprintf("slow requests that have this wait, of %d", b.Count), n, "count")
}

// A part is a way to a cause.
type part struct {
	*report.Cause
	via []report.Via
	ns  int64
}

// at is the service's line that a finding about a part names.
func (p *part) at() *report.Site { return users(p.Cause, p.via) }

// verdict begins what is said of a claim, by the part that stands for it.
func (cl *claims) verdict(c *claim, p *part) Verdict {
	return Verdict{Won: c.won, Changes: cl.halfOf(p.Cause), Finding: report.Finding{
		Cause: p.Cause.Cause, Site: p.at(), Group: cl.g.ID, Share: c.share, Confidence: 0.9,
	}}
}

// weighWays is weigh for some of the ways to a cause.
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
	routes := c.AllRoutes()
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
