package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// Goroutines that a request started may wait for the same result, one of them inside of the lock that guards it. Who holds that lock works for
// the request: the others would wait as long without it, and no other request queues.

// siblingSum adds up the waits for a lock at one line, and of those what a goroutine of the same request ended.
type siblingSum struct{ waitNS, bySiblingNS int64 }

func (s siblingSum) plus(addend siblingSum) siblingSum {
	return siblingSum{s.waitNS + addend.waitNS, s.bySiblingNS + addend.bySiblingNS}
}

// addSiblingLocks takes note of who gave the locks back that a request waited for.
func (p *workerSum) addSiblingLocks(w *path.WalkResult) {
	waits := w.FollowedWaits()
	for i := range waits {
		wait := &waits[i]
		if wait.Kind != critpath.WaitLock && wait.Kind != critpath.WaitOnce || wait.Waker == 0 {
			continue
		}
		site, sum := p.stage.Sites.SiteOf(wait.Stack), siblingSum{waitNS: wait.End - wait.Start}
		if p.isStartedBy(w.Req, wait.Waker, wait.End) {
			sum.bySiblingNS = sum.waitNS
		}
		p.siblingLocks[site] = p.siblingLocks[site].plus(sum)
	}
}

// maxAncestors bounds how far back from a goroutine those are looked at that started it.
const maxAncestors = 8

// isStartedBy reports whether a goroutine works for a request at time t: it is the request's own, or was started for it, by one that was, and so on.
func (p *workerSum) isStartedBy(r *request.Request, g uint64, t int64) bool {
	for range maxAncestors {
		if g == r.G {
			return true
		}
		birth, ok := p.stage.Win.Born(g, t)
		if !ok || birth.Time < r.Start {
			return false
		}
		g, t = birth.By, birth.Time
	}
	return false
}

// SiblingShare says which part of the time that requests waited for a lock at a line was ended by goroutines of the same request, in the slices of
// time that were looked at.
type SiblingShare struct {
	Site  *report.Site
	Share float64
}

// SiblingShares returns these sums. Merge must have been called.
func (s *Sum) SiblingShares(sp *spell.Speller) []SiblingShare {
	var out []SiblingShare
	for site, sum := range s.workers[0].siblingLocks {
		if sum.bySiblingNS > 0 {
			out = append(out, SiblingShare{sp.Site(site), float64(sum.bySiblingNS) / float64(sum.waitNS)})
		}
	}
	slices.SortFunc(out, func(a, b SiblingShare) int { return a.Site.Compare(b.Site) })
	return out
}
