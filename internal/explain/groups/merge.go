package groups

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Merge brings together what all workers added, and decides how finely handlers
// are distinguished. ts translates each worker's ids to the first one's; afterwards it
// leads to what these groups became, which is returned by their ids. Nothing may be added afterwards.
func (s *Sum) Merge(ts []path.Translation) (became []path.GroupID) {
	all := s.parts[0]
	for i, t := range s.parts[1:] {
		all.merge(t, &ts[i+1])
	}
	became = s.refine()
	// What is kept by group without being a group's follows only now.
	ran, under := make(ran), newUnder(all.stage)
	for i, t := range s.parts {
		for id, g := range ts[i].Groups {
			ts[i].Groups[id] = became[g]
		}
		ran.merge(t.ran, &ts[i])
		under.merge(&t.under, &ts[i])
	}
	all.ran, all.under = ran, under
	return became
}

func (t *table) merge(o *table, tr *path.Translation) {
	t.observer += o.observer
	if o.blockMin != 0 && (t.blockMin == 0 || o.blockMin < t.blockMin) {
		t.blockMin = o.blockMin
	}
	t.blockMax = max(t.blockMax, o.blockMax)
	for t.blockShift < o.blockShift {
		t.coarsen()
	}
	for o.blockShift < t.blockShift {
		o.coarsen()
	}
	t.through.merge(&o.through)
	for id, og := range o.groups {
		if og != nil {
			t.mergeGroup(tr.Groups[id], og, tr.Causes)
		}
	}
	t.fitBlocks()
}

// mergeGroup adds a group to the one with an id. causes translates its causes;
// nil means that they are this table's own.
func (t *table) mergeGroup(id path.GroupID, og *group, causes []path.CauseID) {
	g := t.at(id)
	g.enter(t.stage.Syms, og.entry)
	g.by.add(og.by)
	g.lat.merge(&og.lat)
	g.ready.merge(&og.ready)
	g.gap.merge(&og.gap)
	g.before.merge(&og.before)
	g.isOf(t.stage.Syms, og.of)
	for status, n := range og.statuses {
		g.cameOut(status, n)
	}
	g.cells.merge(&og.cells, causes, (*cell).add)
	g.samples.merge(&og.samples, causes, (*cell).add)
	g.spreads.merge(&og.spreads, causes, (*spread).add)
	for bucket, times := range og.weighed {
		if g.weighed == nil {
			g.weighed = make(map[int32]float64)
		}
		g.weighed[bucket] += times
	}
	for bi, b := range og.blocks {
		g.blockOf(bi).merge(b)
	}
	g.cut += og.cut
	g.multi += og.multi
	g.parted = g.parted || og.parted
	g.open += og.open
	g.opens.merge(og.opens, causes)
	if og.oldest != 0 && g.isOlder(og.oldest, og.oldestG) {
		g.oldest, g.oldestG, g.openSite = og.oldest, og.oldestG, og.openSite
	}
}

