package predict

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/threshold"
)

// A queue models the work for other requests, ahead of this one's, that a change shrinks.
//
// Two models bound the time in the queue if each service takes s times as long. Arrivals at random (M/M/1): the wait is
// S*rho/(1-rho), where S is the service time, and the utilisation rho shrinks with S. Clients without rest: the wait shrinks as
// the service. Clients that wait for their answer, rest, and send the next request are between the two (mean value analysis,
// Reiser and Lavenberg, JACM 1980). The length of a closed queue hardly varies, that of a queue of random arrivals varies as
// much as its mean. The measured variation weighs the estimate.
type queue struct {
	utilisation float64
	regularity  float64 // 1: constant length; 0: as random as M/M/1
	// closed model: wait relative to the present one, divided by s, if the service is s = i/closedSteps as long (nearly 0 for
	// i = 0); nil: not computed. The quotient is nearly linear in s where the queue disappears, the wait is not.
	closedWaits []float64
}

// closedSteps is the number of steps of s for which the closed model is tabulated.
const closedSteps = 32

// maxClients bounds the clients of the closed model.
const maxClients = 200

// measureQueue measures the queue before the work that a change affects, from the group's sampled requests: utilisation,
// regularity of the waits, and the closed model's waits. Only requests that do this work themselves count. If none waits for
// others there, the queue has no wait that could shrink.
func (t *trial) measureQueue(group *group, c *trialChange) queue {
	var ownNS, otherNS, requests, totalRequests, latency float64
	waits := make([]point, 0, len(group.graphs))
	for i := range group.graphs {
		graph := &group.graphs[i]
		totalRequests += graph.weight
		c.prepareRequest(graph.Graph)
		waitedNS, servedNS := c.workSums(graph.Graph)
		if servedNS == 0 {
			continue
		}
		ownNS += graph.weight * servedNS
		waits = append(waits, point{waitedNS, graph.weight})
		otherNS += graph.weight * waitedNS
		latency += graph.weight * float64(graph.Latency)
		requests += graph.weight
	}
	measured := queue{regularity: 1}
	if otherNS == 0 || ownNS == 0 {
		return measured // no request waits there for others and is served
	}
	measured.utilisation = otherNS / (otherNS + ownNS)
	wait, service := otherNS/requests, ownNS/requests
	measured.regularity = regularity(waits)
	clients := 1 + math.Ceil(quantile(waits, 0.9)/service)
	if clients > maxClients || t.model.duration <= 0 {
		return measured
	}
	// The time a client spends elsewhere, by Little's law.
	rest := max(0, clients*float64(t.model.duration)/totalRequests-latency/requests) + max(0, latency/requests-wait-service)
	measured.tabulateClosedWaits(int(clients), service, rest)
	return measured
}

// tabulateClosedWaits sets closedWaits for a closed queue as in closedWait.
func (q *queue) tabulateClosedWaits(clients int, service, rest float64) {
	currentWait := closedWait(clients, service, rest)
	if currentWait <= 0 {
		return
	}
	for i := range closedSteps + 1 {
		s := max(float64(i), 1e-6) / closedSteps
		q.closedWaits = append(q.closedWaits, closedWait(clients, service*s, rest)/currentWait/s)
	}
}

// regularity returns how constant waits are: 1 if all are equal, 0 if their standard deviation is at least their mean, as in a
// queue of random arrivals, or their median is 0. It is one less the squared coefficient of variation, measured by quartiles so
// that a few outliers do not matter. It sorts waits, of which there must be one.
func regularity(waits []point) float64 {
	middle := quantile(waits, 0.5)
	if middle <= 0 {
		return 0
	}
	v := (quantile(waits, 0.75) - quantile(waits, 0.25)) / 1.349 / middle
	return max(0, 1-v*v)
}

// closedWait returns the mean wait in a closed queue with one server: each of the clients waits, is served for service ns,
// spends rest ns elsewhere, and comes again (mean value analysis).
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

