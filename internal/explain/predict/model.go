// Package predict says what a change would win: it takes the graphs of a
// bounded sample of requests (see critpath.Graph), makes a cause at a site
// smaller wherever it stands in them, in work for other requests too, and
// times them again.
//
// What it assumes, and therefore says as a range from low to high:
//
//   - What a request started itself goes on beside it, so where one part gets
//     shorter the next-latest one decides. That a goroutine which the request
//     had started, and which had ended, was waited for is certain for a
//     WaitGroup; for other waits it is assumed for high only.
//   - Work for others that a request waited for (a lock's holder, the jobs
//     before it on a worker) is a queue. High: it shrinks as its parts do, as
//     if clients sent the next request as soon as they have an answer. Low: the
//     requests come at random whatever happens, so that a shorter service makes
//     a queue shorter by more (see queue). Between them decides how regular the
//     queue was in the trace.
//   - Waiting for a P shrinks as what ran meanwhile does, by its share of that
//     time; for high it stays what it was.
//   - Of the pauses of a poll (see row) only the last one gets shorter: what ends
//     the poll comes from elsewhere.
//   - A timer that serves many (a ticker) keeps the requests' places within its
//     period.
//
// What a trace cannot tell is not in the range: another algorithm, a peer that
// answers otherwise under another load, caches, the garbage that is not made.
package predict

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Model predicts for the groups of one report. Not safe for concurrent use.
type Model struct {
	syms       *tracefmt.Symbols
	sites      *cause.Sites
	settlement *cause.Settlement
	sitesBelow func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64)
	groups     map[string]*group
	targetIDs  map[target]int32
	targets    []target
	ready      bool
	// duration is the length of the trace.
	duration int64
	facts    *Facts // of the process; nil: nothing is known
}

type group struct {
	sample   *Sample
	p50, p99 *int64
	max      *int64
	graphs   []weightedGraph
}

type weightedGraph struct {
	*Graph
	weight float64
}

// NewModel returns a model without groups, of a trace of some length in ns.
// settled says which candidate freezes were freezes; under returns, for a
// function, which sites were seen running below it, and for how long.
func NewModel(syms *tracefmt.Symbols, settlement *cause.Settlement, duration int64, sitesBelow func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64)) *Model {
	return &Model{syms: syms, settlement: settlement, duration: duration, sites: cause.NewSites(syms), sitesBelow: sitesBelow, groups: make(map[string]*group), targetIDs: make(map[target]int32)}
}

// AddGroup adds a group by its id in the report, with its percentiles as they
// were, null where they are not known.
func (m *Model) AddGroup(id string, s *Sample, latency report.Latency) {
	m.groups[id] = &group{sample: s, p50: latency.P50, p99: latency.P99, max: latency.Max}
}

// prepare readies all groups, in an order that does not depend on which is
// asked for first.
func (m *Model) prepare() {
	if m.ready {
		return
	}
	m.ready = true
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		m.loadGraphs(m.groups[id])
		m.findPolls(m.groups[id])
	}
	m.setLateness()
}

// setLateness finds how late each sleep was: how much longer than the middle
// one of those at the same place that were about as long.
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
			for float64(similar[first].fullNS) < scale.Most*float64(p.fullNS) {
				first++
			}
			for end < len(similar) && scale.Most*float64(similar[end].fullNS) <= float64(p.fullNS) {
				end++
			}
			p.lateNS = max(0, p.fullNS-similar[(first+end-1)/2].fullNS)
		}
	}
}

// loadGraphs takes a group's graphs from its sample, with settled causes, numbers for their places, and what of them lies in mark phases.
func (m *Model) loadGraphs(g *group) {
	g.sample.eachGraph(func(graph *Graph, weight float64) {
		g.graphs = append(g.graphs, weightedGraph{graph, weight})
		graph.resolvePending(m.settlement)
		if m.facts != nil {
			m.facts.setMarkShares(graph)
		}
		for i := range graph.intervals {
			graph.intervals[i].targetID = m.idOf(graph.intervals[i].target)
		}
		for i := range graph.runShares {
			graph.runShares[i].targetID = m.idOf(graph.runShares[i].target)
		}
	})
}

