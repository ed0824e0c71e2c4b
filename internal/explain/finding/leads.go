package finding

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// Whether a queue is the fault, or what requests queue for.

// findLeads finds what takes most of the time behind each contended wait, and
// whether time at that site without a wait belongs to the same fault.
func (a *attribution) findLeads() {
	behind, at := map[waitKey]map[causeSite]int64{}, map[causeSite]split{}
	total := map[waitKey]int64{}
	for c, r := range a.routes(a.group.All()) {
		l := causeSiteOf(c)
		k, ok := a.contendedWait(r.Via)
		if !ok {
			at[l] = at[l].plus(false, r.TotalNS)
			continue
		}
		if behind[k] == nil {
			behind[k] = map[causeSite]int64{}
		}
		behind[k][l] += r.TotalNS
		total[k] += r.TotalNS
	}
	keys := slices.SortedFunc(maps.Keys(behind), func(a, b waitKey) int { return cmp.Or(cmp.Compare(total[b], total[a]), compareVia(a, b)) })
	leads := map[waitKey]causeSite{}
	for _, k := range keys {
		lead := topLeaf(behind[k])
		leads[k], at[lead] = lead, at[lead].plus(true, behind[k][lead])
	}
	slow := a.slow()
	for _, k := range keys {
		lead := leads[k]
		if here := at[lead]; a.in.isHeldBySiblings(k) && float64(here.own) >= scale.Some*float64(here.own+here.queued) {
			a.minorWaits[k] = true // the request waits for that without the lock, too: it guards a result for which all of its goroutines wait
			continue
		}
		if !at[lead].isMuch() && !slow[lead].isMuch() && !(isLockWait(k) && a.others(lead).isMuch()) {
			a.minorWaits[k] = true
			continue
		}
		if first, ok := a.contendedSites[lead]; ok {
			a.canonicalWaits[k] = first
		} else {
			a.contendedSites[lead] = k
		}
	}
}

// A split is the time at a site: of requests that queued for it, and of those that did not.
type split struct{ queued, own int64 }

func (s split) plus(queued bool, ns int64) split {
	if queued {
		s.queued += ns
	} else {
		s.own += ns
	}
	return s
}

// isMuch reports whether the queue is the fault, not what they queued for.
func (s split) isMuch() bool {
	return s.queued > 0 && float64(s.queued) >= scale.Much*float64(s.queued+s.own)
}

// slow returns what the slow requests spent at each site: if a request's own turn is as long as all others', the queue is
// what makes it slow.
func (a *attribution) slow() map[causeSite]split {
	of := map[causeSite]split{}
	if b := a.group.Tail(); b.Band != report.BandAll && b.Count >= scale.Few {
		for c, r := range a.routes(b) {
			_, queued := a.contendedWait(r.Via)
			of[causeSiteOf(c)] = of[causeSiteOf(c)].plus(queued, r.TotalNS)
		}
	}
	return of
}

// others returns what requests of all groups spent at a site: the group that queues for a lock need not be the one that
// holds it.
func (a *attribution) others(l causeSite) split {
	if a.in.atSites == nil {
		a.in.atSites = map[causeSite]split{}
		for i := range a.in.Report.Groups {
			for c, r := range attributableRoutes(a.in.Report.Groups[i].All()) {
				if _, asked := verdict.AfterLastAnswer(r.Via); asked > 0 {
					continue // the group that serves them has that time
				}
				queued := slices.ContainsFunc(r.Via, func(v report.Via) bool { k := waitKeyOf(&v); return isLockWait(k) })
				a.in.atSites[causeSiteOf(c)] = a.in.atSites[causeSiteOf(c)].plus(queued, r.TotalNS)
			}
		}
	}
	return a.in.atSites[l]
}

func compareVia(a, b waitKey) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), a.site.Compare(b.site), strings.Compare(a.call, b.call))
}

func topLeaf(of map[causeSite]int64) causeSite {
	var best causeSite
	top := int64(-1)
	for l, ns := range of {
		if ns > top || ns == top && cmp.Or(cmp.Compare(l.cause, best.cause), l.site.Compare(best.site)) < 0 {
			best, top = l, ns
		}
	}
	return best
}
