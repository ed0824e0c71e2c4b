package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Variants of a prediction: the estimate and the ends of its range.
const (
	est = iota
	low
	high
	variants
)

// variantValues holds a time in ns or a factor for each variant.
type variantValues [variants]float64

var unchanged = variantValues{1, 1, 1}

// A trial is a set of changes, compiled for one group. It computes the latencies of the group's requests with these changes.
type trial struct {
	model             *Model
	changes           []trialChange
	nodeTimes         []variantValues // new times of the current graph's nodes
	wakeShares        []variantValues // by node of the current graph, see wakeShareAfter
	pauseScales       []variantValues // by node of the current graph: factor by which the changes shorten its server's pause
	serverScales      []variantValues // by node of the current graph, see scaleServers
	withoutEncounters bool            // compute latencies without encounters, see retime
	backlog           *pauseBacklog   // nil: the changes shorten no pause of a server during which requests queue
}

// A trialChange is one compiled change.
type trialChange struct {
	Change
	// weights is, by target id, the share of the target's time that the change affects.
	weights []float64
	procs   float64 // GOMAXPROCS; 0: unknown
	matcher *siteMatcher
	waits   map[tracefmt.StackID]bool // memo of isAboutWait; nil: the change is about no waits
	slots   *slotsEffect              // of ChangeSlots
	effect  *effect                   // of a setting; nil for a change of a cause
	usualNS int64                     // median length of the affected computations whose complete length is known
	queue   queue
	// encounterShare is the share of the requests with encounters that would still have one, see remainingEncounters.
	encounterShare float64
	// affected time, by computation of the graph
	nsByComputation []float64     // time that the change is about, in each computation
	meetsOwnWork    bool          // the change affects the request's own work
	meetsOtherWork  bool          // the change affects work for other requests
	concurrent      float64       // factor of work for others that runs at the same time as the request's own, see shareOfPs
	remainingAhead  variantValues // factor of the number of requests that are served before this one, at the current node
	ownResults      []*interval   // affected intervals of otherWork that were done for the request itself, see findResults
	waitScratch     []int32       // of findResults
	resultScratch   []waitResult  // of findResults
}

// affects reports whether a change affects the group: something that its requests do or wait for. Code that only ran while they
// waited for a P does not count.
func (t *trial) affects(group *group) bool {
	for i := range t.changes {
		if t.changeAffects(&t.changes[i], group) {
			return true
		}
	}
	return false
}

// hasQueueChange reports whether a change affects waits for locks or slots.
func (t *trial) hasQueueChange() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.waits != nil })
}

// changeAffects reports whether one change affects something that requests of the group do or wait for.
func (t *trial) changeAffects(c *trialChange, group *group) bool {
	if e := c.effect; e != nil && (e.changesProcs && e.waitPerRunNS[high] > 0 || e.changesGC && e.cycles[high] > 1) {
		return true
	}
	for i := range group.graphs {
		graph := group.graphs[i].Graph
		c.prepareRequest(graph)
		for k := range graph.intervals {
			if iv := &graph.intervals[k]; c.weights[iv.targetID] > 0 && (!c.affectsOnlyOthersWork() || !c.isOwnWork(iv)) {
				return true
			}
		}
		if c.affectsAnyWait(t.model, graph) {
			return true
		}
	}
	return false
}

// prepareRequest computes the fields of c that depend on one request's graph, mainly whether the change affects the request's
// own work or work for others.
func (c *trialChange) prepareRequest(graph *Graph) {
	c.nsByComputation = slices.Grow(c.nsByComputation[:0], int(graph.computations)+1)[:graph.computations+1]
	clear(c.nsByComputation)
	var ownNS, otherNS, largest, waits float64
	for i := range graph.intervals {
		iv := &graph.intervals[i]
		changedNS := c.weights[iv.targetID] * float64(iv.ns)
		if changedNS == 0 {
			continue
		}
		waits++
		c.nsByComputation[iv.computation] += changedNS
		if largest = max(largest, changedNS); iv.otherWork && !c.OwnWork {
			otherNS += changedNS
		} else {
			ownNS += changedNS
		}
	}
	if c.Kind == "" && c.Count > 0 && waits > 0 { // see resolveCalls
		c.Scale = min(1, float64(c.Count)/waits)
	}
	c.concurrent = c.shareOfPs(ownNS, otherNS)
	c.meetsOwnWork, c.meetsOtherWork, c.remainingAhead = ownNS > threshold.NoticeableShare*otherNS, otherNS > 0, unchanged
	if c.ownResults = c.ownResults[:0]; c.meetsOtherWork && !c.meetsOwnWork {
		c.findResults(graph, threshold.NoticeableShare*largest)
		c.meetsOwnWork = len(c.ownResults) > 0
	}
}

