package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
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

// variantFlags holds a condition for each variant.
type variantFlags [variants]bool

// A trial is a set of changes, compiled for the targets of a model.
type trial struct {
	model             *Model
	changes           []trialChange
	nodeTimes         []variantValues // new times of the current graph's nodes
	noWaits           []variantFlags  // by node of the current graph: it ended a wait that is gone
	pauseScales       []variantValues // by node of the current graph: by what the changes shorten its server's pause
	serverScales      []variantValues // by node of the current graph, see scaleServers
	withoutEncounters bool            // compute latencies without encounters, see retime
}

// A trialChange is one compiled change.
type trialChange struct {
	Change
	// weights is, by target id, the share of the target's time that the change is about.
	weights []float64
	procs   float64 // GOMAXPROCS; 0: unknown
	matcher *siteMatcher
	waits   map[tracefmt.StackID]bool // memo of isAboutWait; nil: the change is about no waits
	slots   *slotsEffect              // of ChangeSlots
	effect  *effect                   // of a setting; nil for a change of a cause
	usualNS int64                     // median length of the computations that the change is about, where all of it is known
	queue   queue
	// encounterShare is the share of the requests with encounters that would still have one, see remainingEncounters.
	encounterShare float64
	// Of the current graph:
	nsByComputation []float64     // time that the change is about, in each computation
	meetsOwnWork    bool          // the change is about the request's own work
	meetsOtherWork  bool          // the change is about work for others
	concurrent      float64       // factor of work for others that runs at the same time as the request's own, see shareOfPs
	remainingAhead  variantValues // factor of the number of requests that are served before this one, at the current node
	ownResult       *interval     // the last of otherWork if it was done for the request itself; nil if not
}

// meets reports whether a change is about something that requests of the group do or wait for. What only ran while they
// waited for a P does not count.
func (t *trial) meets(group *group) bool {
	for i := range t.changes {
		if t.meetsChange(&t.changes[i], group) {
			return true
		}
	}
	return false
}

// hasQueueChange reports whether a change is about the queue before requests.
func (t *trial) hasQueueChange() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.waits != nil })
}

// meetsChange reports whether a change is about something that requests of the group do or wait for.
func (t *trial) meetsChange(c *trialChange, group *group) bool {
	if e := c.effect; e != nil && (e.changesProcs && e.waitPerRunNS[high] > 0 || e.changesGC && e.cycles[high] > 1) {
		return true
	}
	for i := range group.graphs {
		graph := group.graphs[i].Graph
		c.selectGraph(graph)
		for k := range graph.intervals {
			if iv := &graph.intervals[k]; c.weights[iv.targetID] > 0 && (!c.isAboutOthers() || !c.isOwnWork(iv)) {
				return true
			}
		}
		if c.meetsWait(t.model, graph) {
			return true
		}
	}
	return false
}

