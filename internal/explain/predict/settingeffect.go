package predict

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
)

// An effect is the predicted change of requests by a runtime or kernel setting (GOGC, GOMEMLIMIT, GOMAXPROCS, CPU quota).
type effect struct {
	// changesGC, changesFreezes and changesProcs decide which of the factors below apply. The factors compare with the trace:
	// the number of collections and the assists in each; the length of a freeze and the number of requests that meet one;
	// waits for a P. waitPerRunNS is how much longer a request waits for a P per ns that it runs.
	changesGC, changesFreezes, changesProcs bool
	cycles, assist                          variantValues
	throttle, freezeEncounters              variantValues
	sched, waitPerRunNS                     variantValues
	// For the current group: what a mark phase costs a request that meets one, and the factors of waits for a P and of computing
	// in mark phases if there were no mark phase.
	markCost, outsideMarks, outsideComputing variantValues
	// For the current graph: the share of the collector's time that remains, the chance to meet what remains, and the time
	// that is added.
	remaining, encounterChance, extraNS variantValues
}

// effectWeights returns, by target id, which share of the target's time the setting affects: all of it, none, or for stops of
// the world the collector's share.
func (m *Model) effectWeights(e *effect) []float64 {
	out := make([]float64, len(m.targets))
	for i, p := range m.targets {
		switch p.cause {
		case cause.GCAssist, cause.GCWait, cause.CPU:
			out[i] = oneIf(e.changesGC)
		case cause.STW:
			if e.changesGC {
				out[i] = m.facts.GCStopShare
			}
		case cause.Sched, cause.SchedPoll:
			out[i] = oneIf(e.changesGC || e.changesProcs)
		case cause.SchedWake:
			out[i] = oneIf(e.changesGC)
		case cause.Throttle:
			out[i] = oneIf(e.changesFreezes)
		}
	}
	return out
}

// oneIf returns 1 for true and 0 for false.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// isNoOp reports whether all changes are settings that have no effect.
func (t *trial) isNoOp() bool {
	for i := range t.changes {
		if e := t.changes[i].effect; e == nil || e.changesGC || e.changesFreezes || e.changesProcs {
			return false
		}
	}
	return len(t.changes) > 0
}

// hasSettings reports whether a change is a setting.
func (t *trial) hasSettings() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.effect != nil })
}

// measureMarkPhases measures what mark phases cost the requests of a group: the collector's time on the request's goroutine in each phase
// (markCost), the ratio of waits for a P outside of mark phases to those inside (outsideMarks), because mark workers take
// Ps, and that of computing (outsideComputing), because write barriers and the workers' use of CPUs and caches slow it down.
func (e *effect) measureMarkPhases(group *group, f *Facts) {
	if !e.changesGC {
		return
	}
	var collectorNS, phases, insideNS, insideWaitNS, outsideNS, outsideWaitNS float64
	var requests, computedOutsideNS, computedInsideNS [2]float64 // of requests that began outside [0] and inside [1] of a mark phase
	for graph := range entry.Each(group.graphs) {
		began := min(1, f.markedNS(graph.Start, graph.Start+1))
		requests[began] += graph.weight
		phases += graph.weight * f.markPhases(graph.Graph)
		for iv := range entry.Each(graph.intervals) {
			if iv.otherWork {
				continue
			}
			ns, markShare := graph.weight*float64(iv.ns), float64(iv.markShare)
			insideNS, outsideNS = insideNS+ns*markShare, outsideNS+ns*(1-markShare)
			switch {
			case iv.cause == cause.CPU:
				computedInsideNS[began] += ns * markShare
				computedOutsideNS[began] += ns * (1 - markShare)
			case iv.isCollectorTime():
				collectorNS += ns
			case iv.cause == cause.Sched || iv.cause == cause.SchedPoll:
				insideWaitNS, outsideWaitNS = insideWaitNS+ns*markShare, outsideWaitNS+ns*(1-markShare)
			}
		}
	}
	// That of programs with and without their collections, unless the trace shows it: whether a mark phase is in progress when
	// requests begin does not depend on them, so those that begin outside and inside have the same work on average.
	e.outsideComputing = variantValues{est: 0.7, low: 0.5, high: 1}
	if min(requests[0], requests[1]) >= threshold.MedianSample && computedOutsideNS[0] > computedInsideNS[0] {
		outside := computedOutsideNS[0]/requests[0] - computedOutsideNS[1]/requests[1]
		inside := computedInsideNS[1]/requests[1] - computedInsideNS[0]/requests[0]
		ratio := min(1, max(outside/max(inside, 1), e.outsideComputing[low]))
		e.outsideComputing = variantValues{est: ratio, low: max(ratio*ratio, e.outsideComputing[low]), high: math.Sqrt(ratio)}
	}
	e.outsideMarks = unchanged
	if insideWaitNS > 0 && outsideNS > 0.02*insideNS {
		ratio := min(1, outsideWaitNS/outsideNS/(insideWaitNS/insideNS))
		e.outsideMarks = variantValues{est: ratio, low: ratio * ratio, high: math.Sqrt(ratio)}
	} else if insideWaitNS > 0 {
		e.outsideMarks = variantValues{est: f.waitRatioWithoutCollector(), low: 0, high: 1} // the trace shows nothing outside mark phases
	}
	if phases > 0 {
		collectorNS /= phases
		for v := range e.markCost {
			e.markCost[v] = collectorNS + insideWaitNS*(1-e.outsideMarks[v])/phases
		}
	}
}

