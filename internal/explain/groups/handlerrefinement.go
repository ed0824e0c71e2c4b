package groups

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// refineHandlers decides how finely handlers are distinguished. Requests were added up by their handler and the calls below
// it that all stacks of a request have in common. A handler that only passes requests on (a wrapper around all methods, a
// ServeHTTP with a switch) is divided by its callees. One that does the work itself is not, whatever helpers it calls:
//
//   - nearly all of the requests with several stacks must have one function, called by the handler, in all of their stacks;
//   - there must be at least two such functions with a relevant share of the requests, or one that is divided itself: a
//     wrapper in a wrapper.
//
// If a closure has few requests, all in one function below it, they get the name of that function.
//
// A few fast requests that show only a handler which passes requests on are counted as requests without a handler: their
// callee is unknown.
func (s *Sum) refineHandlers() []path.GroupID {
	t := s.tables[0]
	byHandler := make(map[path.GroupKey][]path.GroupID)
	for id, g := range t.groups {
		if g != nil {
			k := g.key
			k.Path = [3]tracefmt.StringID{}
			byHandler[k] = append(byHandler[k], path.GroupID(id))
		}
	}
	r := refinement{table: t, sum: s, unrefined: t.groups, finalIDs: make([]path.GroupID, len(t.groups))}
	for id := range r.finalIDs {
		r.finalIDs[id] = path.GroupID(id)
	}
	t.groups = nil
	for k, ids := range byHandler {
		r.refine(k, ids, 0)
	}
	// Ids that only other workers' tables use.
	for id := len(r.finalIDs); id < t.stage.IDs.GroupCount(); id++ {
		r.finalIDs = append(r.finalIDs, path.GroupID(id))
	}
	return r.finalIDs
}

// A refinement is the state of refineHandlers.
type refinement struct {
	*table
	sum       *Sum
	unrefined []*group
	finalIDs  []path.GroupID
}

// A level is the set of requests of a handler, or of a function below it, divided by the function called next.
type level struct {
	children  map[tracefmt.StringID][]path.GroupID
	remaining []path.GroupID // groups without a common callee
	requests  int64
	ns        int64
	isDivided bool // the callees become groups
}

// newLevel divides groups of one handler by the function at a depth of their paths (the calls below the handler that all stacks
// of a request share), and decides whether these callees become groups of their own, by the rules of refineHandlers.
func (r *refinement) newLevel(ids []path.GroupID, depth int) level {
	out := level{children: make(map[tracefmt.StringID][]path.GroupID)}
	var multiStack, deepMultiStack int64
	for _, id := range ids {
		g := r.unrefined[id]
		out.requests += g.requests()
		out.ns += g.latencies.sum
		multiStack += g.multiStack
		if depth < len(g.key.Path) && g.key.Path[depth] != 0 {
			out.children[g.key.Path[depth]] = append(out.children[g.key.Path[depth]], id)
			deepMultiStack += g.multiStack
		} else {
			out.remaining = append(out.remaining, id)
		}
	}
	bigChildren := int64(0)
	var last []path.GroupID
	for _, c := range out.children {
		n := int64(0)
		for _, id := range c {
			n += r.unrefined[id].requests()
		}
		if float64(n) >= threshold.MinorShare*float64(out.requests) {
			bigChildren++
			last = c
		}
	}
	passesOn := multiStack >= 2*max(bigChildren, 1) && float64(deepMultiStack) >= threshold.NearlyAllShare*float64(multiStack)
	out.isDivided = passesOn && (bigChildren >= 2 || bigChildren == 1 && r.newLevel(last, depth+1).isDivided)
	return out
}

// isFewAndFast reports whether some groups of the level have few requests, none of them open, that are no slower than the
// level's mean.
func (l *level) isFewAndFast(r *refinement, ids []path.GroupID) bool {
	var n, ns, open int64
	for _, id := range ids {
		n, ns, open = n+r.unrefined[id].latencies.count, ns+r.unrefined[id].latencies.sum, open+r.unrefined[id].openCount
	}
	return open == 0 && n < threshold.SmallSample && float64(n) < threshold.MinorShare*float64(l.requests) &&
		float64(ns)*float64(l.requests) <= float64(l.ns)*float64(n)
}