// keysOf returns a map's keys in order.
func keysOf[K int32 | int64, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// refine decides how finely handlers are distinguished. Requests were added up
// by their handler and the calls below it that all stacks of a request have
// in common. A handler that only passes requests on (a wrapper around all
// methods, a ServeHTTP with a switch) is divided by what it passes them to; one
// that does the work itself is not, whatever helpers it calls:
//
//   - of the requests of which several stacks were seen, nearly all must stay
//     below one and the same function that the handler called;
//   - there must be at least two such functions that matter, or one that is
//     divided itself: a wrapper's wrapper.
//
// Few requests of a closure, all seen in one function below it, are called by that.
//
// Few fast requests of which only a handler that passes on was seen are taken for
// requests that show no handler: what they would have been passed to is not known.
func (s *Sum) refine() []path.GroupID {
	t := s.parts[0]
	byHandler := make(map[path.GroupKey][]path.GroupID)
	for id, g := range t.groups {
		if g != nil {
			k := g.key
			k.Path = [3]tracefmt.StringID{}
			byHandler[k] = append(byHandler[k], path.GroupID(id))
		}
	}
	r := refining{table: t, sum: s, old: t.groups, became: make([]path.GroupID, len(t.groups))}
	for id := range r.became {
		r.became[id] = path.GroupID(id)
	}
	t.groups = nil
	for k, ids := range byHandler {
		r.refine(k, ids, 0)
	}
	// Of some only others' tables know.
	for id := len(r.became); id < t.stage.IDs.GroupCount(); id++ {
		r.became = append(r.became, path.GroupID(id))
	}
	return r.became
}

// refining is the state of refine.
type refining struct {
	*table
	sum    *Sum
	old    []*group
	became []path.GroupID
}

// A level is the requests of a handler, or of a function below it, by what that
// calls.
type level struct {
	children map[tracefmt.StringID][]path.GroupID
	here     []path.GroupID // whose stacks have no such function in common
	requests int64
	ns       int64
	divided  bool
}

func (r *refining) level(ids []path.GroupID, depth int) level {
	l := level{children: make(map[tracefmt.StringID][]path.GroupID)}
	var multi, deep int64
	for _, id := range ids {
		g := r.old[id]
		l.requests += g.requests()
		l.ns += g.lat.sum
		multi += g.multi
		if depth < len(g.key.Path) && g.key.Path[depth] != 0 {
			l.children[g.key.Path[depth]] = append(l.children[g.key.Path[depth]], id)
			deep += g.multi
		} else {
			l.here = append(l.here, id)
		}
	}
	big := int64(0)
	var last []path.GroupID
	for _, c := range l.children {
		n := int64(0)
		for _, id := range c {
			n += r.old[id].requests()
		}
		if float64(n) >= scale.Little*float64(l.requests) {
			big++
			last = c
		}
	}
	passes := multi >= 2*max(big, 1) && float64(deep) >= scale.NearlyAll*float64(multi)
	l.divided = passes && (big >= 2 || big == 1 && r.level(last, depth+1).divided)
	return l
}

// few reports whether requests are few and fast beside the others of their level.
func (l *level) few(r *refining, ids []path.GroupID) bool {
	var n, ns, open int64
	for _, id := range ids {
		n, ns, open = n+r.old[id].lat.n, ns+r.old[id].lat.sum, open+r.old[id].open
	}
	return open == 0 && n < scale.Few && float64(n) < scale.Little*float64(l.requests) && float64(ns)*float64(l.requests) <= float64(l.ns)*float64(n)
}

func (r *refining) refine(k path.GroupKey, ids []path.GroupID, depth int) {
	l := r.level(ids, depth)
	if k.Name == 0 || !l.divided {
		for fn := r.below(k, ids, &l); fn != 0; fn = r.below(k, ids, &l) {
			k.Name = fn
			r.name(ids, fn)
			depth++
			l = r.level(ids, depth)
		}
		slices.SortFunc(ids, func(a, b path.GroupID) int { return cmp.Compare(r.old[a].key.Path[0], r.old[b].key.Path[0]) })
		for _, id := range ids {
			r.become(k, id)
		}
		return
	}
	rest := k
	if l.few(r, l.here) {
		rest.Name = 0
		for _, id := range l.here {
			r.old[id].entry = 0
		}
	}
	for _, id := range l.here {
		r.become(rest, id)
	}
	for fn, c := range l.children {
		sub := k
		sub.Name = fn
		r.name(c, fn)
		r.refine(sub, c, depth+1)
	}
}

// name has groups called by a function.
func (r *refining) name(ids []path.GroupID, fn tracefmt.StringID) {
	entry := tracefmt.FrameID(0)
	for _, p := range r.sum.parts {
		if f := p.stage.HandlerFrameOf(fn); f != 0 && better(r.stage.Syms, f, entry, fn) {
			entry = f
		}
	}
	for _, id := range ids {
		r.old[id].entry = entry
	}
}

// below returns the function that calls a handler's few requests better than the
// handler's own name, 0 for none: where that is a closure, most often a wrapper's,
// the one function below it in which all were seen that have ended. A flight
// recorder's snapshot has no more than a few, all of one route. Of many requests the
// name must not depend on where they happened to wait.
func (r *refining) below(k path.GroupKey, ids []path.GroupID, l *level) tracefmt.StringID {
	if l.requests >= scale.Enough || len(l.children) != 1 || !words.IsClosure(r.stage.Syms.String(k.Name)) {
		return 0
	}
	for _, id := range l.here {
		if r.old[id].lat.n > 0 {
			return 0
		}
	}
	for fn, in := range l.children {
		if slices.ContainsFunc(in, func(id path.GroupID) bool { return r.old[id].lat.n > 0 }) && r.only(k.Kind, ids, fn) {
			return fn
		}
	}
	return 0
}

// only reports whether a function was seen in requests of these groups alone.
func (r *refining) only(kind request.Kind, ids []path.GroupID, fn tracefmt.StringID) bool {
	for id, g := range r.old {
		if g != nil && g.key.Kind == kind && (g.key.Name == fn || slices.Contains(g.key.Path[:], fn)) && !slices.Contains(ids, path.GroupID(id)) {
			return false
		}
	}
	return true
}

func (r *refining) become(k path.GroupKey, id path.GroupID) {
	to := r.stage.IDs.GroupID(k)
	r.became[id] = to
	r.mergeGroup(to, r.old[id], nil)
}
