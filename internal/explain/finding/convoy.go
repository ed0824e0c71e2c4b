package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// checkLockConvoy is WL2002, lock-convoy.
func checkLockConvoy(in *Input) (out []Verdict) {
	for cl, c := range in.candidatesOf(report.RuleLockConvoy) {
		for _, h := range byHolder(cl, c) {
			out = append(out, convoyVerdict(cl, h))
		}
	}
	return out
}

// holderOf says what a holder does at a cause. All its computing counts as one thing. So does what a dependency does while it holds its
// own lock (nil if it has none), whichever line called it.
func holderOf(c *report.Cause, via []report.Via, lock *report.Site) causeSite {
	l := causeSiteOf(c)
	switch {
	case c.Cause == report.CauseCPU:
		l.site = report.SiteKey{}
	case isDependencys(nonStdSite(c, via), lock):
		l.site = nonStdSite(c, via).LineKey()
	}
	return l
}

// isDependencys reports whether a site is in the dependency that has taken the lock, and not in the service's code that it called back.
func isDependencys(s, lock *report.Site) bool {
	return lock != nil && s != nil && s.Module != "" && (s.CalledFrom == nil || strings.HasPrefix(s.CalledFrom.Calls, lock.Module))
}

// lockOf returns where a dependency takes the lock that a claim is about, nil if it is the service's own code that does.
func lockOf(c *candidate) *report.Site {
	for i := range c.routes {
		for k := range c.routes[i].via {
			if v := &c.routes[i].via[k]; waitKeyOf(v) == c.wait && v.Site.Module != "" {
				return v.Site
			}
		}
	}
	return nil
}

// byHolder divides what belongs to a lock by what its holders do: after one of two things is moved out of the lock, requests still
// wait for the other. Small parts go with the largest.
func byHolder(cl *attribution, c *candidate) []*candidate {
	sums, all := map[causeSite]int64{}, int64(0)
	var order []causeSite
	lock := lockOf(c)
	for i := range c.reportedRoutes() {
		p := &c.reportedRoutes()[i]
		if _, ok := cl.contendedWait(p.via); !ok {
			continue
		}
		l := holderOf(p.Cause, p.via, lock)
		if _, ok := sums[l]; !ok {
			order = append(order, l)
		}
		sums[l] += p.routeNS
		all += p.routeNS
	}
	slices.SortStableFunc(order, func(a, b causeSite) int { return cmp.Compare(sums[b], sums[a]) })
	for i, l := range order {
		if i > 0 && float64(sums[l]) < scale.Much*float64(all) {
			order = order[:i]
			break
		}
	}
	if len(order) < 2 {
		return []*candidate{c}
	}
	out := make([]*candidate, 0, len(order))
	for i, l := range order {
		mine := func(c *report.Cause, via []report.Via) bool {
			h := holderOf(c, via, lock)
			return h == l || i == 0 && !slices.Contains(order, h)
		}
		h := &candidate{candidateKey: c.candidateKey}
		for _, list := range []struct{ from, to *[]causeRoute }{{&c.routes, &h.routes}, {&c.slowRoutes, &h.slowRoutes}} {
			for _, p := range *list.from {
				if mine(p.Cause, p.via) {
					*list.to = append(*list.to, p)
				}
			}
		}
		h.share, h.won = weighRoutes(cl.group, func(cause *report.Cause, via []report.Via) bool {
			return mine(cause, via) && cl.keyOf(cause, via) == c.candidateKey
		})
		if len(h.routes) > 0 {
			out = append(out, h)
		}
	}
	return out
}

// reportedRoutes are the parts that evidence is about: those of the slow requests, as is the mean beside it.
func (c *candidate) reportedRoutes() []causeRoute {
	if len(c.slowRoutes) > 0 {
		return c.slowRoutes
	}
	return c.routes
}

