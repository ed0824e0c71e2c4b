package predict

import (
	"fmt"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Pool is what a trace shows of a pool for whose slots requests wait.
type Pool struct {
	Site   *report.Site // where they wait
	Slots  int          // that exist
	HoldNS int64        // mean time for which a slot is held; 0: unknown
	OwnNS  int64        // the part of a wait in which the request itself is served
}

// AddPool adds a pool of the trace.
func (m *Model) AddPool(p Pool) { m.pools = append(m.pools, p) }

// A slotsEffect is the effect of another number of slots (of a pool, semaphore or lock) on the waits for a slot.
//
// Two models bound it, as for a shorter service (see queue). Requests that arrive at random (M/M/c): the length of the queue
// and the number of slots give the load (Erlang C, solved for it), and the load gives the queue with the new number. Both the
// share of requests that wait and the length of such a wait shrink. Clients without rest: as many as now are in the pool or in
// its queue, whatever its size. The regularity of the waits decides between the two.
type slotsEffect struct {
	slots, newSlots float64
	chance, length  float64 // random arrivals: factors of the share of requests that wait, and of the length of a wait
	holdNS, ownNS   float64
	regularity      float64
	waits           float64 // number of waits
	unknown         bool    // the number of slots is not known
}

// chances returns the factor by which the share of requests that wait for a slot changes.
func (e *slotsEffect) chances() variantValues {
	return variantValues{est: e.chance + e.regularity*(1-e.chance), low: e.chance, high: 1}
}

// newWaitNS returns how long a request that now waits for ns waits with the new number of slots, if it still waits, in ns.
// variant is est, low or high.
func (e *slotsEffect) newWaitNS(ns float64, variant int) float64 {
	queued := max(0, ns-e.ownNS)
	random := queued * e.length
	closed := min(queued, max(0, queued*e.slots-(e.newSlots-e.slots)*e.holdNS)/e.newSlots)
	switch variant {
	case est:
		queued = random + e.regularity*(max(random, closed)-random)
	case low:
		queued = random
	case high:
		queued = max(random, closed)
	}
	return min(ns, e.ownNS+queued)
}

// measureSlots measures the queue for a pool's slots in all groups, and computes the effect of count slots. All changes of the
// trial to this same count are about one pool, for which requests wait at several lines. Without a wait, or if the present
// number of slots is not known, the effect changes nothing.
func (t *trial) measureSlots(count int) *slotsEffect {
	e := &slotsEffect{newSlots: float64(count), chance: 1, length: 1, regularity: 1}
	var waitNS float64
	var lengths []point
	for _, group := range t.model.groups {
		for graph := range entry.Each(group.graphs) {
			for node := range entry.Each(graph.nodes) {
				for _, edge := range graph.edges[node.firstEdge:node.endEdge] {
					if !slices.ContainsFunc(t.changes, func(c trialChange) bool {
						return c.Kind == report.ChangeSlots && c.Count == count && c.affectsWait(t.model, &edge)
					}) {
						continue
					}
					t.model.readPool(e, &edge)
					if ns := graph.waitNS(node); ns > 0 && !node.otherWork {
						waitNS += graph.weight * ns
						e.waits += graph.weight
						lengths = append(lengths, point{ns, graph.weight})
					}
				}
			}
		}
	}
	switch {
	case len(lengths) == 0 || t.model.duration <= 0:
		return e
	case e.slots == 0:
		e.unknown = true
		return e
	case e.newSlots <= e.slots:
		return e // Validate refuses fewer
	}
	queueLength := max(0, waitNS-e.ownNS*e.waits) / float64(t.model.duration)
	load := erlangLoad(e.slots, queueLength)
	if e.holdNS == 0 {
		e.holdNS = load * float64(t.model.duration) / e.waits
	}
	e.chance = erlangC(e.newSlots, load) / max(erlangC(e.slots, load), 1e-9)
	e.length = (e.slots - load) / (e.newSlots - load)
	e.regularity = regularity(lengths)
	return e
}

// readPool raises the number of slots and the hold times in e to those of the pool at an edge's wait; a mutex has at least one
// slot.
func (m *Model) readPool(e *slotsEffect, edge *critpath.Edge) {
	frame := m.syms.Frame(m.sites.SiteOf(edge.Wait))
	fn, file := m.syms.String(frame.Func), m.syms.String(frame.File)
	for p := range entry.Each(m.pools) {
		if p.Site.Func == fn && p.Site.File == file && p.Site.Line == int(frame.Line) {
			e.slots, e.holdNS, e.ownNS = max(e.slots, float64(p.Slots)), max(e.holdNS, float64(p.HoldNS)), max(e.ownNS, float64(p.OwnNS))
		}
	}
	if edge.WaitKind == critpath.WaitLock {
		e.slots = max(e.slots, 1)
	}
}

// erlangC returns the share of requests that wait for a server, in a queue with random arrivals (M/M/c). load is the mean
// number of servers in use.
func erlangC(servers, load float64) float64 {
	if load <= 0 {
		return 0
	}
	return min(1, erlangWait(servers, load)*(servers-load))
}

// maxQueueChance is the share of requests that may queue for a pool that is large enough.
const maxQueueChance = 0.05

// SufficientSlots returns the least number of slots at which at most maxQueueChance of the requests queue. load is the mean
// number of slots in use; arrivals are random (Erlang C). The result is about load + 2*sqrt(load).
func SufficientSlots(load float64) int {
	n := math.Floor(load) + 1
	for erlangC(n, load) > maxQueueChance {
		n++
	}
	return int(n)
}

// erlangLoad returns the load (mean number of busy servers) at which a queue of random arrivals has this mean length: the
// inverse of the M/M/c queue length, by bisection.
func erlangLoad(servers, length float64) float64 {
	lowLoad, highLoad := 0.0, servers
	for range 60 {
		load := (lowLoad + highLoad) / 2
		if load*erlangWait(servers, load) < length {
			lowLoad = load
		} else {
			highLoad = load
		}
	}
	return min(lowLoad, servers*(1-1e-6))
}

// waitNS returns the length of the wait that ends at a node: the time since its predecessor less the intervals between them.
func (g *Graph) waitNS(n *node) float64 {
	if n.predecessor < 0 {
		return 0
	}
	ns := n.time - g.nodes[n.predecessor].time
	for i := n.firstInterval; i < n.endInterval; i++ {
		ns -= g.intervals[i].ns
	}
	return float64(ns)
}

// affectsWait reports whether the change affects the wait that an edge ends. A change of a queue affects only waits for locks,
// sends and known pools: of another wait for a result it is not known which part is the work itself.
func (c *trialChange) affectsWait(m *Model, edge *critpath.Edge) bool {
	if edge.Wait == 0 || c.waits == nil {
		return false
	}
	isAbout := entry.GetOrMake(c.waits, edge.Wait, func() bool { return m.isWaitAt(c.matcher, edge.Wait) })
	return isAbout && (c.Cause != Queue || edge.WaitKind == critpath.WaitLock || edge.WaitKind == critpath.WaitSend || m.poolAt(edge).slots > 0)
}

// poolAt returns the slots and the times of the pool at an edge's wait; no slots if none is known.
func (m *Model) poolAt(edge *critpath.Edge) (e slotsEffect) {
	m.readPool(&e, edge)
	return e
}

// isWaitAt reports whether a wait's stack is at the site that the matcher names, or in a standard-library function that this
// site calls. A matcher of any site matches no wait.
func (m *Model) isWaitAt(matcher *siteMatcher, stack tracefmt.StackID) bool {
	site := m.sites.SiteOf(stack)
	if site == 0 || matcher.matchesAny {
		return false
	}
	if m.matches(matcher, site) {
		return true
	}
	end := m.syms.Frame(site)
	for _, f := range m.syms.Stack(stack) {
		if frame := m.syms.Frame(f); frame.Func == end.Func && frame.Line == end.Line {
			break
		}
		if m.matchesFrame(matcher, f) {
			return true
		}
	}
	return false
}

// waitEnd returns when the wait before node n ends with the changes. start is when it began, and end the new time of the node
// at the edge's other side, which is the result if no change affects the wait (ns since the request's start).
func (t *trial) waitEnd(graph *Graph, n *node, edge *critpath.Edge, start, end float64, variant int) float64 {
	for c := range entry.Each(t.changes) {
		if n.endsDial && variant != high && c.keepsConnection(t.model, edge.Wait) {
			end = min(end, start)
		}
		if end <= start || !c.affectsWait(t.model, edge) {
			continue
		}
		switch {
		case c.slots != nil:
			end = min(end, start+t.newWaitOf(c, graph.waitNS(n), variant))
		case c.Kind == report.ChangeUnlock:
			if n.otherWork {
				end = start
			}
		case c.Cause == Queue:
			queued := max(0, end-start-t.model.poolAt(edge).ownNS)
			end -= queued * (1 - min(max(c.Scale, 0), 1))
			if graph.nodes[edge.From].otherWork {
				t.nodeTimes[edge.From][variant] = end // its goroutine begins this request earlier
			}
		}
	}
	return end
}

// keepsConnection reports whether with the change no connection is opened where a stack waits for one.
func (c *trialChange) keepsConnection(m *Model, wait tracefmt.StackID) bool {
	return c.Kind == report.ChangeReuse && (c.matcher.matchesAny || m.isInStack(c.matcher, wait) || c.matcher.caller != nil && m.isInStack(c.matcher.caller, wait))
}

// affectsAnyWait reports whether the change affects a wait in a graph; an unlock change, a wait of other requests.
func (c *trialChange) affectsAnyWait(m *Model, graph *Graph) bool {
	if c.waits == nil {
		return false
	}
	for n := range entry.Each(graph.nodes) {
		if c.Kind == report.ChangeUnlock && !n.otherWork {
			continue
		}
		for k := n.firstEdge; k < n.endEdge; k++ {
			if c.affectsWait(m, &graph.edges[k]) && graph.waitNS(n) > 0 {
				return true
			}
		}
	}
	return false
}

// refuseSlots returns a Refusal if the present number of slots is unknown, or the change asks for fewer; else nil.
func (m *Model) refuseSlots(c *trialChange) error {
	switch e := c.slots; {
	case e.unknown:
		return &Refusal{c.Change, "the trace does not show how many slots there are"}
	case e.slots > 0 && e.newSlots < e.slots:
		return &Refusal{c.Change, fmt.Sprintf("there are %.0f slots; the trace does not show what fewer would do", e.slots)}
	}
	return nil
}

// scaleServers sets serverScales: by node, the factor for work that a server did for others while the request waited for a
// slot. With a shorter wait, a goroutine that serves the queue begins earlier with this request.
func (t *trial) scaleServers(graph *Graph) {
	t.serverScales = slices.Grow(t.serverScales[:0], len(graph.nodes))[:len(graph.nodes)]
	for i := range t.serverScales {
		t.serverScales[i] = unchanged
	}
	for c := range entry.Each(t.changes) {
		if c.slots == nil {
			continue
		}
		for n := range entry.Each(graph.nodes) {
			ns := graph.waitNS(n)
			if ns <= 0 {
				continue
			}
			for _, edge := range graph.edges[n.firstEdge:n.endEdge] {
				if !c.affectsWait(t.model, &edge) {
					continue
				}
				for server := edge.From; server >= 0 && graph.nodes[server].otherWork && float64(n.time-graph.nodes[server].time) < ns; server = graph.nodes[server].predecessor {
					for v := range t.serverScales[server] {
						t.serverScales[server][v] = min(t.serverScales[server][v], t.newWaitOf(c, ns, v)/ns)
					}
				}
			}
		}
	}
}

// newWaitOf returns how long a request that waited for a slot for ns would wait with the change, in ns.
func (t *trial) newWaitOf(c *trialChange, ns float64, variant int) float64 {
	if t.withoutEncounters {
		return min(ns, c.slots.ownNS)
	}
	return c.slots.newWaitNS(ns, variant)
}