// prepareRequest computes the fields of e that depend on one request's graph: which share of the collector's time remains, the
// probability that the request still meets a mark phase or freeze, and the time that is added.
//
// Each mark phase that a request meets is equally likely to remain. If fewer than one remains, the probability to meet one
// falls, and a request that does meet one takes as long as before.
func (e *effect) prepareRequest(graph *Graph, f *Facts) {
	e.remaining, e.encounterChance, e.extraNS = unchanged, unchanged, variantValues{}
	if e.changesGC {
		phases := f.markPhases(graph)
		for v, s := range e.cycles {
			switch {
			case s == 0:
				e.remaining[v], e.encounterChance[v] = 0, 0
			case s > 1:
				extraPhases := (s - 1) * (float64(graph.Latency)*float64(f.Cycles) + float64(f.MarkNS)) / float64(f.SpanNS)
				e.encounterChance[v], e.extraNS[v] = min(1, extraPhases), e.markCost[v]*max(1, extraPhases)
			case phases > 0:
				e.remaining[v], e.encounterChance[v] = max(s, 1/phases), min(1, s*phases)
			}
		}
	}
	if e.changesFreezes && slices.ContainsFunc(graph.intervals, func(iv interval) bool { return iv.cause == cause.Throttle }) {
		for v := range e.encounterChance {
			e.encounterChance[v] = min(e.encounterChance[v], e.freezeEncounters[v])
		}
	}
	if e.changesProcs {
		ranNS := 0.0
		for i := range graph.intervals {
			if iv := &graph.intervals[i]; iv.cause == cause.CPU && !iv.otherWork {
				ranNS += float64(iv.ns)
			}
		}
		for v := range e.extraNS {
			e.extraNS[v] += e.waitPerRunNS[v] * ranNS
		}
	}
}

// factor returns the factor by which the setting multiplies an interval: 1 leaves it, 0 removes it. withoutEncounters computes
// the case in which the request meets neither a mark phase nor a freeze.
func (e *effect) factor(iv *interval, withoutEncounters bool) variantValues {
	factors := unchanged
	for v := range factors {
		remaining, throttle := e.remaining[v], e.throttle[v]
		if withoutEncounters {
			if throttle = 0; e.cycles[v] <= 1 {
				remaining = 0
			}
		}
		switch {
		case iv.cause == cause.Throttle && e.changesFreezes:
			factors[v] = throttle
		case iv.cause == cause.CPU && e.changesGC:
			factors[v] = 1 - float64(iv.markShare)*(1-remaining)*(1-e.outsideComputing[v])
		case iv.cause == cause.GCAssist && e.changesGC && iv.markShare == 0:
			factors[v] = min(1, e.cycles[v]) // sweeping: once a collection, divided among allocations
		case iv.cause == cause.GCAssist && e.changesGC:
			factors[v] = remaining * e.assist[v]
		case iv.isCollectorTime() && e.changesGC:
			factors[v] = remaining
		case isWakeup(iv):
			if e.changesGC {
				factors[v] = 1 - float64(iv.markShare)*(1-remaining)*(1-e.outsideMarks[v])
			}
			if e.changesProcs && iv.cause != cause.SchedWake {
				factors[v] *= e.sched[v]
			}
		}
	}
	return factors
}
