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
type siblingSum struct{ ns, siblings int64 }

func (s siblingSum) plus(o siblingSum) siblingSum {
	return siblingSum{s.ns + o.ns, s.siblings + o.siblings}
}

// addSiblings takes note of who gave the locks back that a request waited for.
func (p *part) addSiblings(w *path.Walked) {
	waits := w.Waits()
	for i := range waits {
		v := &waits[i]
		if v.Kind != critpath.WaitLock && v.Kind != critpath.WaitOnce || v.Waker == 0 {
			continue
		}
		site, sum := p.stage.Sites.Of(v.Stack), siblingSum{ns: v.End - v.Start}
		if p.startedBy(w.Req, v.Waker, v.End) {
			sum.siblings = sum.ns
		}
		p.siblings[site] = p.siblings[site].plus(sum)
	}
}

// generations bounds how far back from a goroutine those are looked at that started it.
const generations = 8

// startedBy reports whether a goroutine works for a request at time t: it is the request's own, or was started for it, by one that was, and so on.
func (p *part) startedBy(r *request.Request, g uint64, t int64) bool {
	for range generations {
		if g == r.G {
			return true
		}
		b, ok := p.stage.Win.Born(g, t)
		if !ok || b.Time < r.Start {
			return false
		}
		g, t = b.By, b.Time
	}
	return false
}

// Siblings says which part of the time that requests waited for a lock at a line was ended by goroutines of the same request, in the slices of
// time that were looked at.
type Siblings struct {
	Site *report.Site
	Part float64
}

// Siblings returns these sums. Merge must have been called.
func (s *Sum) Siblings(sp *spell.Speller) []Siblings {
	var out []Siblings
	for k, r := range s.parts[0].siblings {
		if r.siblings > 0 {
			out = append(out, Siblings{sp.Site(k), float64(r.siblings) / float64(r.ns)})
		}
	}
	slices.SortFunc(out, func(a, b Siblings) int { return a.Site.Compare(b.Site) })
	return out
}
