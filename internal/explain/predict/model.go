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
	syms    *tracefmt.Symbols
	sites   *cause.Sites
	settled *cause.Settlement
	under   func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64)
	groups  map[string]*group
	keys    map[place]int32
	places  []place
	ready   bool
	// duration is the length of the trace.
	duration int64
	facts    *Facts // of the process; nil: nothing is known
}

type group struct {
	sample   *Sample
	p50, p99 *int64
	max      *int64
	graphs   []weighted
}

type weighted struct {
	*Graph
	weight float64
}

// NewModel returns a model without groups, of a trace of some length in ns.
// settled says which candidate freezes were freezes; under returns, for a
// function, which sites were seen running below it, and for how long.
func NewModel(syms *tracefmt.Symbols, settled *cause.Settlement, duration int64, under func(fn tracefmt.StringID) (map[tracefmt.FrameID]int64, int64)) *Model {
	return &Model{syms: syms, settled: settled, duration: duration, sites: cause.NewSites(syms), under: under, groups: make(map[string]*group), keys: make(map[place]int32)}
}

// Group adds a group by its id in the report, with its percentiles as they
// were, null where they are not known.
func (m *Model) Group(id string, s *Sample, was report.Latency) {
	m.groups[id] = &group{sample: s, p50: was.P50, p99: was.P99, max: was.Max}
}

// prepare readies all groups, in an order that does not depend on which is
// asked for first.
func (m *Model) prepare() {
	if m.ready {
		return
	}
	m.ready = true
	for _, id := range slices.Sorted(maps.Keys(m.groups)) {
		m.take(m.groups[id])
		m.polls(m.groups[id])
	}
	m.punctuality()
}

// punctuality finds how late each sleep was: how much longer than the middle
// one of those at the same place that were about as long.
func (m *Model) punctuality() {
	sleeps := make([][]*part, len(m.places))
	for _, g := range m.groups {
		for i := range g.graphs {
			parts := g.graphs[i].parts
			for k := range parts {
				if p := &parts[k]; p.cause == cause.Sleep && !p.ticker {
					sleeps[p.key] = append(sleeps[p.key], p)
				}
			}
		}
	}
	for _, ps := range sleeps {
		slices.SortFunc(ps, func(a, b *part) int { return cmp.Compare(a.whole, b.whole) })
		first, end := 0, 0
		for _, p := range ps {
			for float64(ps[first].whole) < scale.Most*float64(p.whole) {
				first++
			}
			for end < len(ps) && scale.Most*float64(ps[end].whole) <= float64(p.whole) {
				end++
			}
			p.late = max(0, p.whole-ps[(first+end-1)/2].whole)
		}
	}
}

// take takes a group's graphs from its sample, with settled causes, numbers for their places, and what of them lies in mark phases.
func (m *Model) take(g *group) {
	g.sample.weighted(func(gr *Graph, w float64) {
		g.graphs = append(g.graphs, weighted{gr, w})
		gr.settle(m.settled)
		if m.facts != nil {
			m.facts.mark(gr)
		}
		for i := range gr.parts {
			gr.parts[i].key = m.key(gr.parts[i].place)
		}
		for i := range gr.mix {
			gr.mix[i].key = m.key(gr.mix[i].place)
		}
	})
}

// settle decides about the parts that overlap what may be freezes: they become
// cause throttle, or stay what they were.
func (g *Graph) settle(by *cause.Settlement) {
	for i := range g.parts {
		p := &g.parts[i]
		if p.code.IsPending() && by[p.code] == cause.Throttle {
			p.place = place{cause: cause.Throttle, site: p.site}
			p.whole, p.run, p.others, p.firstMix, p.lastMix = p.ns, 0, false, 0, 0
		}
		p.code = cause.Code(p.cause)
	}
}

