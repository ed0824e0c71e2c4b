package groups

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Merge combines the tables of all workers, and decides how finely handlers are distinguished (refineHandlers). On entry ts
// translates each worker's ids to those of the first worker, on return to the final groups. finalIDs translates the first
// worker's group ids to the final ones. Nothing may be added afterwards.
func (s *Sum) Merge(ts []path.Translation) (finalIDs []path.GroupID) {
	merged := s.tables[0]
	for i, t := range s.tables[1:] {
		merged.merge(t, &ts[i+1])
	}
	finalIDs = s.refineHandlers()
	// What refers to groups by id is merged after the ids are final.
	runs, samples := make(concurrentRuns), newRunSamples(merged.stage)
	for i, t := range s.tables {
		for id, g := range ts[i].Groups {
			ts[i].Groups[id] = finalIDs[g]
		}
		runs.merge(t.concurrentRuns, &ts[i])
		samples.merge(&t.runSamples, &ts[i])
	}
	merged.concurrentRuns, merged.runSamples = runs, samples
	return finalIDs
}

// merge adds the groups, blocks and traversals of another worker's table; tr translates that worker's ids.
func (t *table) merge(other *table, tr *path.Translation) {
	t.observerRequests += other.observerRequests
	if other.blockMin != 0 && (t.blockMin == 0 || other.blockMin < t.blockMin) {
		t.blockMin = other.blockMin
	}
	t.blockMax = max(t.blockMax, other.blockMax)
	for t.blockShift < other.blockShift {
		t.doubleBlocks()
	}
	for other.blockShift < t.blockShift {
		other.doubleBlocks()
	}
	t.traversals.merge(&other.traversals)
	for id, otherGroup := range other.groups {
		if otherGroup != nil {
			t.mergeGroup(tr.Groups[id], otherGroup, tr.Causes)
		}
	}
	t.fitBlocks()
}

// mergeGroup adds a group to the one with this id. causes translates the cause ids of addend to this table's; nil: they are the
// same.
func (t *table) mergeGroup(id path.GroupID, addend *group, causes []path.CauseID) {
	group := t.groupByID(id)
	group.offerHandlerFrame(t.stage.Syms, addend.handlerFrame)
	group.starter.add(addend.starter)
	group.latencies.merge(&addend.latencies)
	group.readyTimes.merge(&addend.readyTimes)
	group.pollGaps.merge(&addend.pollGaps)
	group.beforeMark.merge(&addend.beforeMark)
	group.offerMarkKind(t.stage.Syms, addend.markKind)
	for status, n := range addend.statuses {
		group.addStatus(status, n)
	}
	group.causeCells.merge(&addend.causeCells, causes, (*cell).add)
	group.sampleCounts.merge(&addend.sampleCounts, causes, (*cell).add)
	group.spreads.merge(&addend.spreads, causes, (*spread).add)
	for bucket, times := range addend.spreadWeights {
		if group.spreadWeights == nil {
			group.spreadWeights = make(map[int32]float64)
		}
		group.spreadWeights[bucket] += times
	}
	for bi, b := range addend.blocks {
		group.blockByNumber(bi).merge(b)
	}
	group.cutAtStart += addend.cutAtStart
	group.multiStack += addend.multiStack
	group.hasJoined = group.hasJoined || addend.hasJoined
	group.openCount += addend.openCount
	group.openWaits.merge(addend.openWaits, causes)
	if addend.oldestStart != 0 && group.isOlder(addend.oldestStart, addend.oldestG) {
		group.oldestStart, group.oldestG, group.oldestSite = addend.oldestStart, addend.oldestG, addend.oldestSite
	}
}

// sortedKeys returns a map's keys in order.
func sortedKeys[K int32 | int64, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

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

// refine moves groups to their final keys: if the level at this depth is divided, those of its callees, recursively; otherwise
// the handler's.
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

// nameGroups sets the handler frame of groups to a frame of function fn.
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
	r.mergeGroup(to, r.unrefined[id], nil)
}
