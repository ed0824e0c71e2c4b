package predict

import (
	"math"

	"github.com/whylate/whylate/report"
)

// A prediction is checked by natural variation, as Chow et al. did ("The
// Mystery Machine", OSDI 2014): requests of the same trace which met as little
// of the cause as the change would leave show what such requests take.

// Bounds of a check.
const (
	// near is what two medians may differ by and still be called alike, and how
	// much faster, by its share, a request is that the change affects.
	near = 0.1
	// Of the requests that the change affects, and of those that it is checked
	// by: how many there must be, how many a sample without weights would have
	// to hold to tell as much of them (Kish's effective size), and their share
	// of the group: fewer are too likely to be of another kind.
	leastRequests = 20
	leastSampled  = 5
	leastShare    = 0.01
	// leastTail is how many requests have a 99th percentile.
	leastTail = 100
)

// A timed is a request that was timed again: see trial.retime.
type timed struct {
	*weighted
	at, free times
	meets    float64
	met      float64 // time that the changes are about, on all goroutines
	left     float64 // what they leave of it
}

// A series is points before and after a change.
type series struct {
	was  []point
	then [variants][]point
}

func (s *series) add(r *timed) {
	s.was = append(s.was, point{float64(r.Latency), r.weight})
	for v := range s.then {
		if v == high || r.meets == 1 {
			s.then[v] = append(s.then[v], point{r.at[v], r.weight})
			continue
		}
		s.then[v] = append(s.then[v], point{r.at[v], r.weight * r.meets}, point{r.free[v], r.weight * (1 - r.meets)})
	}
}

// addressed returns how much of a graph's time the changes are about, whether
// or not something else took longer beside it, and how much of that they leave.
// The graph must be the one that was looked at last.
func (t *trial) addressed(g *Graph) (met, left float64) {
	t.unmet = false
	for i := range g.parts {
		p := &g.parts[i]
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
		if w = max(w, ran); w == 0 {
			continue
		}
		met += w * float64(p.ns)
		left += max(0, w-(1-t.factor(g, p)[est])) * float64(p.ns)
	}
	return met, left
}

// check compares what is predicted of the requests that a change makes faster
// with those that met about as much of the cause as it would leave, or, if
// they are too few, at most as much. It returns nil if there are too few of
// either, or if what there is leaves it open.
func check(all []timed) *report.Check {
	var total float64
	var affected series
	var met, left []point
	for i := range all {
		r := &all[i]
		total += r.weight
		if r.at[est]*r.meets+r.free[est]*(1-r.meets) < (1-near)*float64(r.Latency) {
			affected.add(r)
			met = append(met, point{r.met, r.weight})
			left = append(left, point{r.left, r.weight * r.meets}, point{0, r.weight * (1 - r.meets)})
		}
	}
	if !enough(affected.was, total) {
		return nil
	}
	predicted := estimate(affected.was, &affected.then, 0.5, nil)
	leaves, about := quantile(left, 0.5), near*float64(predicted.Est)
	if quantile(met, 0.5) <= leaves+about {
		return nil // it is not by its length that the cause makes them slow
	}
	fast, _ := weigh(affected.was)
	out := &report.Check{Affected: int(math.Round(fast)), LeftNS: int64(leaves), PredictedNS: predicted, AtMostNS: int64(leaves + about)}
	for _, least := range []float64{leaves - about, 0} {
		var took, met []point
		for i := range all {
			if r := &all[i]; least <= r.met && r.met <= leaves+about {
				took = append(took, point{float64(r.Latency), r.weight})
				met = append(met, point{r.met, r.weight})
			}
		}
		if !enough(took, total) {
			continue
		}
		out.AtLeastNS, out.MetNS = int64(max(0, least)), int64(quantile(met, 0.5))
		if !tell(out, took) {
			return nil
		}
		return out
	}
	return nil
}

// tell says how long requests took that a prediction is checked by, and
// whether that is as predicted. It reports whether they do tell.
func tell(out *report.Check, took []point) bool {
	requests, size := weigh(took)
	out.Requests, out.Sampled, out.P50NS = int(math.Round(requests)), len(took), int64(quantile(took, 0.5))
	if requests >= leastTail {
		p99 := int64(quantile(took, 0.99))
		out.P99NS = &p99
	}
	low, high := (1-near)*float64(out.PredictedNS.Low), (1+near)*float64(out.PredictedNS.High)
	p50 := float64(out.P50NS)
	if out.Agrees = low <= p50 && p50 <= high; out.Agrees {
		return true
	}
	// What they met less of it than is left may be what they are faster by. And
	// in nineteen of twenty samples the median lies between these quantiles, by
	// the normal approximation of the binomial distribution.
	low = min(low, (1-near)*float64(out.PredictedNS.Low+out.MetNS-out.LeftNS))
	off := min(1/math.Sqrt(size), 0.5)
	return quantile(took, 0.5-off) > high || quantile(took, 0.5+off) < low
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

func enough(ps []point, of float64) bool {
	requests, size := weigh(ps)
	return requests >= leastRequests && size >= leastSampled && requests >= leastShare*of
}
