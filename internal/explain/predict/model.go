// Package predict estimates how latency would change if something were faster. Input: a bounded sample of requests of each
// group, as graphs (see critpath.Graph), and a Change, such as "half the sleep at main.go:27", or a Setting, such as GOGC. It
// multiplies the intervals that the change is about, in work for other requests, too, and computes the end of every request
// again. Output: percentiles as an estimate in a range from low to high.
//
// Assumptions, each with its share of the range:
//
//   - A goroutine that the request started runs in parallel. If one gets faster, the next latest decides. That the request
//     waited for a goroutine which had ended is certain for a WaitGroup; for other waits it is assumed only for high.
//   - Work for others that a request waited for (the holder of a lock, the jobs ahead of it at a worker) is a queue. High:
//     the queue's time shrinks as the services do, as if clients sent the next request when they have an answer. Low:
//     requests arrive at random, so a shorter service shortens the queue by more (see queue). The regularity of the queue in
//     the trace decides between the two.
//   - A wait for a P shrinks with the goroutines that ran, by their shares. For high it stays.
//   - Of the pauses of a poll (see pauseSequence) only the last one gets shorter: something else ends the poll.
//   - A wait for the tick of a timer that serves several requests keeps its relative place in the period.
//
// Not in the range, because a trace does not show it: other algorithms, a peer's behaviour under another load, caches,
// garbage that is no longer created.
package predict

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Model predicts for the groups of one report. Only Prepare is safe for concurrent use.
type Model struct {
	syms       *tracefmt.Symbols
	sites      *cause.Sites
	settlement *cause.Settlement
	sitesBelow func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64)
	groups     map[string]*group
	targetIDs  map[target]int32
	targets    []target
	prepared   sync.Once
	// duration is the length of the trace in ns.
	duration int64
	facts    *Facts // of the process; nil: unknown
	pools    []Pool
	calls    map[string][]CallSum // by the group's id
}

// A group is a group of the report with its measured percentiles in ns (nil: unknown) and its sampled graphs.
type group struct {
	id       string
	sample   *Sample
	p50, p90 *int64
	p99, max *int64
	graphs   []weightedGraph
	backlog  *request.Backlog // nil if none
}

// A weightedGraph is a sampled graph with the number of requests that it represents.
type weightedGraph struct {
	*Graph
	weight float64
}

// NewModel returns a model without groups, for a trace of a duration in ns. settlement decides which candidate freezes were
// freezes. sitesBelow returns, for a function, the sites that CPU samples found running below it, with their times, and the
// sum of these.
func NewModel(
	syms *tracefmt.Symbols, settlement *cause.Settlement, duration int64,
	sitesBelow func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64),
) *Model {
	return &Model{
		syms: syms, settlement: settlement, duration: duration, sites: cause.NewSites(syms), sitesBelow: sitesBelow,
		groups: make(map[string]*group), targetIDs: make(map[target]int32),
	}
}

// AddGroup adds a group by its id in the report, with its measured percentiles; nil where unknown.
func (m *Model) AddGroup(id string, s *Sample, latency report.Latency) {
	m.groups[id] = &group{id: id, sample: s, p50: latency.P50, p90: latency.P90, p99: latency.P99, max: latency.Max}
}

// Prepare loads all groups once, in an order that does not depend on which group is predicted first. It may be called in the background when
// all groups and facts are known: predictions wait for it.
func (m *Model) Prepare() {
	m.prepared.Do(func() {
		for _, id := range slices.Sorted(maps.Keys(m.groups)) {
			m.loadGraphs(m.groups[id])
			m.findPolls(m.groups[id])
		}
		m.setLateness()
	})
}