// shareOfPs returns, for an unlock change, the part of the others' work (otherNS) that still delays the request when it runs in
// parallel instead of under the lock: with fewer Ps than computing goroutines, each gets its share of them. 0 for other
// changes.
func (c *trialChange) shareOfPs(ownNS, otherNS float64) float64 {
	if c.Kind != report.ChangeUnlock || c.procs == 0 || ownNS == 0 || otherNS == 0 {
		return 0
	}
	return max(0, (ownNS+otherNS)/c.procs-ownNS) / otherNS
}

// A waitResult is the latest affected interval of work for others before a wait ends, and the time of its node.
type waitResult struct {
	interval *interval
	time     int64 // ns
}

// findResults sets ownResults: of each wait of the request's own goroutines, the latest affected interval of work for others,
// longer than minNS, if it may have delivered a result for this request (deliversResult). Then it is the request's own work.
func (c *trialChange) findResults(graph *Graph, minNS float64) {
	waits := append(c.waitScratch[:0], make([]int32, len(graph.nodes))...)          // by node: the node that ends its wait
	results := append(c.resultScratch[:0], make([]waitResult, len(graph.nodes))...) // by the node that ends the wait
	c.waitScratch, c.resultScratch = waits, results
	for i, node := range slices.Backward(graph.nodes) {
		if !node.otherWork {
			waits[i] = int32(i)
		}
		if node.predecessor >= 0 && waits[node.predecessor] == 0 {
			waits[node.predecessor] = waits[i]
		}
		for _, edge := range graph.edges[node.firstEdge:node.endEdge] {
			waits[edge.From] = waits[i] // if it ended several, the earliest
		}
		last := &results[waits[i]]
		for k := node.endInterval - 1; k >= node.firstInterval && node.time > last.time; k-- {
			if iv := &graph.intervals[k]; iv.otherWork && c.weights[iv.targetID]*float64(iv.ns) > minNS {
				*last = waitResult{iv, node.time}
			}
		}
	}
	for i := range results {
		if iv := results[i].interval; iv != nil && iv.deliversResult {
			c.ownResults = append(c.ownResults, iv)
		}
	}
}

// isOwnWork reports whether an interval is work for the request itself: on its own goroutines, or the work that delivered one of
// its results.
func (c *trialChange) isOwnWork(iv *interval) bool {
	return !iv.otherWork || c.OwnWork || slices.ContainsFunc(c.ownResults, func(result *interval) bool {
		return result == iv || iv.computation > 0 && iv.computation == result.computation ||
			iv.computation == 0 && iv.targetID == result.targetID && iv.fullNS == result.fullNS && iv.fullNS > iv.ns
	})
}

// measureGroup measures, over all sampled requests of a group, what the changes depend on: the usual length of affected computations,
// the queue, and the share of encounters that remain.
func (t *trial) measureGroup(group *group) {
	for i := range t.changes {
		change := &t.changes[i]
		if change.effect != nil {
			change.effect.measureMarkPhases(group, t.model.facts)
			continue
		}
		var computationNS []int64
		for k := range group.graphs {
			graph := group.graphs[k].Graph
			change.prepareRequest(graph)
			counted := make([]bool, len(change.nsByComputation))
			for j := range graph.intervals {
				if iv := &graph.intervals[j]; iv.computation > 0 && change.isOwnWork(iv) && !counted[iv.computation] &&
					change.nsByComputation[iv.computation] > 0 {
					counted[iv.computation] = true
					computationNS = append(computationNS, int64(change.nsByComputation[iv.computation]))
				}
			}
		}
		change.usualNS = sample.Median(computationNS)
		change.queue = t.measureQueue(group, change)
		change.encounterShare = change.remainingEncounters(group)
	}
	t.measureBacklog(group)
}

// retime returns a request's latency with the changes. If the changes make encounters rarer, it also returns the latency
// without an encounter (unmetLatencies), and the probability that one remains (1: always). An encounter is work of others, a
// wait for a slot, a garbage collection, or a freeze, that the request met by chance.
func (t *trial) retime(graph *Graph) (latencies, unmetLatencies, encounterChances variantValues) {
	encounterChances = unchanged
	var extraNS variantValues
	for i := range t.changes {
		c := &t.changes[i]
		if e := c.effect; e != nil {
			e.prepareRequest(graph, t.model.facts)
			for v := range encounterChances {
				encounterChances[v] = min(encounterChances[v], e.encounterChance[v])
				extraNS[v] += e.extraNS[v]
			}
			continue
		}
		if c.slots != nil {
			if c.affectsAnyWait(t.model, graph) {
				for v, chance := range c.slots.chances() {
					encounterChances[v] = min(encounterChances[v], chance)
				}
			}
			continue
		}
		if c.prepareRequest(graph); c.meetsOtherWork && !c.meetsOwnWork && c.Cause != Queue {
			encounterChances[est] = min(encounterChances[est], c.encounterShare)
			encounterChances[low] = min(encounterChances[low], c.encounterShare)
		}
	}
	t.withoutEncounters = false
	latencies = t.endTimes(graph)
	if unmetLatencies = latencies; encounterChances != unchanged {
		t.withoutEncounters = true
		unmetLatencies = t.endTimes(graph)
	}
	for v := range latencies {
		latencies[v] += extraNS[v]
	}
	return latencies, unmetLatencies, encounterChances
}

