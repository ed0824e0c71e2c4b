package summary

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/tracefmt"
)

// Refine decides how finely handlers are told apart. Requests were added up
// by their handler and the calls below it that all stacks of a request have
// in common. A handler that only passes requests on (a wrapper around all
// methods, a ServeHTTP with a switch) is divided by what it passes them to; one
// that does the work itself is not, whatever helpers it calls:
//
//   - of the requests of which several stacks were seen, nearly all must stay
//     below one and the same function that the handler called;
//   - there must be at least two such functions that matter.
func (t *Tables) Refine() {
	byHandler := make(map[groupKey][]*group)
	for k, g := range t.groups {
		k.path = [3]tracefmt.StringID{}
		byHandler[k] = append(byHandler[k], g)
	}
	t.groups = make(map[groupKey]*group, len(byHandler))
	t.became = make(map[groupKey]groupKey)
	for k, gs := range byHandler {
		t.refine(k, gs, 0)
	}
}

const (
	consistent = 0.95 // share of requests that stay below one called function
	matters    = 0.03 // share of requests for a function to count
)

func (t *Tables) refine(k groupKey, gs []*group, depth int) {
	children := make(map[tracefmt.StringID][]*group)
	var here []*group
	var multi, deep, total int
	for _, g := range gs {
		n := int(g.lat.n) + g.open
		total += n
		multi += g.multi
		if depth < len(g.key.path) && g.key.path[depth] != 0 {
			children[g.key.path[depth]] = append(children[g.key.path[depth]], g)
			deep += g.multi
		} else {
			here = append(here, g)
		}
	}
	big := 0
	for _, c := range children {
		n := 0
		for _, g := range c {
			n += int(g.lat.n) + g.open
		}
		if float64(n) >= matters*float64(total) {
			big++
		}
	}
	if depth >= len(k.path) || k.name == 0 || big < 2 || multi < 2*big || float64(deep) < consistent*float64(multi) {
		slices.SortFunc(gs, func(a, b *group) int { return cmp.Compare(a.key.path[0], b.key.path[0]) })
		for _, g := range gs {
			t.become(k, g)
		}
		return
	}
	for _, g := range here {
		t.become(k, g)
	}
	for fn, c := range children {
		sub := k
		sub.name = fn
		entry := tracefmt.FrameID(0)
		for _, ns := range t.namers {
			if f := ns.Entry(fn); f != 0 && t.better(f, entry, fn) {
				entry = f
			}
		}
		for _, g := range c {
			g.entry = entry
		}
		t.refine(sub, c, depth+1)
	}
}

func (t *Tables) become(k groupKey, g *group) {
	t.became[g.key] = k
	t.mergeGroup(k, g, nil)
}