// setLateness sets lateNS of each sleep: how much longer it was than the median of sleeps of similar length at the same target.
func (m *Model) setLateness() {
	sleeps := make([][]*interval, len(m.targets))
	for _, g := range m.groups {
		for i := range g.graphs {
			parts := g.graphs[i].intervals
			for k := range parts {
				if p := &parts[k]; p.cause == cause.Sleep && !p.endsWithTick {
					sleeps[p.targetID] = append(sleeps[p.targetID], p)
				}
			}
		}
	}
	for _, similar := range sleeps {
		slices.SortFunc(similar, func(a, b *interval) int { return cmp.Compare(a.fullNS, b.fullNS) })
		first, end := 0, 0
		for _, p := range similar {
			for float64(similar[first].fullNS) < threshold.MostShare*float64(p.fullNS) {
				first++
			}
			for end < len(similar) && threshold.MostShare*float64(similar[end].fullNS) <= float64(p.fullNS) {
				end++
			}
			p.lateNS = max(0, p.fullNS-similar[(first+end-1)/2].fullNS)
		}
	}
}

// loadGraphs takes a group's graphs from its sample and completes them: final causes, ids of targets, shares inside of mark
// phases.
func (m *Model) loadGraphs(group *group) {
	group.sample.eachGraph(func(graph *Graph, weight float64) {
		group.graphs = append(group.graphs, weightedGraph{graph, weight})
		graph.resolvePending(m.settlement)
		if m.facts != nil {
			m.facts.setMarkShares(graph)
		}
		for i := range graph.intervals {
			graph.intervals[i].targetID = m.targetID(graph.intervals[i].target)
		}
		for i := range graph.runShares {
			graph.runShares[i].targetID = m.targetID(graph.runShares[i].target)
		}
	})
}

// resolvePending sets the final cause of intervals that overlap a candidate freeze: cause.Throttle if the settlement says it
// was a freeze, else the cause without it.
func (g *Graph) resolvePending(settlement *cause.Settlement) {
	for i := range g.intervals {
		iv := &g.intervals[i]
		if iv.code.IsPending() && settlement[iv.code] == cause.Throttle {
			iv.target = target{cause: cause.Throttle, site: iv.site}
			iv.fullNS, iv.computation, iv.otherWork, iv.firstShare, iv.endShare = iv.ns, 0, false, 0, 0
		}
		iv.code = cause.Code(iv.cause)
	}
}

// targetID returns the id of a target, assigning it on demand.
func (m *Model) targetID(t target) int32 {
	id, ok := m.targetIDs[t]
	if !ok {
		id = int32(len(m.targets))
		m.targetIDs[t] = id
		m.targets = append(m.targets, t)
	}
	return id
}

// WhatIf predicts the median, 99th percentile and maximum of a group's latency with all changes together. It returns nil if the
// group has no sample, the changes do not affect it, or its slowest requests are chains and a change is about a queue.
func (m *Model) WhatIf(id string, changes []Change) *report.Predicted {
	group := m.groups[id]
	if group == nil {
		return nil
	}
	m.Prepare()
	if group.backlog != nil {
		return m.predictMessages(group, changes)
	}
	if len(group.graphs) == 0 {
		return nil
	}
	trial := m.compile(id, changes)
	switch {
	case trial.isNoOp() && group.p50 != nil:
		return unchangedPrediction(group, changes)
	case !trial.affects(group):
		return nil
	}
	trial.measureGroup(group)
	requests := withoutPartial(trial.retimeAll(group))
	var samples series
	for i := range requests {
		samples.add(&requests[i])
	}
	if trial.hasQueueChange() && samples.hasChainTail() {
		return nil
	}
	predicted := group.estimate(&samples, changes, trial.hasSettings())
	if !trial.hasSettings() {
		predicted.Check = m.checkPrediction(group, changes, requests)
	}
	return predicted
}

