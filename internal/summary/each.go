package summary

import (
	"fmt"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/report"
)

// A Whole is one request that was added up, as SetEach tells of it. It is
// valid during the call.
type Whole struct {
	Slow
	Kind request.Kind
	// Causes are the ns of each cause, by its number: they add up to the
	// latency, also where not all segments were kept.
	Causes [numCauses]int64
	key    groupKey
}

// numCauses bounds the causes that there are.
const numCauses = 16

var _ [numCauses - int(cause.Chan) - 1]struct{} // all causes fit

// SetEach makes these tables tell of every request that they count, in the
// order of Add.
func (t *Tables) SetEach(f func(*Whole)) { t.each = f }

// tell tells of a request whose sums are at hand.
func (t *Tables) tell(g *group, r *request.Request, start int64, segs []cause.Segment, vias func() [][]Via) {
	if t.each == nil {
		return
	}
	w := Whole{Slow: Slow{Start: start, End: r.End, G: r.G, Segments: segs, Vias: vias()}, Kind: g.key.kind, key: g.key}
	for _, s := range t.sums {
		w.Causes[t.keys[s.cause].cause] += s.ns
	}
	t.each(&w)
}

// GroupIDs says which group of the report requests went to in the end: it is
// asked with the tables of another run over the same trace, by the name that
// the group had when the request was added.
func (t *Tables) GroupIDs() func(o *Tables, w *Whole) string {
	ids := make(map[string]string)
	for from, to := range t.became {
		if g := t.groups[to]; g != nil {
			kind, name, _ := t.title(g)
			ids[t.keyText(from)] = StableID("group", kind, name)
		}
	}
	known := make(map[groupKey]string)
	return func(o *Tables, w *Whole) string {
		id, ok := known[w.key]
		if !ok {
			id = ids[o.keyText(w.key)]
			known[w.key] = id
		}
		return id
	}
}

// keyText tells group keys of any run apart.
func (t *Tables) keyText(k groupKey) string {
	text := fmt.Sprintf("%d %q", k.kind, t.syms.String(k.name))
	for _, p := range k.path {
		text += fmt.Sprintf(" %q", t.syms.String(p))
	}
	return text
}

// Request spells a request out as a report holds it.
func (t *Tables) Request(w *Whole, group string, v View) report.Request {
	return t.slowReport(&w.Slow, group, v)
}

// RequestID is the id of a request in reports.
func RequestID(group string, start int64, g uint64) string {
	return StableID("request", group, fmt.Sprint(start), fmt.Sprint(g))
}
