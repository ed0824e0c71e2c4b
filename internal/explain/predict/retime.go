package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/scale"
)

// Variants of a prediction.
const (
	est = iota
	low
	high
	variants
)

type variantValues [variants]float64

var unchanged = variantValues{1, 1, 1}

// A trial is a set of changes, ready to be applied to graphs.
type trial struct {
	model             *Model
	changes           []trialChange
	nodeTimes         []variantValues
	withoutEncounters bool // leave out work for others that is not queued for
}

// A trialChange is one of them.
type trialChange struct {
	Change
	// weights is, by place, the part of the place's time that it is about.
	weights []float64
	effect  *effect // of a setting; nil for a change of a cause
	usualNS int64   // how long a computation that it is about takes, where all of it is seen
	queue   queue
	// encounterShare is the part of those requests that met somebody else's work which
	// still would; see shared.
	encounterShare float64
	// Of the current graph:
	nsByComputation []float64     // its time in each computation
	meetsOwnWork    bool          // it meets the request's own work
	meetsOtherWork  bool          // it meets work for others
	remainingAhead  variantValues // of those served before the request at the current node, how many still are
	ownResult       *interval     // what of that was done last, and so for the request itself; nil if that is not so
}

// meets reports whether requests of a group have, or wait for, anything to
// change. That it ran meanwhile does not count.
func (t *trial) meets(g *group) bool {
	for i := range t.changes {
		if t.changes[i].meets(g) {
			return true
		}
	}
	return false
}

// hasQueueChange reports whether a change is about what requests queue for.
func (t *trial) hasQueueChange() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.Cause == Queue })
}

func (c *trialChange) meets(g *group) bool {
	if e := c.effect; e != nil && (e.changesProcs && e.waitPerRunNS[high] > 0 || e.changesGC && e.cycles[high] > 1) {
		return true
	}
	for i := range g.graphs {
		graph := g.graphs[i].Graph
		c.selectGraph(graph)
		for k := range graph.intervals {
			if iv := &graph.intervals[k]; c.weights[iv.targetID] > 0 && (c.Cause != Queue || !c.isOwnWork(iv)) {
				return true
			}
		}
	}
	return false
}

// selectGraph takes note of what a change meets in a graph.
func (c *trialChange) selectGraph(g *Graph) {
	c.nsByComputation = slices.Grow(c.nsByComputation[:0], int(g.computations)+1)[:g.computations+1]
	clear(c.nsByComputation)
	var ownNS, otherNS, largest float64
	for i := range g.intervals {
		iv := &g.intervals[i]
		changedNS := c.weights[iv.targetID] * float64(iv.ns)
		if changedNS == 0 {
			continue
		}
		c.nsByComputation[iv.computation] += changedNS
		if largest = max(largest, changedNS); iv.otherWork && !c.OwnWork {
			otherNS += changedNS
		} else {
			ownNS += changedNS
		}
	}
	c.meetsOwnWork, c.meetsOtherWork, c.remainingAhead = ownNS > scale.Some*otherNS, otherNS > 0, unchanged
	if c.ownResult = nil; c.meetsOtherWork && !c.meetsOwnWork {
		c.ownResult = c.lastResult(g, scale.Some*largest)
		c.meetsOwnWork = c.ownResult != nil
	}
}

// lastResult returns the last part of a graph that a change is about, if it
// may have been work for the request.
func (c *trialChange) lastResult(g *Graph, minNS float64) *interval {
	var last *interval
	lastTime := int64(-1)
	for i := range g.nodes {
		node := &g.nodes[i]
		for k := node.firstInterval; k < node.endInterval && node.time >= lastTime; k++ {
			if iv := &g.intervals[k]; iv.otherWork && c.weights[iv.targetID]*float64(iv.ns) > minNS {
				last, lastTime = iv, node.time
			}
		}
	}
	if last != nil && !last.deliversResult {
		return nil
	}
	return last
}

// isOwnWork reports whether a part is work for the request.
func (c *trialChange) isOwnWork(iv *interval) bool {
	result := c.ownResult
	return !iv.otherWork || c.OwnWork || result == iv || result != nil && (iv.computation > 0 && iv.computation == result.computation || iv.computation == 0 && iv.targetID == result.targetID && iv.fullNS == result.fullNS && iv.fullNS > iv.ns)
}

