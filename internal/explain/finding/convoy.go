package finding

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

func convoyRule() Rule {
	return Rule{
		Code: report.RuleLockConvoy, Name: "lock-convoy",
		Summary: "requests queue for a lock, or for a sync.Once, while its holder works or waits",
		Doc: Doc{
			Means: "Requests wait for a Mutex, an RWMutex or a sync.Once whose holder does something slow while it holds it: it computes, calls the kernel or a " +
				"peer, or sleeps. All requests that arrive in that time queue, so many requests pay for each slow operation.",
			Measured: "A trace names neither locks nor holders, but it names the goroutine that ended each wait. The critical path continues there for the duration " +
				"of the wait, so causes reached through a wait of kind lock or once are what the holders did. The site of the finding is where the holders " +
				"spent most of that time; the evidence lists the lines that waited for the lock. Only waits count: a lock that was free leaves no trace. Time " +
				"that a request spends at that site while it holds the lock itself is part of the share. Confidence is 0.95 where the trace shows all that " +
				"holders did, and lower by the part that it does not show (lock leaves). What a dependency does with its own lock held is one finding, from whichever " +
				"line it was called.",
			Before: "j.mu.Lock()\ndefer j.mu.Unlock()\nj.f.Write(rec)\nj.f.Sync()",
			After:  "j.mu.Lock()\nj.f.Write(rec)\nj.mu.Unlock()\nj.syncOnceForAll() // one Sync for all records written since the last one",
			Wrong: "Where the work must be done by one goroutine at a time, it can only become shorter. Where the holder computes and all Ps are busy, the lock " +
				"only orders a queue that would otherwise form for the Ps. If less than a quarter of the time at the holder's site is waiting for the lock " +
				"(of a group's requests, of its slow ones, and of all groups'), the slow operation is reported by its own rule instead of this one.",
		},
		Run: func(in *Input) []Verdict {
			var out []Verdict
			claimsBy(in, report.RuleLockConvoy, func(cl *claims, c *claim) {
				for _, h := range byHolder(cl, c) {
					out = append(out, convoyVerdict(cl, h))
				}
			})
			return out
		},
	}
}

// holderOf says what a holder does at a cause: where it computes is of one piece, and what a dependency does with its own lock held, nil if it is none, is
// so from wherever it was called.
func holderOf(c *report.Cause, via []report.Via, lock *report.Site) leaf {
	l := leafOf(c)
	switch {
	case c.Cause == report.CauseCPU:
		l.site = report.SiteKey{}
	case isDependencys(users(c, via), lock):
		l.site = users(c, via).LineKey()
	}
	return l
}

// isDependencys reports whether what is done at a site is a dependency's own doing, which has taken a lock: the service's code called that dependency, and
// was not called by it.
func isDependencys(s, lock *report.Site) bool {
	return lock != nil && s != nil && s.Module != "" && (s.CalledFrom == nil || strings.HasPrefix(s.CalledFrom.Calls, lock.Module))
}

// lockOf returns where a dependency takes the lock that a claim is about, nil if it is the service's own code that does.
func lockOf(c *claim) *report.Site {
	for i := range c.parts {
		for k := range c.parts[i].via {
			if v := &c.parts[i].via[k]; keyOfVia(v) == c.via && v.Site.Module != "" {
				return v.Site
			}
		}
	}
	return nil
}