// resolvePending decides about the parts that overlap what may be freezes: they become
// cause throttle, or stay what they were.
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

func (m *Model) idOf(p target) int32 {
	id, ok := m.targetIDs[p]
	if !ok {
		id = int32(len(m.targets))
		m.targetIDs[p] = id
		m.targets = append(m.targets, p)
	}
	return id
}

// WhatIf predicts a group's latency with the changes made, all of them
// together. It returns nil if it has no sample of the group, or if the changes
// do not meet it.
func (m *Model) WhatIf(id string, changes []Change) *report.Predicted {
	g := m.groups[id]
	if g == nil {
		return nil
	}
	m.prepare()
	if len(g.graphs) == 0 {
		return nil
	}
	trial := m.compile(changes)
	switch {
	case trial.isNoOp() && g.p50 != nil:
		return unchangedPrediction(g, changes)
	case !trial.meets(g):
		return nil
	}
	trial.survey(g)
	requests := trial.retimeAll(g)
	var samples series
	for i := range requests {
		samples.add(&requests[i])
	}
	if trial.hasQueueChange() && samples.hasChainTail() {
		return nil
	}
	hasSetting := trial.hasSettings()
	predicted := &report.Predicted{Change: changesText(changes), P50NS: estimatePercentile(&samples, 0.5, g.p50, hasSetting), P99NS: estimatePercentile(&samples, 0.99, g.p99, hasSetting)}
	if !hasSetting {
		predicted.Check = m.checkPrediction(g, changes, requests)
	}
	// A percentile's factor is the sample's, its value that of all: where few
	// requests lie between them they may cross.
	p50, p99 := &predicted.P50NS, &predicted.P99NS
	p99.Est, p99.Low, p99.High = max(p99.Est, p50.Est), max(p99.Low, p50.Low), max(p99.High, p50.High)
	predicted.WasP50NS, predicted.WasP99NS = g.p50, g.p99
	if g.max != nil {
		maximum := estimatePercentile(&samples, 1, g.max, hasSetting)
		maximum.Est, maximum.Low, maximum.High = max(maximum.Est, p99.Est), max(maximum.Low, p99.Low), max(maximum.High, p99.High)
		predicted.MaxNS, predicted.WasMaxNS = &maximum, g.max
	}
	return predicted
}

// hasChainTail reports whether the slowest hundredth of the requests are for the larger part known as sums alone: who queued for so long that
// a graph of it would be too large. What of that was a queue is not known then, and nothing is promised of it.
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
	return chainWeight >= scale.Half*tailWeight
}

// unchangedPrediction is what is predicted of settings that change nothing.
func unchangedPrediction(g *group, changes []Change) *report.Predicted {
	out := &report.Predicted{Change: changesText(changes), WasP50NS: g.p50, WasP99NS: g.p99, P50NS: exactEstimate(*g.p50)}
	switch {
	case g.p99 != nil:
		out.P99NS = exactEstimate(*g.p99)
	case g.max != nil: // of few requests, the slowest there were
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

func exactEstimate(ns int64) report.Estimate { return report.Estimate{Est: ns, Low: ns, High: ns} }

// retimeAll times all requests of a group again.
func (t *trial) retimeAll(g *group) []retimedRequest {
	all := make([]retimedRequest, 0, len(g.graphs))
	for i := range g.graphs {
		r := retimedRequest{weightedGraph: &g.graphs[i]}
		r.latencies, r.unmetLatencies, r.encounterChances = t.retime(r.Graph)
		r.exposureNS, r.remainingNS = t.exposure(r.Graph)
		all = append(all, r)
	}
	return all
}

func changesText(changes []Change) string {
	s := ""
	for i, c := range changes {
		if i > 0 {
			s += ", "
		}
		s += c.String()
	}
	return s
}

type point struct{ value, weight float64 }

// quantile is by the nearest rank, as the report's.
func quantile(points []point, q float64) float64 {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.value, b.value) })
	total := 0.0
	for _, p := range points {
		total += p.weight
	}
	cumulative, rank := 0.0, math.Floor(q*max(total-1, 0)+1e-6)+1
	for _, p := range points {
		if cumulative += p.weight; cumulative >= rank*(1-1e-9) {
			return p.value
		}
	}
	return points[len(points)-1].value
}