// survey looks how all requests of a group meet the changes.
func (t *trial) survey(g *group) {
	for i := range t.changes {
		c := &t.changes[i]
		if c.effect != nil {
			c.effect.survey(g, t.model.facts)
			continue
		}
		var computationNS []int64
		for k := range g.graphs {
			graph := g.graphs[k].Graph
			c.selectGraph(graph)
			counted := make([]bool, len(c.nsByComputation))
			for j := range graph.intervals {
				if iv := &graph.intervals[j]; iv.computation > 0 && c.isOwnWork(iv) && !counted[iv.computation] && c.nsByComputation[iv.computation] > 0 {
					counted[iv.computation] = true
					computationNS = append(computationNS, int64(c.nsByComputation[iv.computation]))
				}
			}
		}
		if slices.Sort(computationNS); len(computationNS) > 0 {
			c.usualNS = computationNS[len(computationNS)/2]
		}
		c.queue = t.measureQueue(g, c)
		c.encounterShare = c.remainingEncounters(g)
	}
}

// retime returns how long a request would have taken, and how long without
// the work of others, or the collections, that it met by chance, and how likely
// it would still meet that.
func (t *trial) retime(g *Graph) (latencies, unmetLatencies, encounterChances variantValues) {
	encounterChances = unchanged
	var extraNS variantValues
	for i := range t.changes {
		c := &t.changes[i]
		if e := c.effect; e != nil {
			e.selectGraph(g, t.model.facts)
			for v := range encounterChances {
				encounterChances[v] = min(encounterChances[v], e.encounterChance[v])
				extraNS[v] += e.extraNS[v]
			}
			continue
		}
		if c.selectGraph(g); c.meetsOtherWork && !c.meetsOwnWork && c.Cause != Queue {
			encounterChances[est], encounterChances[low] = min(encounterChances[est], c.encounterShare), min(encounterChances[low], c.encounterShare)
		}
	}
	t.withoutEncounters = false
	latencies = t.endTimes(g)
	if unmetLatencies = latencies; encounterChances != unchanged {
		t.withoutEncounters = true
		unmetLatencies = t.endTimes(g)
	}
	for v := range latencies {
		latencies[v] += extraNS[v]
	}
	return latencies, unmetLatencies, encounterChances
}

// endTimes times a graph again.
func (t *trial) endTimes(g *Graph) variantValues {
	t.nodeTimes = t.nodeTimes[:0]
	for i := range g.nodes {
		node := &g.nodes[i]
		var ends variantValues
		if node.predecessor >= 0 {
			ends = t.nodeTimes[node.predecessor]
			queueScale := t.queueScale(g, node)
			for k := node.firstInterval; k < node.endInterval; k++ {
				iv := &g.intervals[k]
				factors, ns := t.factor(g, iv), float64(iv.ns)
				isAhead := iv.otherWork && !t.isChanged(iv)
				for v := range ends {
					if isAhead {
						factors[v] = min(factors[v], queueScale[v])
					}
					ends[v] += factors[v] * ns
				}
			}
		} else if node.firstEdge == node.endEdge {
			for v := range ends {
				ends[v] = max(0, float64(node.time))
			}
		}
		for _, e := range g.edges[node.firstEdge:node.endEdge] {
			for v := range ends {
				if !e.Soft || v == high {
					ends[v] = max(ends[v], t.nodeTimes[e.From][v])
				}
			}
		}
		t.nodeTimes = append(t.nodeTimes, ends)
	}
	return t.nodeTimes[len(t.nodeTimes)-1]
}

// isChanged reports whether some change is about a part.
func (t *trial) isChanged(iv *interval) bool {
	for i := range t.changes {
		if t.changes[i].weights[iv.targetID] > 0 {
			return true
		}
	}
	return false
}

