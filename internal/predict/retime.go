package predict

import (
	"github.com/whylate/whylate/internal/cause"
)

// Variants of a prediction.
const (
	est = iota
	low
	high
	variants
)

// A trial is a set of changes, ready to be applied to graphs.
type trial struct {
	m       *Model
	changes []Change
	// weights[change][place] is the part of the place's time that it is about.
	weights [][]float64
	queue   []queue // by change
	at      []times
	factors []times
}

type times [variants]float64

// meets reports whether requests of a group have, or wait for, anything to
// change. That it ran meanwhile does not count.
func (t *trial) meets(g *group) bool {
	for i := range g.graphs {
		gr := g.graphs[i].Graph
		for k := range gr.parts {
			if t.touches(gr.parts[k].key) {
				return true
			}
		}
	}
	return false
}

func (t *trial) touches(key int32) bool {
	for _, w := range t.weights {
		if w[key] > 0 {
			return true
		}
	}
	return false
}

// retime returns how long a request would have taken.
func (t *trial) retime(g *Graph) times {
	t.at = t.at[:0]
	for i := range g.nodes {
		n := &g.nodes[i]
		var at times
		if n.before >= 0 {
			at = t.at[n.before]
			for k := n.firstPart; k < n.lastPart; k++ {
				f, ns := t.factor(g, &g.parts[k]), float64(g.parts[k].ns)
				for v := range at {
					at[v] += f[v] * ns
				}
			}
		} else if n.firstEdge == n.lastEdge {
			for v := range at {
				at[v] = max(0, float64(n.time))
			}
		}
		for _, e := range g.edges[n.firstEdge:n.lastEdge] {
			for v := range at {
				if !e.Soft || v == high {
					at[v] = max(at[v], t.at[e.From][v])
				}
			}
		}
		t.at = append(t.at, at)
	}
	return t.at[len(t.at)-1]
}

var unchanged = times{1, 1, 1}

// factor is by what the time of a part is multiplied.
func (t *trial) factor(g *Graph, p *part) times {
	f := unchanged
	for c := range t.changes {
		w := t.weights[c][p.key]
		if w == 0 {
			continue
		}
		s := t.changes[c].scale(p.whole, p.cause == cause.Sleep && !p.ticker)
		if s == unchanged {
			continue
		}
		if p.ticker {
			s = ticks(s[high], p)
		}
		for v := range f {
			if p.others {
				s[v] = t.queue[c].factor(s[v], v)
			}
			f[v] = min(f[v], 1-w*(1-s[v]))
		}
	}
	if p.firstMix < p.lastMix {
		left := 1.0
		for _, s := range g.mix[p.firstMix:p.lastMix] {
			left -= s.of * (1 - t.neighbour(&s))
		}
		left = max(0, left)
		f[est] = min(f[est], left)
		f[low] = min(f[low], left*left)
	}
	return f
}

// ticks is by what the wait for a ticker is multiplied if its period is. A
// request that comes at any time keeps its place within the period (high).
// Clients that the last tick let go come soon after it, and so wait for nearly
// all of a long period; in a short one they come at any time, and wait for half
// of it (low).
func ticks(s float64, p *part) times {
	f := times{est: s, low: s, high: s}
	if half := 0.5 * float64(p.whole) / float64(max(p.ns, 1)); half < 1 {
		less := (1 - half) * (1 - s)
		f[low], f[est] = s*(1-less), s*(1-less/2)
	}
	return f
}

// neighbour is by what the running time of somebody else is multiplied.
func (t *trial) neighbour(s *share) float64 {
	f := 1.0
	for c := range t.changes {
		if w := t.weights[c][s.key]; w > 0 {
			f = min(f, 1-w*(1-t.changes[c].scale(t.m.usual(s.place), false)[est]))
		}
	}
	return f
}

// usual is how long a computation at a place takes, as far as is known.
func (m *Model) usual(p place) int64 {
	if p.cause != cause.CPU {
		return 0
	}
	return m.lengths[m.syms.Frame(p.site).Func]
}
