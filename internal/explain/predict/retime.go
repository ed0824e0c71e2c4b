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

type times [variants]float64

var unchanged = times{1, 1, 1}

// A trial is a set of changes, ready to be applied to graphs.
type trial struct {
	m       *Model
	changes []trialChange
	at      []times
	unmet   bool // leave out work for others that is not queued for
}

// A trialChange is one of them.
type trialChange struct {
	Change
	// weights is, by place, the part of the place's time that it is about.
	weights []float64
	effect  *effect // of a setting; nil for a change of a cause
	usual   int64   // how long a computation that it is about takes, where all of it is seen
	queue   queue
	// met is the part of those requests that met somebody else's work which
	// still would; see shared.
	met float64
	// Of the current graph:
	runs  []float64 // its time in each computation
	own   bool      // it meets the request's own work
	other bool      // it meets work for others
	left  times     // of those served before the request at the current node, how many still are
	last  *part     // what of that was done last, and so for the request itself; nil if that is not so
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

// queues reports whether a change is about what requests queue for.
func (t *trial) queues() bool {
	return slices.ContainsFunc(t.changes, func(c trialChange) bool { return c.Cause == Queue })
}

func (c *trialChange) meets(g *group) bool {
	if e := c.effect; e != nil && (e.procs && e.waits[high] > 0 || e.gc && e.cycles[high] > 1) {
		return true
	}
	for i := range g.graphs {
		gr := g.graphs[i].Graph
		c.look(gr)
		for k := range gr.parts {
			if p := &gr.parts[k]; c.weights[p.key] > 0 && (c.Cause != Queue || !c.isOwn(p)) {
				return true
			}
		}
	}
	return false
}

// look takes note of what a change meets in a graph.
func (c *trialChange) look(g *Graph) {
	c.runs = slices.Grow(c.runs[:0], int(g.runs)+1)[:g.runs+1]
	clear(c.runs)
	var own, others, largest float64
	for i := range g.parts {
		p := &g.parts[i]
		w := c.weights[p.key] * float64(p.ns)
		if w == 0 {
			continue
		}
		c.runs[p.run] += w
		if largest = max(largest, w); p.others && !c.Own {
			others += w
		} else {
			own += w
		}
	}
	c.own, c.other, c.left = own > scale.Some*others, others > 0, unchanged
	if c.last = nil; c.other && !c.own {
		c.last = c.lastResult(g, scale.Some*largest)
		c.own = c.last != nil
	}
}

// lastResult returns the last part of a graph that a change is about, if it
// may have been work for the request.
func (c *trialChange) lastResult(g *Graph, least float64) *part {
	var last *part
	at := int64(-1)
	for i := range g.nodes {
		n := &g.nodes[i]
		for k := n.firstPart; k < n.lastPart && n.time >= at; k++ {
			if p := &g.parts[k]; p.others && c.weights[p.key]*float64(p.ns) > least {
				last, at = p, n.time
			}
		}
	}
	if last != nil && !last.result {
		return nil
	}
	return last
}

// isOwn reports whether a part is work for the request.
func (c *trialChange) isOwn(p *part) bool {
	l := c.last
	return !p.others || c.Own || l == p || l != nil && (p.run > 0 && p.run == l.run || p.run == 0 && p.key == l.key && p.whole == l.whole && p.whole > p.ns)
}

// survey looks how all requests of a group meet the changes.
func (t *trial) survey(g *group) {
	for i := range t.changes {
		c := &t.changes[i]
		if c.effect != nil {
			c.effect.survey(g, t.m.facts)
			continue
		}
		var runs []int64
		for k := range g.graphs {
			gr := g.graphs[k].Graph
			c.look(gr)
			seen := make([]bool, len(c.runs))
			for j := range gr.parts {
				if p := &gr.parts[j]; p.run > 0 && c.isOwn(p) && !seen[p.run] && c.runs[p.run] > 0 {
					seen[p.run] = true
					runs = append(runs, int64(c.runs[p.run]))
				}
			}
		}
		if slices.Sort(runs); len(runs) > 0 {
			c.usual = runs[len(runs)/2]
		}
		c.queue = t.queueAt(g, c)
		c.met = c.stillMet(g)
	}
}

// retime returns how long a request would have taken, and how long without
// the work of others, or the collections, that it met by chance, and how likely
// it would still meet that.
func (t *trial) retime(g *Graph) (at, free, met times) {
	met = unchanged
	var extra times
	for i := range t.changes {
		c := &t.changes[i]
		if e := c.effect; e != nil {
			e.look(g, t.m.facts)
			for v := range met {
				met[v] = min(met[v], e.met[v])
				extra[v] += e.extra[v]
			}
			continue
		}
		if c.look(g); c.other && !c.own && c.Cause != Queue {
			met[est], met[low] = min(met[est], c.met), min(met[low], c.met)
		}
	}
	t.unmet = false
	at = t.end(g)
	if free = at; met != unchanged {
		t.unmet = true
		free = t.end(g)
	}
	for v := range at {
		at[v] += extra[v]
	}
	return at, free, met
}

// end times a graph again.
func (t *trial) end(g *Graph) times {
	t.at = t.at[:0]
	for i := range g.nodes {
		n := &g.nodes[i]
		var at times
		if n.before >= 0 {
			at = t.at[n.before]
			ahead := t.ahead(g, n)
			for k := n.firstPart; k < n.lastPart; k++ {
				p := &g.parts[k]
				f, ns := t.factor(g, p), float64(p.ns)
				beside := p.others && !t.isMet(p)
				for v := range at {
					if beside {
						f[v] = min(f[v], ahead[v])
					}
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

// isMet reports whether some change is about a part.
func (t *trial) isMet(p *part) bool {
	for i := range t.changes {
		if t.changes[i].weights[p.key] > 0 {
			return true
		}
	}
	return false
}

// ahead is by what the number of others is multiplied that are served before
// the request: what else they do there, beside what a change is about, goes
// away with them. How many fewer they are follows from how much of all their
// work there the change is about.
func (t *trial) ahead(g *Graph, n *node) times {
	out := unchanged
	for i := range t.changes {
		c := &t.changes[i]
		c.left = unchanged
		if c.effect != nil || !c.other || !c.own && c.Cause != Queue {
			continue
		}
		var was, then times
		begun := false // somebody is seen to be served from early on, so that fewer may be
		for k := n.firstPart; k < n.lastPart; k++ {
			p := &g.parts[k]
			if !p.others || c.isOwn(p) {
				continue
			}
			f, w, ns := unchanged, c.weights[p.key], float64(p.ns)
			early := w > 0 && w*ns >= scale.Some*float64(p.whole)
			begun = begun || early
			if w > 0 {
				f = c.factor(p, false)
			}
			for v := range was {
				was[v] += ns
				then[v] += ns * (1 - w*(1-f[v]))
				if c.Cause == Queue && early {
					out[v] = min(out[v], f[v])
				}
			}
		}
		if c.Cause == Queue {
			continue
		}
		for v := range then {
			if s := then[v] / max(was[v], 1); s > 0 {
				c.left[v] = c.queue.factor(s, v) / s
			}
			if begun {
				out[v] = min(out[v], c.left[v])
			}
		}
	}
	return out
}

// factor is by what the time of a part is multiplied.
func (t *trial) factor(g *Graph, p *part) times {
	f := unchanged
	if g.isHeld(p) {
		return f
	}
	for i := range t.changes {
		c := &t.changes[i]
		w := c.weights[p.key]
		if w == 0 {
			continue
		}
		var s times
		if c.effect != nil {
			s = c.effect.factor(p, t.unmet)
		} else {
			s = c.factor(p, t.unmet)
		}
		for v := range f {
			f[v] = min(f[v], 1-w*(1-s[v]))
		}
	}
	if p.firstMix < p.lastMix {
		left := 1.0
		for k := p.firstMix; k < p.lastMix; k++ {
			left -= g.mix[k].of * (1 - t.neighbour(&g.mix[k]))
		}
		left = max(0, left)
		f[est] = min(f[est], left)
		f[low] = min(f[low], left*left)
	}
	return f
}

// factor is by what a change multiplies the time of a part that it is all
// about.
func (c *trialChange) factor(p *part, unmet bool) times {
	whole := p.whole
	if p.run > 0 {
		whole = int64(c.runs[p.run])
		if !c.isOwn(p) {
			whole = max(whole, c.usual) // only what lies within the wait was seen
		}
	}
	late := int64(-1)
	if p.cause == cause.Sleep && !p.ticker {
		late = p.late
	}
	s := c.scale(whole, late)
	if c.Cause == Queue {
		if c.isOwn(p) || p.ticker {
			return unchanged
		}
		return s
	}
	switch {
	case s == unchanged:
	case p.ticker:
		s = ticks(s[high], p)
	case c.isOwn(p):
	case !c.own:
		if s[low] *= s[low]; unmet {
			s[est], s[low] = 0, 0
		}
	default:
		for v := range s {
			s[v] *= c.left[v]
		}
	}
	return s
}

// ticks is by what the wait for a ticker is multiplied if its period is. A
// request that comes at any time keeps its place within the period (high).
// Clients that the last tick let go come soon after it, and so wait for nearly
// all of a long period; in a much shorter one they come at any time, and wait
// for half of it (low).
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
	for i := range t.changes {
		c := &t.changes[i]
		if w := c.weights[s.key]; w > 0 && c.effect == nil {
			f = min(f, 1-w*(1-c.scale(c.usual, -1)[est]))
		}
	}
	return f
}