// queueScale is by what the number of others is multiplied that are served before
// the request: what else they do there, beside what a change is about, goes
// away with them. How many fewer they are follows from how much of all their
// work there the change is about.
func (t *trial) queueScale(g *Graph, node *node) variantValues {
	out := unchanged
	for i := range t.changes {
		c := &t.changes[i]
		c.remainingAhead = unchanged
		if c.effect != nil || !c.meetsOtherWork || !c.meetsOwnWork && c.Cause != Queue {
			continue
		}
		var before, after variantValues
		servedFromStart := false // somebody is seen to be served from early on, so that fewer may be
		for k := node.firstInterval; k < node.endInterval; k++ {
			iv := &g.intervals[k]
			if !iv.otherWork || c.isOwnWork(iv) {
				continue
			}
			factors, weight, ns := unchanged, c.weights[iv.targetID], float64(iv.ns)
			fromStart := weight > 0 && weight*ns >= scale.Some*float64(iv.fullNS)
			servedFromStart = servedFromStart || fromStart
			if weight > 0 {
				factors = c.factor(iv, false)
			}
			for v := range before {
				before[v] += ns
				after[v] += ns * (1 - weight*(1-factors[v]))
				if c.Cause == Queue && fromStart {
					out[v] = min(out[v], factors[v])
				}
			}
		}
		if c.Cause == Queue {
			continue
		}
		for v := range after {
			if s := after[v] / max(before[v], 1); s > 0 {
				c.remainingAhead[v] = c.queue.factor(s, v) / s
			}
			if servedFromStart {
				out[v] = min(out[v], c.remainingAhead[v])
			}
		}
	}
	return out
}

// factor is by what the time of a part is multiplied.
func (t *trial) factor(g *Graph, iv *interval) variantValues {
	factors := unchanged
	if g.isUnaffectedPause(iv) {
		return factors
	}
	for i := range t.changes {
		c := &t.changes[i]
		w := c.weights[iv.targetID]
		if w == 0 {
			continue
		}
		var changed variantValues
		if c.effect != nil {
			changed = c.effect.factor(iv, t.withoutEncounters)
		} else {
			changed = c.factor(iv, t.withoutEncounters)
		}
		for v := range factors {
			factors[v] = min(factors[v], 1-w*(1-changed[v]))
		}
	}
	if iv.firstShare < iv.endShare {
		remaining := 1.0
		for k := iv.firstShare; k < iv.endShare; k++ {
			remaining -= g.runShares[k].share * (1 - t.concurrentFactor(&g.runShares[k]))
		}
		remaining = max(0, remaining)
		factors[est] = min(factors[est], remaining)
		factors[low] = min(factors[low], remaining*remaining)
	}
	return factors
}

// factor is by what a change multiplies the time of a part that it is all
// about.
func (c *trialChange) factor(iv *interval, withoutEncounters bool) variantValues {
	fullNS := iv.fullNS
	if iv.computation > 0 {
		fullNS = int64(c.nsByComputation[iv.computation])
		if !c.isOwnWork(iv) {
			fullNS = max(fullNS, c.usualNS) // only what lies within the wait was seen
		}
	}
	lateNS := int64(-1)
	if iv.cause == cause.Sleep && !iv.endsWithTick {
		lateNS = iv.lateNS
	}
	factors := c.instanceFactor(fullNS, lateNS)
	if c.Cause == Queue {
		if c.isOwnWork(iv) || iv.endsWithTick {
			return unchanged
		}
		return factors
	}
	switch {
	case factors == unchanged:
	case iv.endsWithTick:
		factors = tickFactor(factors[high], iv)
	case c.isOwnWork(iv):
	case !c.meetsOwnWork:
		if factors[low] *= factors[low]; withoutEncounters {
			factors[est], factors[low] = 0, 0
		}
	default:
		for v := range factors {
			factors[v] *= c.remainingAhead[v]
		}
	}
	return factors
}

// tickFactor is by what the wait for a ticker is multiplied if its period is. A
// request that comes at any time keeps its place within the period (high).
// Clients that the last tick let go come soon after it, and so wait for nearly
// all of a long period; in a much shorter one they come at any time, and wait
// for half of it (low).
func tickFactor(relative float64, iv *interval) variantValues {
	factors := variantValues{est: relative, low: relative, high: relative}
	if halfPeriod := 0.5 * float64(iv.fullNS) / float64(max(iv.ns, 1)); halfPeriod < 1 {
		reduction := (1 - halfPeriod) * (1 - relative)
		factors[low], factors[est] = relative*(1-reduction), relative*(1-reduction/2)
	}
	return factors
}

// concurrentFactor is by what the running time of somebody else is multiplied.
func (t *trial) concurrentFactor(share *runShare) float64 {
	f := 1.0
	for i := range t.changes {
		c := &t.changes[i]
		if w := c.weights[share.targetID]; w > 0 && c.effect == nil {
			f = min(f, 1-w*(1-c.instanceFactor(c.usualNS, -1)[est]))
		}
	}
	return f
}