// selectGraph sets the fields of c that depend on the current graph.
func (c *trialChange) selectGraph(graph *Graph) {
	c.nsByComputation = slices.Grow(c.nsByComputation[:0], int(graph.computations)+1)[:graph.computations+1]
	clear(c.nsByComputation)
	var ownNS, otherNS, largest float64
	for i := range graph.intervals {
		iv := &graph.intervals[i]
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
	c.concurrent = c.shareOfPs(ownNS, otherNS)
	c.meetsOwnWork, c.meetsOtherWork, c.remainingAhead = ownNS > threshold.NoticeableShare*otherNS, otherNS > 0, unchanged
	if c.ownResult = nil; c.meetsOtherWork && !c.meetsOwnWork {
		c.ownResult = c.lastResult(graph, threshold.NoticeableShare*largest)
		c.meetsOwnWork = c.ownResult != nil
	}
}

// shareOfPs returns the part of the work for others that still delays a request if that work no longer waits for a lock, but runs
// at the same time: if there are fewer Ps than goroutines that compute, each has its share of them.
func (c *trialChange) shareOfPs(ownNS, otherNS float64) float64 {
	if c.Kind != report.ChangeUnlock || c.procs == 0 || ownNS == 0 || otherNS == 0 {
		return 0
	}
	return max(0, (ownNS+otherNS)/c.procs-ownNS) / otherNS
}

// lastResult returns the latest interval of otherWork that the change is about, if its work may have been for the request
// itself; else nil.
func (c *trialChange) lastResult(graph *Graph, minNS float64) *interval {
	var last *interval
	lastTime := int64(-1)
	for i := range graph.nodes {
		node := &graph.nodes[i]
		for k := node.firstInterval; k < node.endInterval && node.time >= lastTime; k++ {
			if iv := &graph.intervals[k]; iv.otherWork && c.weights[iv.targetID]*float64(iv.ns) > minNS {
				last, lastTime = iv, node.time
			}
		}
	}
	if last != nil && !last.deliversResult {
		return nil
	}
	return last
}

// isOwnWork reports whether an interval is work for the request itself.
func (c *trialChange) isOwnWork(iv *interval) bool {
	result := c.ownResult
	return !iv.otherWork || c.OwnWork || result == iv ||
		result != nil && (iv.computation > 0 && iv.computation == result.computation ||
			iv.computation == 0 && iv.targetID == result.targetID && iv.fullNS == result.fullNS && iv.fullNS > iv.ns)
}

// survey measures, over all requests of a group, what the changes depend on: lengths of computations, queues, encounters.
func (t *trial) survey(group *group) {
	for i := range t.changes {
		change := &t.changes[i]
		if change.effect != nil {
			change.effect.survey(group, t.model.facts)
			continue
		}
		var computationNS []int64
		for k := range group.graphs {
			graph := group.graphs[k].Graph
			change.selectGraph(graph)
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
}

// retime returns the latencies of a request with the changes, the latencies if it also had no encounters, and the probability
// that it still has them. An encounter is work of others, or a garbage collection, that the request met by chance.
func (t *trial) retime(graph *Graph) (latencies, unmetLatencies, encounterChances variantValues) {
	encounterChances = unchanged
	var extraNS variantValues
	for i := range t.changes {
		c := &t.changes[i]
		if e := c.effect; e != nil {
			e.selectGraph(graph, t.model.facts)
			for v := range encounterChances {
				encounterChances[v] = min(encounterChances[v], e.encounterChance[v])
				extraNS[v] += e.extraNS[v]
			}
			continue
		}
		if c.slots != nil {
			if c.meetsWait(t.model, graph) {
				for v, chance := range c.slots.chances() {
					encounterChances[v] = min(encounterChances[v], chance)
				}
			}
			continue
		}
		if c.selectGraph(graph); c.meetsOtherWork && !c.meetsOwnWork && c.Cause != Queue {
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

// endTimes computes the end of a graph with the changes.
func (t *trial) endTimes(graph *Graph) variantValues {
	t.nodeTimes, t.noWaits, t.pauseScales = t.nodeTimes[:0], t.noWaits[:0], t.pauseScales[:0]
	t.scaleServers(graph)
	queued := t.findQueued(graph)
	for i := range graph.nodes {
		node := &graph.nodes[i]
		var ends variantValues
		var noWait variantFlags
		pauseScale := unchanged
		if node.predecessor >= 0 {
			ends, noWait, pauseScale = t.nodeTimes[node.predecessor], t.noWaits[node.predecessor], t.pauseScales[node.predecessor]
			queueScale := t.queueScale(graph, node)
			for k := node.firstInterval; k < node.endInterval; k++ {
				iv := &graph.intervals[k]
				factors, ns := t.factor(graph, iv), float64(iv.ns)
				isAhead := iv.otherWork && !t.isChanged(iv)
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
						if noWait[v] && v != high {
							continue
						}
					} else {
						noWait[v] = isLeafWait(iv.cause) && factors[v] == 0
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
		waited := graph.waitNS(node) > 0
		for v := range ends {
			noWait[v] = waited && ends[v] == ready[v] || !waited && noWait[v]
		}
		t.nodeTimes, t.noWaits, t.pauseScales = append(t.nodeTimes, ends), append(t.noWaits, noWait), append(t.pauseScales, pauseScale)
	}
	return t.nodeTimes[len(t.nodeTimes)-1]
}

// findQueued returns which intervals are work for requests that were perhaps served before this one because they arrived during a pause
// of their server that a change shortens: fewer arrive in a shorter one. The server does the same work again in the graph: the last
// time is for this request. It returns nil if no such pause is in the graph.
func (t *trial) findQueued(graph *Graph) []bool {
	hasPause := false
	for k := range graph.intervals {
		iv := &graph.intervals[k]
		hasPause = hasPause || iv.deliversResult && iv.cause == cause.Sleep && t.isChanged(iv)
	}
	if !hasPause {
		return nil
	}
	type serverWork struct{ firstNode, target int32 }
	firstNodes, queued, laterWork := make([]int32, len(graph.nodes)), make([]bool, len(graph.intervals)), make(map[serverWork]bool)
	for i := range graph.nodes {
		if firstNodes[i] = int32(i); graph.nodes[i].predecessor >= 0 {
			firstNodes[i] = firstNodes[graph.nodes[i].predecessor]
		}
	}
	for i, node := range slices.Backward(graph.nodes) {
		for k := node.endInterval - 1; k >= node.firstInterval; k-- {
			if iv := &graph.intervals[k]; iv.otherWork && !t.isChanged(iv) {
				work := serverWork{firstNodes[i], iv.targetID}
				queued[k], laterWork[work] = laterWork[work], true
			}
		}
	}
	return queued
}

// isWakeup reports whether an interval is the time from the end of a wait until the goroutine runs. It goes with the wait.
func isWakeup(iv *interval) bool {
	return iv.cause == cause.Sched || iv.cause == cause.SchedWake || iv.cause == cause.SchedPoll
}

// isChanged reports whether a change is about an interval.
func (t *trial) isChanged(iv *interval) bool {
	for i := range t.changes {
		if t.changes[i].weights[iv.targetID] > 0 {
			return true
		}
	}
	return false
}

// queueScale returns the factor of the number of requests that are served before this one at a node, from the share of their
// work there that the changes are about. The rest of their work shrinks with their number.
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

// factor returns by what the changes multiply an interval.
func (t *trial) factor(graph *Graph, iv *interval) variantValues {
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

// factor returns by what the change multiplies an interval that is all about it.
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
	if c.isAboutOthers() && (c.isOwnWork(iv) || iv.endsWithTick) {
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
			if factors[v] = c.slots.newWait(float64(iv.ns), v) / float64(max(iv.ns, 1)); withoutEncounters {
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

// tickFactor returns by what the wait for a ticker is multiplied if its period is multiplied by relative. A request that
// arrives at a random time keeps its relative place in the period (high). Clients that the last tick released arrive soon
// after it and wait for nearly all of a long period; in a much shorter period they arrive at random times, and wait for half
// of it (low).
func tickFactor(relative float64, iv *interval) variantValues {
	factors := variantValues{est: relative, low: relative, high: relative}
	if halfPeriod := 0.5 * float64(iv.fullNS) / float64(max(iv.ns, 1)); halfPeriod < 1 {
		reduction := (1 - halfPeriod) * (1 - relative)
		factors[low], factors[est] = relative*(1-reduction), relative*(1-reduction/2)
	}
	return factors
}

// concurrentFactor returns by what the changes multiply the running time of other goroutines.
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