// byHolder divides what belongs to a lock by what its holders do, as far as that matters: who takes one of two things out
// of the lock still waits for the other. What does not matter goes with the first.
func byHolder(cl *claims, c *claim) []*claim {
	sums, all := map[leaf]int64{}, int64(0)
	var order []leaf
	lock := lockOf(c)
	for i := range c.said() {
		p := &c.said()[i]
		if _, ok := cl.contended(p.via); !ok {
			continue
		}
		l := holderOf(p.Cause, p.via, lock)
		if _, ok := sums[l]; !ok {
			order = append(order, l)
		}
		sums[l] += p.ns
		all += p.ns
	}
	slices.SortStableFunc(order, func(a, b leaf) int { return cmp.Compare(sums[b], sums[a]) })
	for i, l := range order {
		if i > 0 && float64(sums[l]) < scale.Much*float64(all) {
			order = order[:i]
			break
		}
	}
	if len(order) < 2 {
		return []*claim{c}
	}
	out := make([]*claim, 0, len(order))
	for i, l := range order {
		mine := func(c *report.Cause, via []report.Via) bool {
			h := holderOf(c, via, lock)
			return h == l || i == 0 && !slices.Contains(order, h)
		}
		h := &claim{owner: c.owner}
		for _, list := range []struct{ from, to *[]part }{{&c.parts, &h.parts}, {&c.slow, &h.slow}} {
			for _, p := range *list.from {
				if mine(p.Cause, p.via) {
					*list.to = append(*list.to, p)
				}
			}
		}
		h.share, h.won = weighWays(cl.g, func(cause *report.Cause, via []report.Via) bool {
			return mine(cause, via) && cl.of(cause, via) == c.owner
		})
		if len(h.parts) > 0 {
			out = append(out, h)
		}
	}
	return out
}

// said are the parts that evidence speaks of: those of the slow requests, of which the mean beside it is.
func (c *claim) said() []part {
	if len(c.slow) > 0 {
		return c.slow
	}
	return c.parts
}

func convoyVerdict(cl *claims, c *claim) Verdict {
	var queuedNS, all, unseen int64
	locks := map[string]bool{}
	var where []string
	for i := range c.said() {
		p := &c.said()[i]
		all += p.ns
		k, ok := cl.contended(p.via)
		if !ok {
			continue
		}
		queuedNS += p.ns
		if p.Cause.Cause == report.CauseLock {
			unseen += p.ns
		}
		if w := lockKind(&k) + " at " + place(k.site.Site()); !locks[w] && len(where) < 3 {
			locks[w] = true
			where = append(where, w)
		}
	}
	top := topPart(cl, c.said())
	f := report.Finding{
		Title: fmt.Sprintf("requests queue for %s while its holder %s", lockKind(&c.via), doing(top.Cause, top.via)),
		Cause: top.Cause.Cause, Site: users(top.Cause, top.via), Group: cl.g.ID, Share: c.share,
		Confidence: 0.95 * (1 - float64(unseen)/float64(max(all, 1))),
		Evidence: []report.Evidence{
			{Text: "mean per slow request", Value: float64(c.won.SlowNS), Unit: "ns"},
			{Text: "share of it spent waiting for " + strings.Join(where, ", "), Value: part1(queuedNS, all), Unit: "share"},
		},
	}
	if t := cl.others(leafOf(top.Cause)); 2*queuedNS < all && isMuch(t.queued, t.own) {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "share of all groups' time there spent waiting for the holders", Value: part1(t.queued, t.queued+t.own), Unit: "share"})
	}
	f.Evidence = append(f.Evidence, holders(cl, c, queuedNS)...)
	if t := cl.in.turns(top.Cause, top.via); t != nil {
		f.Evidence = append(f.Evidence, report.Evidence{Text: "requests waiting for one holder at the same time, on average", Value: t.Waiting, Unit: "count"})
	}
	if behindReader(top.via) {
		f.Title = fmt.Sprintf("requests queue for %s behind a writer that waits for a reader that %s", lockKind(&c.via), doing(top.Cause, top.via))
	}
	switch {
	case behindReader(top.via):
		f.Fix = fmt.Sprintf("hold the lock for less time at %s, although it only reads: once a writer waits, all later readers wait behind it; read in parts, or read a copy that writers replace (an atomic.Pointer)", place(f.Site))
	case c.via.wait == "once":
		f.Fix = "initialise before the first request arrives, or let requests that do not need it continue without it"
	case top.Cause.Cause == report.CauseCPU && strings.Contains(c.via.call, writeLock):
		// Readers and writers hold a writer up alike, and its wait does not tell them apart.
		f.Fix = fmt.Sprintf("hold the lock for less time at %s: a writer builds the new state outside of the lock and takes the lock, or swaps an atomic.Pointer, only to put it in place; a reader takes a copy, or reads in parts", place(f.Site))
	case top.Cause.Cause == report.CauseCPU && strings.Contains(c.via.call, "RWMutex"):
		f.Fix = "build the new state outside of the lock and take the lock, or swap an atomic.Pointer, only to put it in place"
	case top.Cause.Cause == report.CauseCPU:
		f.Fix = "compute outside of the lock, or split what it guards so that requests take different locks"
	case top.Cause.Cause == report.CauseSyscall && syscallOf(top.Cause).name == "sync":
		f.Fix = "do not sync with the lock held: let one goroutine sync once for all requests that arrived since its last sync (group commit)"
	case top.Cause.Cause == report.CauseNetwork && isFile(top.Cause.Call) && strings.Contains(top.Cause.Call, "Write"):
		f.Fix = fmt.Sprintf("the reader of the pipe written at %s is slow, and all writers queue: write from a separate goroutine through a bounded buffer that drops or counts what does not fit, and make the reader faster", place(f.Site))
	case isDependencys(f.Site, lockOf(c)):
		f.Fix = fmt.Sprintf("have the library do that in the background, or once for several calls, if it can, or call it less often: the lock is its own (%s)", lockOf(c).Module)
	default:
		f.Fix = fmt.Sprintf("move %s out of the lock: copy what it needs, release the lock, then do it", place(cl.workOf(c, top)))
	}
	f.Queue = cl.queueOf(c, lockKind(&c.via))
	return Verdict{Won: c.won, Finding: f, Changes: cl.halfOf(top.Cause)}
}