// factor returns the factor by which the wait in the queue changes if each service takes serviceFactor (0 to 1) times as long.
func (q *queue) factor(serviceFactor float64, variant int) float64 {
	open := serviceFactor
	if d := 1 - serviceFactor*q.utilisation; d > 0 {
		open = serviceFactor * serviceFactor * (1 - q.utilisation) / d
	}
	open = min(open, serviceFactor)
	switch variant {
	case high:
		return serviceFactor
	case low:
		return open
	}
	closed := serviceFactor
	if q.closedWaits != nil {
		step := min(int(serviceFactor*closedSteps), closedSteps-1)
		closed = serviceFactor * (q.closedWaits[step] + (q.closedWaits[step+1]-q.closedWaits[step])*(serviceFactor*closedSteps-float64(step)))
		closed = min(max(closed, open), serviceFactor)
	}
	return open + q.regularity*(closed-open)
}

// workSums returns how much time of a request the change affects: in work for other requests, and in the request's own work.
func (c *trialChange) workSums(graph *Graph) (otherNS, ownNS float64) {
	for i := range graph.intervals {
		iv := &graph.intervals[i]
		changedNS := c.weights[iv.targetID] * float64(iv.ns)
		if c.isOwnWork(iv) {
			ownNS += changedNS
		} else {
			otherNS += changedNS
		}
	}
	return otherNS, ownNS
}

// A WorkShare describes some work that requests of a group do and wait for, such as computing a missing cache entry.
type WorkShare struct {
	Doing     float64 // share of the requests that do it themselves, of those that do it or wait for it
	Repeating float64 // share of the former that have waited for the same work of others before: its result was not theirs
}

// WorkShareOf returns the WorkShare of the work that a change names. ok is false if no request waits for it.
func (m *Model) WorkShareOf(id string, change Change) (share WorkShare, ok bool) {
	group := m.groups[id]
	if group == nil {
		return share, false
	}
	m.Prepare()
	c := &m.compile(id, []Change{change}).changes[0]
	var meeting, doing, repeating float64
	for i := range group.graphs {
		graph := &group.graphs[i]
		c.prepareRequest(graph.Graph)
		ok = ok || c.meetsOtherWork
		otherNS, ownNS := c.workSums(graph.Graph)
		if otherNS+ownNS > 0 {
			meeting += graph.weight
		}
		if slices.ContainsFunc(graph.intervals, func(iv interval) bool { return c.weights[iv.targetID] > 0 && !iv.otherWork }) { // for however short a time
			doing += graph.weight
			if otherNS > threshold.NoticeableShare*ownNS {
				repeating += graph.weight
			}
		}
	}
	return WorkShare{Doing: doing / max(meeting, 1e-9), Repeating: repeating / max(doing, 1e-9)}, ok
}

// remainingEncounters returns which share of the requests that meet the changed work by chance would still meet it. An
// encounter is a wait for work of others that the request does not do itself (a writer, a cache rebuild, a slow request). If
// the work now takes a share P of the time and s times as long after the change, and the time between two stays, its share
// becomes s*P/(s*P+1-P).
func (c *trialChange) remainingEncounters(group *group) float64 {
	var exposed, total, beforeNS, afterNS float64
	for i := range group.graphs {
		graph := &group.graphs[i]
		total += graph.weight
		if c.prepareRequest(graph.Graph); !c.meetsOwnWork && !c.meetsOtherWork {
			continue
		}
		exposed += graph.weight
		for k := range graph.intervals {
			if iv := &graph.intervals[k]; iv.otherWork && !c.meetsOwnWork && c.weights[iv.targetID] > 0 {
				beforeNS += graph.weight * float64(iv.ns)
				afterNS += graph.weight * float64(iv.ns) * c.factor(iv, false)[est]
			}
		}
	}
	if beforeNS == 0 {
		return 1
	}
	exposedShare, remaining := exposed/total, afterNS/beforeNS
	if d := remaining*exposedShare + 1 - exposedShare; d > 0 {
		return remaining / d
	}
	return 1
}