// estimate returns the prediction for a group from its sample: percentiles and maximum, before as measured in the whole group.
// hasSetting is that of estimatePercentile.
func (g *group) estimate(samples *series, changes []Change, hasSetting bool) *report.Predicted {
	predicted := &report.Predicted{
		Change: changesText(changes), FromArrival: g.backlog != nil,
		P50NS: estimatePercentile(samples, 0.5, g.p50, hasSetting),
		P99NS: estimatePercentile(samples, 0.99, g.p99, hasSetting),
	}
	// Each percentile is the measured one times a factor from the sample. If few requests are between two percentiles, they
	// may cross.
	p50, p99 := &predicted.P50NS, &predicted.P99NS
	p99.Est, p99.Low, p99.High = max(p99.Est, p50.Est), max(p99.Low, p50.Low), max(p99.High, p50.High)
	predicted.WasP50NS, predicted.WasP99NS = g.p50, g.p99
	if g.max != nil {
		maximum := estimatePercentile(samples, 1, g.max, hasSetting)
		maximum.Est, maximum.Low, maximum.High = max(maximum.Est, p99.Est), max(maximum.Low, p99.Low), max(maximum.High, p99.High)
		predicted.MaxNS, predicted.WasMaxNS = &maximum, g.max
	}
	return predicted
}

// withoutPartial returns the requests whose dependencies are all inside the trace. If these are less than half (by weight), it
// returns all.
func withoutPartial(requests []retimedRequest) []retimedRequest {
	var known, all float64
	for i := range requests {
		if all += requests[i].weight; !requests[i].isPartial {
			known += requests[i].weight
		}
	}
	if known < threshold.HalfShare*all {
		return requests
	}
	return slices.DeleteFunc(requests, func(r retimedRequest) bool { return r.isPartial })
}

// hasChainTail reports whether at least half of the slowest hundredth of the requests are chains: they queued for so long
// that their graphs would be too large. A chain does not show which of its intervals were a queue, so no change of a queue is
// predicted.
func (s *series) hasChainTail() bool {
	var chainWeight, tailWeight float64
	p99 := quantile(s.before, 0.99)
	for _, r := range s.requests {
		if float64(r.Latency) < p99 {
			continue
		}
		if tailWeight += r.weight; r.isChain {
			chainWeight += r.weight
		}
	}
	return chainWeight >= threshold.HalfShare*tailWeight
}

// unchangedPrediction returns the prediction for settings that change nothing: the measured percentiles, without a range.
// group.p50 must be known.
func unchangedPrediction(g *group, changes []Change) *report.Predicted {
	out := &report.Predicted{Change: changesText(changes), WasP50NS: g.p50, WasP99NS: g.p99, P50NS: exactEstimate(*g.p50)}
	switch {
	case g.p99 != nil:
		out.P99NS = exactEstimate(*g.p99)
	case g.max != nil: // few requests have no 99th percentile, but a maximum
		out.P99NS = exactEstimate(*g.max)
	default:
		out.P99NS = out.P50NS
	}
	if g.max != nil {
		e := exactEstimate(*g.max)
		out.MaxNS, out.WasMaxNS = &e, g.max
	}
	return out
}

// exactEstimate returns an estimate without a range.
func exactEstimate(ns int64) report.Estimate { return report.Estimate{Est: ns, Low: ns, High: ns} }

// retimeAll computes, for each sampled request of a group, the latencies with the changes and the exposure to them.
func (t *trial) retimeAll(group *group) []retimedRequest {
	all := make([]retimedRequest, 0, len(group.graphs))
	for i := range group.graphs {
		r := retimedRequest{weightedGraph: &group.graphs[i]}
		r.latencies, r.unmetLatencies, r.encounterChances = t.retime(r.Graph)
		r.exposureNS, r.remainingNS = t.exposureOf(r.Graph)
		r.isPartial = r.Graph.isPartial && !slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.Cause == Queue && c.affectsAnyWait(t.model, r.Graph) })
		all = append(all, r)
	}
	return all
}

// changesText lists the changes as --what-if accepts them.
func changesText(changes []Change) (s string) {
	for i, c := range changes {
		if i > 0 {
			s += ", "
		}
		s += c.String()
	}
	return s
}
