package predict

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/report"
)

// A prediction is checked by natural variation, as Chow et al. did ("The
// Mystery Machine", OSDI 2014): requests of the same trace which met as little
// of the cause as the change would leave show what such requests take.

// A timed is a request that was timed again: see trial.retime.
type timed struct {
	*weighted
	at, free times
	meets    times
	met      float64 // time that the changes are about, on all goroutines
	left     float64 // what they leave of it
}

// A series is points before and after a change.
type series struct {
	was  []point
	then [variants][]point
	of   []*timed
}

func (s *series) add(r *timed) {
	s.of = append(s.of, r)
	s.was = append(s.was, point{float64(r.Latency), r.weight})
	for v := range s.then {
		if r.meets[v] == 1 {
			s.then[v] = append(s.then[v], point{r.at[v], r.weight})
			continue
		}
		s.then[v] = append(s.then[v], point{r.at[v], r.weight * r.meets[v]}, point{r.free[v], r.weight * (1 - r.meets[v])})
	}
}

// addressed returns how much of a graph's time the changes are about, whether
// or not something else took longer beside it, and how much of that they leave.
// The graph must be the one that was looked at last.
func (t *trial) addressed(g *Graph) (met, left float64) {
	t.unmet = false
	for i := range g.nodes {
		n := &g.nodes[i]
		t.ahead(g, n)
		for k := n.firstPart; k < n.lastPart; k++ {
			p := &g.parts[k]
			if w := t.about(g, p); w > 0 {
				met += w * float64(p.ns)
				left += max(0, w-(1-t.factor(g, p)[est])) * float64(p.ns)
			}
		}
	}
	return met, left
}

// about returns the part of a part's time that the changes are about.
func (t *trial) about(g *Graph, p *part) float64 {
	w := 0.0
	for k := range t.changes {
		if c := &t.changes[k]; c.Cause != Queue || !c.isOwn(p) && !p.ticker {
			w = max(w, c.weights[p.key])
		}
	}
	ran := 0.0
	for k := p.firstMix; k < p.lastMix; k++ {
		of := 0.0
		for j := range t.changes {
			of = max(of, t.changes[j].weights[g.mix[k].key])
		}
		ran += of * g.mix[k].of
	}
	return max(w, ran)
}

// check compares the median that is predicted of a group with that of the
// requests which met about as much of the cause as the change would leave.
// Where hardly any did, but many met none, it compares these with what is
// predicted with the cause gone. It returns nil if the change is not one for the
// median, if there are too few requests, or if chance may explain a difference.
func (m *Model) check(g *group, changes []Change, all []timed) *report.Check {
	a := g.affected(all)
	if a == nil {
		return nil
	}
	if took, met := a.alike(all); enough(took, a.total) {
		return a.tell(took, met)
	}
	// That costs as much as the prediction, and is not tried where none met so
	// little: with the cause gone not more is predicted, and not more won than
	// all.
	none := affected{about: max(a.about, scale.Speck*a.was)}
	if took, _ := none.alike(all); a.left == 0 || !enough(took, a.total) {
		return nil
	}
	gone := slices.Clone(changes)
	for i := range gone {
		gone[i].To, gone[i].Scale, gone[i].Relative = 0, 0, true
	}
	t := m.compile(gone)
	t.survey(g)
	a = g.affected(t.retimed(g))
	if a == nil {
		return nil
	}
	took, met := a.alike(all)
	if !enough(took, a.total) {
		return nil
	}
	out := a.tell(took, met)
	if out != nil {
		out.Gone = true
	}
	return out
}

// affected is what a change does to a group.
type affected struct {
	total     float64         // requests
	requests  float64         // those that it makes faster
	was       float64         // the group's median
	predicted report.Estimate // the same with the change made
	about     float64         // by how much times differ and are alike
	left      float64         // what it leaves of the cause to the middle one of all
}

// affected returns nil if a change makes too few requests faster or the median
// not much, or if it is not by the length of the cause that they are slow.
func (g *group) affected(all []timed) *affected {
	var of series
	var fast, met, left []point
	a := new(affected)
	for i := range all {
		r := &all[i]
		a.total += r.weight
		of.add(r)
		left = append(left, point{r.left, r.weight * r.meets[est]}, point{0, r.weight * (1 - r.meets[est])})
		if r.at[est]*r.meets[est]+r.free[est]*(1-r.meets[est]) < scale.NearlyAll*float64(r.Latency) {
			fast = append(fast, point{float64(r.Latency), r.weight})
			met = append(met, point{r.met, r.weight})
		}
	}
	if !enough(fast, a.total) {
		return nil
	}
	a.requests, _ = weigh(fast)
	a.predicted, a.left = estimate(&of, 0.5, g.p50, false), quantile(left, 0.5)
	if a.was = quantile(of.was, 0.5); g.p50 != nil {
		a.was = float64(*g.p50)
	}
	// A request that did not wait at all also spares the wake-ups after a wait, which do not go away with its cause.
	a.about = max(scale.Some*float64(a.predicted.Est), scale.Speck*(a.was-float64(a.predicted.Est)))
	if float64(a.predicted.Est) > scale.NearlyAll*a.was || quantile(met, 0.5) <= a.left+a.about {
		return nil
	}
	return a
}

// alike returns how long the requests took that met about as much as is left,
// and what they met.
func (a *affected) alike(all []timed) (took, met []point) {
	for i := range all {
		if r := &all[i]; math.Abs(r.met-a.left) <= a.about {
			took = append(took, point{float64(r.Latency), r.weight})
			met = append(met, point{r.met, r.weight})
		}
	}
	return took, met
}

// tell says whether requests took as long as is predicted; nil if they leave
// that open.
func (a *affected) tell(took, met []point) *report.Check {
	requests, size := weigh(took)
	out := &report.Check{
		Requests: int(math.Round(requests)), Sampled: len(took), AtLeastNS: int64(max(0, a.left-a.about)), AtMostNS: int64(a.left + a.about),
		MetNS: int64(quantile(met, 0.5)), P50NS: int64(quantile(took, 0.5)), Affected: int(math.Round(a.requests)), LeftNS: int64(a.left), PredictedNS: a.predicted,
	}
	if requests >= scale.Many {
		p99 := int64(quantile(took, 0.99))
		out.P99NS = &p99
	}
	low, high, p50 := float64(a.predicted.Low)-a.about, float64(a.predicted.High)+a.about, float64(out.P50NS)
	if out.Agrees = low <= p50 && p50 <= high; out.Agrees {
		return out
	}
	// In nineteen of twenty samples the median lies between these quantiles, by
	// the normal approximation of the binomial distribution.
	off := min(1/math.Sqrt(size), 0.5)
	if quantile(took, 0.5-off) <= high && quantile(took, 0.5+off) >= low {
		return nil
	}
	return out
}

// weigh returns how many requests points stand for, and how many without
// weights would tell as much.
func weigh(ps []point) (requests, size float64) {
	var squares float64
	for _, p := range ps {
		requests += p.weight
		squares += p.weight * p.weight
	}
	if squares == 0 {
		return 0, 0
	}
	return requests, requests * requests / squares
}

// enough reports whether requests are not too likely to be of another kind: how many they are, how many a sample without weights would have to
// hold to tell as much of them (Kish's effective size), and their share of the group.
func enough(ps []point, of float64) bool {
	requests, size := weigh(ps)
	return requests >= scale.Enough && size >= scale.Few && requests >= scale.Speck*of
}