// endTimes returns the end of a request with the changes, in ns since its start. It computes the new time of each node in
// order: the predecessor's time plus the changed intervals, or the latest edge from another goroutine.
func (t *trial) endTimes(graph *Graph) variantValues {
	t.nodeTimes, t.wakeShares, t.pauseScales = t.nodeTimes[:0], t.wakeShares[:0], t.pauseScales[:0]
	t.scaleServers(graph)
	queued, startScale := t.workForEarlierRequests(graph)
	for i := range graph.nodes {
		node := &graph.nodes[i]
		var ends variantValues
		wakeShare, pauseScale := unchanged, startScale
		if node.predecessor >= 0 {
			ends, wakeShare, pauseScale = t.nodeTimes[node.predecessor], t.wakeShares[node.predecessor], t.pauseScales[node.predecessor]
			queueScale := t.queueScale(graph, node)
			for k := node.firstInterval; k < node.endInterval; k++ {
				iv := &graph.intervals[k]
				factors, ns := t.intervalFactor(graph, iv), float64(iv.ns)
				if graph.isChain && t.backlog != nil {
					factors = t.backlog.limitChain(factors, iv)
				}
				isAhead := iv.otherWork && !t.isAffected(iv)
				if iv.deliversResult && !isAhead && iv.cause == cause.Sleep {
					pauseScale[est], pauseScale[low] = min(pauseScale[est], factors[est]), min(pauseScale[low], factors[low])
				}
				for v := range ends {
					if queued != nil && queued[k] {
						factors[v] = min(factors[v], pauseScale[v])
					}
					if isAhead {
						factors[v] = min(factors[v], queueScale[v], t.serverScales[i][v])
					}
					if isWakeup(iv) {
						factors[v] *= wakeShare[v]
					} else if wakeShare[v] = 1; isLeafWait(iv.cause) && factors[v] == 0 && v != high {
						wakeShare[v] = 0
					}
					ends[v] += factors[v] * ns
				}
			}
		} else if node.firstEdge == node.endEdge {
			for v := range ends {
				ends[v] = max(0, float64(node.time))
			}
		}
		ready := ends
		for k := node.firstEdge; k < node.endEdge; k++ {
			edge := &graph.edges[k]
			for v := range ends {
				if end := t.nodeTimes[edge.From][v]; end > ends[v] && (!edge.Soft || v == high) {
					ends[v] = max(ends[v], t.waitEnd(graph, node, edge, ready[v], end, v))
				}
			}
		}
		if waitNS := graph.waitNS(node); waitNS > 0 {
			for v := range ends {
				wakeShare[v] = graph.wakeShareAfter(node, waitNS, ends[v]-ready[v], v)
			}
		}
		t.nodeTimes, t.wakeShares, t.pauseScales = append(t.nodeTimes, ends), append(t.wakeShares, wakeShare), append(t.pauseScales, pauseScale)
	}
	return t.nodeTimes[len(t.nodeTimes)-1]
}

// wakeShareAfter returns which share of the time from the end of a node's wait until the goroutine runs is left, if the wait
// took waitNS and now takes newNS. In a shorter queue for a lock or slot fewer requests wait at all. A thread that waits for
// less than threshold.ThreadWakeNS does not sleep. For high, it stays.
func (g *Graph) wakeShareAfter(n *node, waitNS, newNS float64, variant int) float64 {
	isQueue := func(edge critpath.Edge) bool { return isForLockOrSlot(edge.WaitKind) }
	if variant == high {
		return 1
	}
	if !slices.ContainsFunc(g.edges[n.firstEdge:n.endEdge], isQueue) {
		waitNS = min(waitNS, threshold.ThreadWakeNS)
	}
	return min(1, newNS/waitNS)
}

// isWakeup reports whether an interval is the time from the end of a wait until the goroutine runs. It disappears with the
// wait.
func isWakeup(iv *interval) bool {
	return iv.cause == cause.Sched || iv.cause == cause.SchedWake || iv.cause == cause.SchedPoll
}

// isAffected reports whether any change affects an interval.
func (t *trial) isAffected(iv *interval) bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.weights[iv.targetID] > 0 })
}

