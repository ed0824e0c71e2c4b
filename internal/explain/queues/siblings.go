package queues

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// Several goroutines of one request may wait for the same result while one of them computes it inside of a lock. The lock's
// holder then works for the same request: without the lock the others would wait just as long, and no other request queues.

// A siblingSum adds up the waits for a lock at one line, and the part of that time that a goroutine of the same request ended.
type siblingSum struct{ waitNS, bySiblingNS int64 }

func (s siblingSum) plus(addend siblingSum) siblingSum {
	return siblingSum{s.waitNS + addend.waitNS, s.bySiblingNS + addend.bySiblingNS}
}

// addSiblingLocks adds the waits for locks on a request's path, and which of them a goroutine of the same request ended.
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

// maxAncestors bounds the chain of creators that is followed from a goroutine.
const maxAncestors = 8

// isStartedBy reports whether goroutine g, at time t, belongs to a request: it is the request's own goroutine, or was created
// during the request by that goroutine or by one of its descendants.
func (p *workerSum) isStartedBy(r *request.Request, g uint64, t int64) bool {
	for range maxAncestors {
		if g == r.G {
			return true
		}
		birth, ok := p.stage.Win.BirthBefore(g, t)
		if !ok || birth.Time < r.Start {
			return false
		}
		g, t = birth.Creator, birth.Time
	}
	return false
}

// A SiblingShare is, for the waits for a lock at one line, the share of the waiting time that ended by a goroutine of the same
// request, in the sampled slices of the trace.
type SiblingShare struct {
	Site  *report.Site
	Share float64
}

// SiblingShares returns the shares above 0, one a source line. Merge must have been called.
func (s *Sum) SiblingShares(sp *spell.Speller) (out []SiblingShare) {
	for site, sum := range s.workers[0].siblingLocks {
		if sum.bySiblingNS > 0 {
			out = append(out, SiblingShare{sp.Site(site), float64(sum.bySiblingNS) / float64(sum.waitNS)})
		}
	}
	slices.SortFunc(out, func(a, b SiblingShare) int { return a.Site.Compare(b.Site) })
	return out
}