func convoyVerdict(cl *attribution, c *candidate) Verdict {
	var queuedNS, all, unseen int64
	locks := map[string]bool{}
	var where []string
	for i := range c.reportedRoutes() {
		p := &c.reportedRoutes()[i]
		all += p.routeNS
		k, ok := cl.contendedWait(p.via)
		if !ok {
			continue
		}
		queuedNS += p.routeNS
		if p.Cause.Cause == report.CauseLock {
			unseen += p.routeNS
		}
		if w := lockKind(k) + " at " + place(k.site.Site()); !locks[w] && len(where) < 3 {
			locks[w] = true
			where = append(where, w)
		}
	}
	top := topPart(cl, c.reportedRoutes())
	v := cl.newVerdict(c, top)
	v.Title = fmt.Sprintf("requests queue for %s while its holder %s", lockKind(c.wait), top.doing())
	if behindReader(top.via) {
		v.Title = fmt.Sprintf("requests queue for %s behind a writer that waits for a reader that %s", lockKind(c.wait), top.doing())
	}
	v.Confidence = 0.95 * (1 - float64(unseen)/float64(max(all, 1)))
	v.say(
		measured("mean per slow request", c.won.Slow.NS, "ns"),
		measured("share of it spent waiting for "+strings.Join(where, ", "), part1(queuedNS, all), "share"))
	if t := cl.others(causeSiteOf(top.Cause)); 2*queuedNS < all && t.isMuch() {
		v.say(measured("share of all groups' time there spent waiting for the holders", part1(t.queued, t.queued+t.own), "share"))
	}
	v.say(holders(cl, c, queuedNS)...)
	if t := cl.in.turns(top.Cause, top.via); t != nil {
		v.say(measured("requests waiting for one holder at the same time, on average", t.Waiting, "count"))
	}
	switch {
	case behindReader(top.via):
		v.Fix = fmt.Sprintf("hold the lock for less time at %s, although it only reads: once a writer waits, all later readers wait behind it; read in parts, or read a copy that writers replace (an atomic.Pointer)", place(v.Site))
	case c.wait.kind == report.WaitOnce:
		v.Fix = "initialise before the first request arrives, or let requests that do not need it continue without it"
	case top.Cause.Cause == report.CauseCPU && strings.Contains(c.wait.call, writeLock):
		// Readers and writers hold a writer up alike, and its wait does not tell them apart.
		v.Fix = fmt.Sprintf("hold the lock for less time at %s: a writer builds the new state outside of the lock and takes the lock, or swaps an atomic.Pointer, only to put it in place; a reader takes a copy, or reads in parts", place(v.Site))
	case top.Cause.Cause == report.CauseCPU && strings.Contains(c.wait.call, "RWMutex"):
		v.Fix = "build the new state outside of the lock and take the lock, or swap an atomic.Pointer, only to put it in place"
	case top.Cause.Cause == report.CauseCPU:
		v.Fix = "compute outside of the lock, or split what it guards so that requests take different locks"
	case top.Cause.Cause == report.CauseSyscall && syscallOf(top.Cause).name == "sync":
		v.Fix = "do not sync with the lock held: let one goroutine sync once for all requests that arrived since its last sync (group commit)"
	case top.Cause.Cause == report.CauseNetwork && isFileCall(top.Cause.Call) && strings.Contains(top.Cause.Call, "Write"):
		v.Fix = fmt.Sprintf("the reader of the pipe written at %s is slow, and all writers queue: write from a separate goroutine through a bounded buffer that drops or counts what does not fit, and make the reader faster", place(v.Site))
	case isDependencys(v.Site, lockOf(c)):
		v.Fix = fmt.Sprintf("have the library do that in the background, or once for several calls, if it can, or call it less often: the lock is its own (%s)", lockOf(c).Module)
	default:
		v.Fix = fmt.Sprintf("move %s out of the lock: copy what it needs, release the lock, then do it", place(cl.movableWork(c, top)))
	}
	v.Queue = cl.queueOf(c, lockKind(c.wait))
	return v
}

// movableWork returns the service's own line that works while a lock or a place is held, and could do so at another time: the call in the
// function that took it, if that was seen, else where the holder is.
func (cl *attribution) movableWork(c *candidate, top *causeRoute) *report.Site {
	u := first(cl.in.Under, func(u *queues.Under) bool {
		return u.Wait.LineKey() == c.wait.site && u.Site.Meets(top.Site) && u.Line.Module == "" && !isStdSite(u.Line)
	})
	if u != nil {
		return u.Line
	}
	return top.nonStdSite()
}

// behindReader reports whether a way leads from an RWMutex's reader to a writer that also waits for it. That writer waits for a
// reader: if another writer had held the lock, its unlocking would have let the readers go first.
func behindReader(via []report.Via) bool {
	for i := 1; i < len(via); i++ {
		if strings.Contains(via[i-1].Call, readLock) && strings.Contains(via[i].Call, writeLock) {
			return true
		}
	}
	return false
}

// topPart returns the heaviest part that was reached through the wait.
func topPart(cl *attribution, parts []causeRoute) *causeRoute {
	if p := first(parts, func(p *causeRoute) bool { _, ok := cl.contendedWait(p.via); return ok }); p != nil {
		return p
	}
	return &parts[0]
}

// holders lists what was done behind the wait, the most first.
func holders(cl *attribution, c *candidate, all int64) []report.Evidence {
	type sum struct {
		p  *causeRoute
		ns int64
	}
	var sums []sum
	at := map[causeSite]int{}
	for i := range c.reportedRoutes() {
		p := &c.reportedRoutes()[i]
		if _, ok := cl.contendedWait(p.via); !ok {
			continue
		}
		l := causeSiteOf(p.Cause)
		k, ok := at[l]
		if !ok {
			k = len(sums)
			at[l] = k
			sums = append(sums, sum{p: p})
		}
		sums[k].ns += p.routeNS
	}
	var out []report.Evidence
	for _, s := range sums[:min(len(sums), 3)] {
		if part1(s.ns, all) >= 0.03 {
			out = append(out, measured("share of the waiting in which the holder "+s.p.doing(), part1(s.ns, all), "share"))
		}
	}
	return out
}

func part1(a, b int64) float64 {
	if b <= 0 {
		return 0
	}
	return min(1, float64(a)/float64(b))
}

// lockKind names the sort of lock.
func lockKind(k waitKey) string {
	switch {
	case k.kind == report.WaitOnce:
		return "a sync.Once"
	case strings.Contains(k.call, readLock):
		return "an RWMutex (to read)"
	case strings.Contains(k.call, "RWMutex"):
		return "an RWMutex (to write)"
	case strings.Contains(k.call, "Mutex"):
		return "a Mutex"
	}
	return "a lock"
}
