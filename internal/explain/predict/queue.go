package predict

import "math"

// A queue describes the work for others, before its own, that a
// change shrinks.
//
// Two models bound what a service that takes s times as long makes of the time
// in the queue. Arrivals at random (M/M/1): the wait is S*rho/(1-rho), and with
// S shrinks rho, how busy the server is. As if clients never rested: the wait
// shrinks as the service. What clients do that wait for their answer, rest, and
// ask again lies between them (mean value analysis, Reiser and Lavenberg, JACM
// 1980). Such a queue is nearly always as long, one of arrivals at random
// varies as much as it is long; by that the estimate is weighed.
type queue struct {
	rho     float64
	regular float64 // 1: always as long; 0: as random as it gets
	closed  []float64
}

// closedPoints is into how many steps of s the closed model is tabulated.
const closedPoints = 32

// maxClients bounds the clients of the closed model.
const maxClients = 200

// queueAt looks how the requests of a group queue at what a change is about:
// those that have work of their own there, after that of others.
func (t *trial) queueAt(g *group, c *trialChange) queue {
	var own, others, n, all, latency float64
	waits := make([]point, 0, len(g.graphs))
	for i := range g.graphs {
		gr := &g.graphs[i]
		all += gr.weight
		c.look(gr.Graph)
		mine, self := c.sums(gr.Graph)
		if self == 0 {
			continue
		}
		own += gr.weight * self
		waits = append(waits, point{mine, gr.weight})
		others += gr.weight * mine
		latency += gr.weight * float64(gr.Latency)
		n += gr.weight
	}
	q := queue{regular: 1}
	if others == 0 || own == 0 {
		return q // nobody that queues is known
	}
	q.rho = others / (others + own)
	wait, service := others/n, own/n
	q.regular = regularity(waits)
	clients := 1 + math.Ceil(quantile(waits, 0.9)/service)
	if clients > maxClients || t.m.duration <= 0 {
		return q
	}
	// By Little's law: how long a client was elsewhere.
	rest := max(0, clients*float64(t.m.duration)/all-latency/n) + max(0, latency/n-wait-service)
	now := closedWait(int(clients), service, rest)
	if now <= 0 {
		return q
	}
	for i := range closedPoints + 1 {
		q.closed = append(q.closed, closedWait(int(clients), service*float64(i)/closedPoints, rest)/now)
	}
	return q
}

// regularity is 1 if a queue is always as long, and 0 if it varies at least as
// a normal distribution whose deviation is its mean: one less the square of the
// coefficient of variation, by quartiles, because a few requests that met
// something else are of no interest.
func regularity(waits []point) float64 {
	middle := quantile(waits, 0.5)
	if middle <= 0 {
		return 0
	}
	v := (quantile(waits, 0.75) - quantile(waits, 0.25)) / 1.349 / middle
	return max(0, 1-v*v)
}

// closedWait is how long each of some clients waits for the others at one
// server, if they rest elsewhere between two services.
func closedWait(clients int, service, rest float64) float64 {
	queued, wait := 0.0, 0.0
	for n := 1; n <= clients; n++ {
		wait = service * queued
		if d := wait + service + rest; d > 0 {
			queued = float64(n) * (wait + service) / d
		}
	}
	return wait
}

// factor is by what the time in the queue is multiplied if each service takes s
// times as long.
func (q *queue) factor(s float64, v int) float64 {
	open := s
	if d := 1 - s*q.rho; d > 0 {
		open = s * s * (1 - q.rho) / d
	}
	open = min(open, s)
	switch v {
	case high:
		return s
	case low:
		return open
	}
	closed := s
	if q.closed != nil {
		at := min(int(s*closedPoints), closedPoints-1)
		closed = q.closed[at] + (q.closed[at+1]-q.closed[at])*(s*closedPoints-float64(at))
		closed = min(max(closed, open), s)
	}
	return open + q.regular*(closed-open)
}

// sums adds up what a change is about in a graph: work for others, and the
// request's own.
func (c *trialChange) sums(g *Graph) (others, own float64) {
	for i := range g.parts {
		p := &g.parts[i]
		w := c.weights[p.key] * float64(p.ns)
		if c.isOwn(p) {
			own += w
		} else {
			others += w
		}
	}
	return others, own
}

// stillMet is which part of those requests that met the work of others, and
// had none of their own there (a writer, a rebuild, somebody's slow request),
// still would: if it took a share P of the time, and what lies between stays,
// it takes s*P/(s*P+1-P) then.
func (c *trialChange) stillMet(g *group) float64 {
	var met, all, was, then float64
	for i := range g.graphs {
		gr := &g.graphs[i]
		all += gr.weight
		if c.look(gr.Graph); !c.own && !c.other {
			continue
		}
		met += gr.weight
		for k := range gr.parts {
			if p := &gr.parts[k]; p.others && !c.own && c.weights[p.key] > 0 {
				was += gr.weight * float64(p.ns)
				then += gr.weight * float64(p.ns) * c.factor(p, false)[est]
			}
		}
	}
	if was == 0 {
		return 1
	}
	p, s := met/all, then/was
	if d := s*p + 1 - p; d > 0 {
		return s / d
	}
	return 1
}