// queueScale returns the factor for the number of requests that are served before this one in the intervals of a node. It is
// computed from the share of their work there that the changes affect. The rest of their work shrinks with their number.
func (t *trial) queueScale(graph *Graph, node *node) variantValues {
	out := unchanged
	for i := range t.changes {
		change := &t.changes[i]
		change.remainingAhead = unchanged
		if change.effect != nil || change.Kind == report.ChangeUnlock || !change.meetsOtherWork || !change.meetsOwnWork && change.Cause != Queue {
			continue
		}
		var before, after variantValues
		servedFromStart := false // a service began early in the interval, so that the number may shrink
		for k := node.firstInterval; k < node.endInterval; k++ {
			iv := &graph.intervals[k]
			if !iv.otherWork || change.isOwnWork(iv) {
				continue
			}
			factors, weight, ns := unchanged, change.weights[iv.targetID], float64(iv.ns)
			fromStart := weight > 0 && weight*ns >= threshold.NoticeableShare*float64(iv.fullNS)
			servedFromStart = servedFromStart || fromStart
			if weight > 0 {
				factors = change.factor(iv, false)
			}
			for v := range before {
				before[v] += ns
				after[v] += ns * (1 - weight*(1-factors[v]))
				if change.Cause == Queue && fromStart {
					out[v] = min(out[v], factors[v])
				}
			}
		}
		if change.Cause == Queue {
			continue
		}
		for v := range after {
			if s := after[v] / max(before[v], 1); s > 0 {
				change.remainingAhead[v] = change.queue.factor(s, v) / s
			}
			if servedFromStart {
				out[v] = min(out[v], change.remainingAhead[v])
			}
		}
	}
	return out
}

// intervalFactor returns the factor by which all changes together multiply an interval: the smallest one, in which other code that ran
// during a wait for a P and the limits of polls are considered.
func (t *trial) intervalFactor(graph *Graph, iv *interval) variantValues {
	factors := unchanged
	for i := range t.changes {
		change := &t.changes[i]
		w := change.weights[iv.targetID]
		if w == 0 {
			continue
		}
		var changed variantValues
		if change.effect != nil {
			changed = change.effect.factor(iv, t.withoutEncounters)
		} else {
			changed = change.factor(iv, t.withoutEncounters)
		}
		for v := range factors {
			factors[v] = min(factors[v], 1-w*(1-changed[v]))
		}
	}
	if iv.firstShare < iv.endShare {
		remaining := 1.0
		for k := iv.firstShare; k < iv.endShare; k++ {
			remaining -= graph.runShares[k].share * (1 - t.concurrentFactor(&graph.runShares[k]))
		}
		remaining = max(0, remaining)
		factors[est] = min(factors[est], remaining)
		factors[low] = min(factors[low], remaining*remaining)
	}
	return graph.limitByPoll(factors, iv)
}

// factor returns the factor by which this change multiplies an interval that it affects completely: own work as instanceFactor
// says, work for others also by the shorter queue. withoutEncounters: the request does not meet the work by chance.
func (c *trialChange) factor(iv *interval, withoutEncounters bool) variantValues {
	fullNS := iv.fullNS
	if iv.computation > 0 {
		fullNS = int64(c.nsByComputation[iv.computation])
		if !c.isOwnWork(iv) {
			fullNS = max(fullNS, c.usualNS) // only the part during the wait is known
		}
	}
	lateNS := int64(-1)
	if iv.cause == cause.Sleep && !iv.endsWithTick {
		lateNS = iv.lateNS
	}
	factors := c.instanceFactor(fullNS, lateNS)
	if c.affectsOnlyOthersWork() && (c.isOwnWork(iv) || iv.endsWithTick) {
		return unchanged
	}
	if c.Cause == Queue {
		return factors
	}
	if c.Kind == report.ChangeUnlock && iv.cause == cause.CPU {
		factors[est], factors[high] = c.concurrent, c.concurrent
		return factors
	}
	if c.slots != nil {
		for v := range factors {
			if factors[v] = c.slots.newWaitNS(float64(iv.ns), v) / float64(max(iv.ns, 1)); withoutEncounters {
				factors[v] = 0
			}
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

// tickFactor returns the factor of a wait for a ticker whose period is multiplied by relative. A request that arrives at a
// random time keeps its relative position in the period (high). Clients that the last tick released arrive soon after it and
// wait for nearly all of a long period; in a much shorter period they arrive at random times, and wait for half of it (low).
func tickFactor(relative float64, iv *interval) variantValues {
	factors := variantValues{est: relative, low: relative, high: relative}
	if halfPeriod := 0.5 * float64(iv.fullNS) / float64(max(iv.ns, 1)); halfPeriod < 1 {
		reduction := (1 - halfPeriod) * (1 - relative)
		factors[low], factors[est] = relative*(1-reduction), relative*(1-reduction/2)
	}
	return factors
}

// concurrentFactor returns the factor by which the changes multiply the running time of other goroutines during a wait for a P.
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