// workOf returns the line of the service's own that works while a lock or a place is held, for who could do that at another time: the call in the function
// that has taken it, if that was seen, else where the holder is.
func (cl *claims) workOf(c *claim, top *part) *report.Site {
	for i := range cl.in.Under {
		if u := &cl.in.Under[i]; u.Wait.LineKey() == c.via.site && u.Site.Meets(top.Site) && u.Line.Module == "" && !isStd(u.Line) {
			return u.Line
		}
	}
	return users(top.Cause, top.via)
}

// behindReader reports whether a way leads from an RWMutex's reader to a writer that waits for it too. Whom that writer
// waits for reads: had another writer had the lock, its unlocking would have let the readers go first.
func behindReader(via []report.Via) bool {
	for i := 1; i < len(via); i++ {
		if strings.Contains(via[i-1].Call, readLock) && strings.Contains(via[i].Call, writeLock) {
			return true
		}
	}
	return false
}

// topPart returns the heaviest part that was reached through the wait.
func topPart(cl *claims, parts []part) *part {
	for i := range parts {
		if _, ok := cl.contended(parts[i].via); ok {
			return &parts[i]
		}
	}
	return &parts[0]
}

// holders lists what was done behind the wait, the most first.
func holders(cl *claims, c *claim, all int64) []report.Evidence {
	type sum struct {
		p  *part
		ns int64
	}
	var sums []sum
	at := map[leaf]int{}
	for i := range c.said() {
		p := &c.said()[i]
		if _, ok := cl.contended(p.via); !ok {
			continue
		}
		l := leafOf(p.Cause)
		k, ok := at[l]
		if !ok {
			k = len(sums)
			at[l] = k
			sums = append(sums, sum{p: p})
		}
		sums[k].ns += p.ns
	}
	var out []report.Evidence
	for _, s := range sums[:min(len(sums), 3)] {
		if part1(s.ns, all) >= 0.03 {
			out = append(out, report.Evidence{Text: "share of the waiting in which the holder " + doing(s.p.Cause, s.p.via), Value: part1(s.ns, all), Unit: "share"})
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
func lockKind(k *viaKey) string {
	switch {
	case k.wait == "once":
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