func (m *Model) key(p place) int32 {
	id, ok := m.keys[p]
	if !ok {
		id = int32(len(m.places))
		m.keys[p] = id
		m.places = append(m.places, p)
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
	t := m.compile(changes)
	switch {
	case t.changesNothing() && g.p50 != nil:
		return unmoved(g, changes)
	case !t.meets(g):
		return nil
	}
	t.survey(g)
	all := t.retimed(g)
	var of series
	for i := range all {
		of.add(&all[i])
	}
	if t.queues() && of.slowestAreSums() {
		return nil
	}
	set := t.hasSettings()
	out := &report.Predicted{Change: textOf(changes), P50NS: estimate(&of, 0.5, g.p50, set), P99NS: estimate(&of, 0.99, g.p99, set)}
	if !set {
		out.Check = m.check(g, changes, all)
	}
	// A percentile's factor is the sample's, its value that of all: where few
	// requests lie between them they may cross.
	p50, p99 := &out.P50NS, &out.P99NS
	p99.Est, p99.Low, p99.High = max(p99.Est, p50.Est), max(p99.Low, p50.Low), max(p99.High, p50.High)
	out.WasP50NS, out.WasP99NS = g.p50, g.p99
	if g.max != nil {
		e := estimate(&of, 1, g.max, set)
		e.Est, e.Low, e.High = max(e.Est, p99.Est), max(e.Low, p99.Low), max(e.High, p99.High)
		out.MaxNS, out.WasMaxNS = &e, g.max
	}
	return out
}

// slowestAreSums reports whether the slowest hundredth of the requests are for the larger part known as sums alone: who queued for so long that
// a graph of it would be too large. What of that was a queue is not known then, and nothing is promised of it.
func (s *series) slowestAreSums() bool {
	var sums, all float64
	least := quantile(s.was, 0.99)
	for _, r := range s.of {
		if float64(r.Latency) < least {
			continue
		}
		if all += r.weight; r.sums {
			sums += r.weight
		}
	}
	return sums >= scale.Half*all
}

// unmoved is what is predicted of settings that change nothing.
func unmoved(g *group, changes []Change) *report.Predicted {
	out := &report.Predicted{Change: textOf(changes), WasP50NS: g.p50, WasP99NS: g.p99, P50NS: exactly(*g.p50)}
	switch {
	case g.p99 != nil:
		out.P99NS = exactly(*g.p99)
	case g.max != nil: // of few requests, the slowest there were
		out.P99NS = exactly(*g.max)
	default:
		out.P99NS = out.P50NS
	}
	if g.max != nil {
		e := exactly(*g.max)
		out.MaxNS, out.WasMaxNS = &e, g.max
	}
	return out
}

func exactly(ns int64) report.Estimate { return report.Estimate{Est: ns, Low: ns, High: ns} }

// retimed times all requests of a group again.
func (t *trial) retimed(g *group) []timed {
	all := make([]timed, 0, len(g.graphs))
	for i := range g.graphs {
		r := timed{weighted: &g.graphs[i]}
		r.at, r.free, r.meets = t.retime(r.Graph)
		r.met, r.left = t.addressed(r.Graph)
		all = append(all, r)
	}
	return all
}

func textOf(changes []Change) string {
	s := ""
	for i, c := range changes {
		if i > 0 {
			s += ", "
		}
		s += c.String()
	}
	return s
}

type point struct{ x, weight float64 }

// quantile is by the nearest rank, as the report's.
func quantile(ps []point, q float64) float64 {
	slices.SortFunc(ps, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	total := 0.0
	for _, p := range ps {
		total += p.weight
	}
	seen, rank := 0.0, math.Floor(q*max(total-1, 0)+1e-6)+1
	for _, p := range ps {
		if seen += p.weight; seen >= rank*(1-1e-9) {
			return p.x
		}
	}
	return ps[len(ps)-1].x
}

// estimate takes from the sample by how much a percentile moves, and applies
// that to the percentile as it was, which is known of all requests.
func estimate(of *series, q float64, was *int64, set bool) report.Estimate {
	from := quantile(of.was, q)
	to := from
	if was != nil {
		to = float64(*was)
	}
	margin, most := scale.Speck, to
	least := 0.0
	if set { // only a setting can make requests slower
		margin, most, least = settingsMargin, math.Inf(1), leastOfLow
	}
	at := func(v int) float64 {
		if x := quantile(of.then[v], q); x != from {
			return min(of.carry(v, from, x, to), most)
		}
		return to
	}
	e, l, h := at(est), at(low), at(high)
	l, h = min(l, e), max(h, e)
	slower := max(e, l, h) > to
	if q > 0.9 && e < to {
		// What makes the slowest requests slow once the change is made is often
		// not in the trace at all: stalls of the machine, of the client, of
		// peers. The proof (docs/predict.md) found measured 99th percentiles
		// from three quarters to seven quarters of the predicted ones, two
		// thirds of them.
		l, h = min(l, 0.75*e), max(h, min(to, 1.75*e))
	}
	if slower {
		return report.Estimate{Est: threeDigits(e, e), Low: threeDigits(max(0, l-margin*math.Abs(to-l)), to), High: threeDigits(h+margin*(h-to), h+margin*(h-to))}
	}
	return report.Estimate{Est: threeDigits(e, to), Low: threeDigits(max(least*l, l-margin*(to-l)), to), High: threeDigits(h+margin*(to-h), to)}
}

// beside is how much longer or shorter those may be that carry compares: the middle one of a sample may be from a stratum beside that of the
// middle one of all.
const beside = 1.5

// carry carries over to a latency what a change makes of a slightly other one: x of from. Where the change takes the same time from each (a
// sleep), what is left grows by as much as the latency; where it takes a share from each, by that share. Requests of about that
// latency tell, by least squares. As a share alone, 400 ms of 440 taken from a sample whose middle is 412 left 35 ms where it was 58.
func (s *series) carry(v int, from, x, to float64) float64 {
	share := x / from * to
	if x > from || to == from {
		return share
	}
	var n, l, y, ll, ly float64
	for _, r := range s.of {
		if at := float64(r.Latency); at*beside > from && at < from*beside {
			w := r.weight
			n, l, y, ll, ly = n+w, l+w*at, y+w*r.at[v], ll+w*at*at, ly+w*at*r.at[v]
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
	leastOfLow     = 0.6
)

// threeDigits rounds what is not as it was: more than that nobody can know.
func threeDigits(x, was float64) int64 {
	if x == was {
		return int64(was)
	}
	step := 1.0
	for x/step >= 1000 {
		step *= 10
	}
	return min(int64(math.Round(x/step)*step), int64(was))
}