// estimatePercentile takes from the sample by how much a percentile moves, and applies
// that to the percentile as it was, which is known of all requests.
func estimatePercentile(samples *series, q float64, fullValue *int64, hasSetting bool) report.Estimate {
	sampleValue := quantile(samples.before, q)
	original := sampleValue
	if fullValue != nil {
		original = float64(*fullValue)
	}
	margin, maxValue := scale.Speck, original
	minShare := 0.0
	if hasSetting { // only a setting can make requests slower
		margin, maxValue, minShare = settingsMargin, math.Inf(1), minShareOfLow
	}
	predictedBy := func(v int) float64 {
		if x := quantile(samples.after[v], q); x != sampleValue {
			return min(samples.extrapolate(v, sampleValue, x, original), maxValue)
		}
		return original
	}
	e, l, h := predictedBy(est), predictedBy(low), predictedBy(high)
	l, h = min(l, e), max(h, e)
	slower := max(e, l, h) > original
	if q > 0.9 && e < original {
		// What makes the slowest requests slow once the change is made is often
		// not in the trace at all: stalls of the machine, of the client, of
		// peers. The proof (docs/predict.md) found measured 99th percentiles
		// from three quarters to seven quarters of the predicted ones, two
		// thirds of them.
		l, h = min(l, 0.75*e), max(h, min(original, 1.75*e))
	}
	if slower {
		return report.Estimate{Est: roundEstimate(e, e), Low: roundEstimate(max(0, l-margin*math.Abs(original-l)), original), High: roundEstimate(h+margin*(h-original), h+margin*(h-original))}
	}
	return report.Estimate{Est: roundEstimate(e, original), Low: roundEstimate(max(minShare*l, l-margin*(original-l)), original), High: roundEstimate(h+margin*(original-h), original)}
}

// maxLengthRatio is how much longer or shorter those may be that carry compares: the middle one of a sample may be from a stratum beside that of the
// middle one of all.
const maxLengthRatio = 1.5

// extrapolate carries over to a latency what a change makes of a slightly other one: x of from. Where the change takes the same time from each (a
// sleep), what is left grows by as much as the latency; where it takes a share from each, by that share. Requests of about that
// latency tell, by least squares. As a share alone, 400 ms of 440 taken from a sample whose middle is 412 left 35 ms where it was 58.
func (s *series) extrapolate(v int, from, x, to float64) float64 {
	share := x / from * to
	if x > from || to == from {
		return share
	}
	var n, l, y, ll, ly float64
	for _, r := range s.requests {
		if latency := float64(r.Latency); latency*maxLengthRatio > from && latency < from*maxLengthRatio {
			w := r.weight
			n, l, y, ll, ly = n+w, l+w*latency, y+w*r.latencies[v], ll+w*latency*latency, ly+w*latency*r.latencies[v]
		}
	}
	spread := ll - l*l/max(n, 1)
	if spread < 1e-6*ll {
		return share
	}
	slope := min(max((ly-l*y/n)/spread, x/from), 1)
	if carried := x + slope*(to-from); carried > 0 {
		return carried
	}
	return share
}

// settingsMargin is the same where a setting changes: that changes all of the
// process, and the models are about what requests waited for.
// However much is won, what is left is not known to be less than a part of the
// lowest that the models say.
const (
	settingsMargin = 0.15
	minShareOfLow  = 0.6
)

// roundEstimate rounds what is not as it was: more than that nobody can know.
func roundEstimate(x, original float64) int64 {
	if x == original {
		return int64(original)
	}
	step := 1.0
	for x/step >= 1000 {
		step *= 10
	}
	return min(int64(math.Round(x/step)*step), int64(original))
}
