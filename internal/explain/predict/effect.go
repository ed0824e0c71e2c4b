package predict

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
)

// An effect is what a setting does to requests.
type effect struct {
	// gc, frozen and procs say which of the factors below apply. All compare with now: the number
	// of collections, the assists in each, the length of a freeze and the number of requests that
	// meet one, and waits for a P. waits is how much longer a request waits for a P per ns that it
	// runs.
	gc, frozen, procs bool
	cycles, assist    times
	throttle, held    times
	sched, waits      times
	// For the current group: what a mark phase costs a request that meets one, and the factor for
	// waits for a P in mark phases if there is no mark phase.
	cost, beside times
	// For the current graph: the part of the time that remains, the chance to meet what remains,
	// and the time that is added.
	kept, met, extra times
}

// touched returns, for each place, the share of its time that an effect may change.
func (m *Model) touched(e *effect) []float64 {
	out := make([]float64, len(m.places))
	for i, p := range m.places {
		switch p.cause {
		case cause.GCAssist, cause.GCWait:
			out[i] = one(e.gc)
		case cause.STW:
			if e.gc {
				out[i] = m.facts.StopsGC
			}
		case cause.Sched, cause.SchedPoll:
			out[i] = one(e.gc || e.procs)
		case cause.Throttle:
			out[i] = one(e.frozen)
		}
	}
	return out
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// changesNothing reports whether all changes are settings that have no effect.
func (t *trial) changesNothing() bool {
	for i := range t.changes {
		if e := t.changes[i].effect; e == nil || e.gc || e.frozen || e.procs {
			return false
		}
	}
	return len(t.changes) > 0
}

func (t *trial) hasSettings() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.effect != nil })
}

// survey measures what mark phases cost the requests of a group, and how much longer they wait
// for a P in a mark phase than outside: mark workers take some of the Ps, and all goroutines share
// the rest.
func (e *effect) survey(g *group, f *Facts) {
	if !e.gc {
		return
	}
	var cost, met, in, waitIn, out, waitOut float64
	for i := range g.graphs {
		gr := &g.graphs[i]
		met += gr.weight * f.phases(gr.Graph)
		for k := range gr.parts {
			p := &gr.parts[k]
			if p.others {
				continue
			}
			ns, marked := gr.weight*float64(p.ns), float64(p.marked)
			in, out = in+ns*marked, out+ns*(1-marked)
			switch {
			case p.collects():
				cost += ns
			case p.cause == cause.Sched || p.cause == cause.SchedPoll:
				waitIn, waitOut = waitIn+ns*marked, waitOut+ns*(1-marked)
			}
		}
	}
	e.beside = unchanged
	if waitIn > 0 && out > 0.02*in {
		r := min(1, waitOut/out/(waitIn/in))
		e.beside = times{est: r, low: r * r, high: math.Sqrt(r)}
	} else if waitIn > 0 {
		e.beside = times{est: 0.5, low: 0, high: 1} // the trace shows nothing outside mark phases
	}
	if met > 0 {
		cost /= met
		for v := range e.cost {
			e.cost[v] = cost + waitIn*(1-e.beside[v])/met
		}
	}
}

// look sets what an effect does to a graph.
//
// Each mark phase that a request meets is equally likely to remain. If fewer than one remains, the
// chance to meet one changes, not the time of a request that does.
func (e *effect) look(g *Graph, f *Facts) {
	e.kept, e.met, e.extra = unchanged, unchanged, times{}
	if e.gc {
		n := f.phases(g)
		for v, s := range e.cycles {
			switch {
			case s > 1:
				more := (s - 1) * (float64(g.Latency)*float64(f.Cycles) + float64(f.MarkNS)) / float64(f.SpanNS)
				e.met[v], e.extra[v] = min(1, more), e.cost[v]*max(1, more)
			case n > 0:
				e.kept[v], e.met[v] = max(s, 1/n), min(1, s*n)
			}
		}
	}
	if e.frozen && slices.ContainsFunc(g.parts, func(p part) bool { return p.cause == cause.Throttle }) {
		for v := range e.met {
			e.met[v] = min(e.met[v], e.held[v])
		}
	}
	if e.procs {
		ran := 0.0
		for i := range g.parts {
			if p := &g.parts[i]; p.cause == cause.CPU && !p.others {
				ran += float64(p.ns)
			}
		}
		for v := range e.extra {
			e.extra[v] += e.waits[v] * ran
		}
	}
}

// factor is what an effect multiplies a part's time by. If unmet, the request meets neither a mark
// phase nor a freeze.
func (e *effect) factor(p *part, unmet bool) times {
	f := unchanged
	for v := range f {
		kept, frozen := e.kept[v], e.throttle[v]
		if unmet {
			if frozen = 0; e.cycles[v] <= 1 {
				kept = 0
			}
		}
		switch {
		case p.cause == cause.Throttle && e.frozen:
			f[v] = frozen
		case p.cause == cause.GCAssist && e.gc:
			f[v] = kept * e.assist[v]
		case p.collects() && e.gc:
			f[v] = kept
		case p.cause == cause.Sched || p.cause == cause.SchedPoll:
			if e.gc {
				f[v] = 1 - float64(p.marked)*(1-kept)*(1-e.beside[v])
			}
			if e.procs {
				f[v] *= e.sched[v]
			}
		}
	}
	return f
}