// refine moves the groups ids, whose paths begin in handler, to their final keys. Where the level at depth is divided, the groups
// of each callee are refined with that callee as the handler, and the others get the handler's key, without its name if they are
// few and fast. Otherwise all get the handler's key, with the name of the innermost function that calleeName finds below it. It
// reorders ids.
func (r *refinement) refine(handler path.GroupKey, ids []path.GroupID, depth int) {
	level := r.newLevel(ids, depth)
	if handler.Name == 0 || !level.isDivided {
		for fn := r.calleeName(handler, ids, &level); fn != 0; fn = r.calleeName(handler, ids, &level) {
			handler.Name = fn
			r.nameGroups(ids, fn)
			depth++
			level = r.newLevel(ids, depth)
		}
		slices.SortFunc(ids, func(a, b path.GroupID) int {
			return cmp.Compare(r.unrefined[a].key.Path[0], r.unrefined[b].key.Path[0])
		})
		for _, id := range ids {
			r.moveTo(handler, id)
		}
		return
	}
	rest := handler
	if level.isFewAndFast(r, level.remaining) {
		rest.Name = 0
		for _, id := range level.remaining {
			r.unrefined[id].handlerFrame = 0
		}
	}
	for _, id := range level.remaining {
		r.moveTo(rest, id)
	}
	for fn, c := range level.children {
		sub := handler
		sub.Name = fn
		r.nameGroups(c, fn)
		r.refine(sub, c, depth+1)
	}
}

// nameGroups sets the handler frame of groups to the preferred frame (isPreferredFrame) in which any worker saw function fn.
func (r *refinement) nameGroups(ids []path.GroupID, fn tracefmt.StringID) {
	frame := tracefmt.FrameID(0)
	for _, p := range r.sum.tables {
		if f := p.stage.HandlerFrameOf(fn); f != 0 && isPreferredFrame(r.stage.Syms, f, frame, fn) {
			frame = f
		}
	}
	for _, id := range ids {
		r.unrefined[id].handlerFrame = frame
	}
}

// calleeName returns a better name for a group with few requests whose handler is a closure, most often a wrapper: the one
// function below it that all ended requests contain; 0 if there is none. A flight recorder's snapshot has only a few requests,
// all of one route. With many requests the closure's name stays, because the name must not depend on where requests happened to
// wait.
func (r *refinement) calleeName(k path.GroupKey, ids []path.GroupID, l *level) tracefmt.StringID {
	if l.requests >= threshold.MedianSample || len(l.children) != 1 || !words.IsClosure(r.stage.Syms.String(k.Name)) {
		return 0
	}
	for _, id := range l.remaining {
		if r.unrefined[id].latencies.count > 0 {
			return 0
		}
	}
	for fn, in := range l.children {
		if slices.ContainsFunc(in, func(id path.GroupID) bool { return r.unrefined[id].latencies.count > 0 }) &&
			r.isExclusive(k.Kind, ids, fn) {
			return fn
		}
	}
	return 0
}

// isExclusive reports whether a function is in no request of this kind outside of the given groups.
func (r *refinement) isExclusive(kind request.Kind, ids []path.GroupID, fn tracefmt.StringID) bool {
	for id, g := range r.unrefined {
		if g != nil && g.key.Kind == kind && (g.key.Name == fn || slices.Contains(g.key.Path[:], fn)) &&
			!slices.Contains(ids, path.GroupID(id)) {
			return false
		}
	}
	return true
}

// moveTo adds an unrefined group to the group with its final key.
func (r *refinement) moveTo(k path.GroupKey, id path.GroupID) {
	to := r.stage.IDs.GroupID(k)
	r.finalIDs[id] = to
	slot := entry.GetOrGrow(&r.groups, to)
	if *slot != nil {
		r.mergeGroup(to, r.unrefined[id], nil)
		return
	}
	first := *r.unrefined[id] // other groups are still compared with the unrefined key
	first.key, first.handlerFrame = k, 0
	first.offerHandlerFrame(r.stage.Syms, r.unrefined[id].handlerFrame)
	*slot = &first
}
