package predict

import (
	"math"
	"slices"
)

// A queue describes the work for other requests, ahead of this one's, that a change shrinks.
//
// Two models bound the time in the queue if each service takes s times as long. Arrivals at random (M/M/1): the wait is
// S*rho/(1-rho), where S is the service time, and the utilisation rho shrinks with S. Clients without rest: the wait shrinks
// as the service. Clients that wait for their answer, rest, and send the next request are between the two (mean value
// analysis, Reiser and Lavenberg, JACM 1980). The length of a closed queue hardly varies, that of a queue of random arrivals
// varies as much as its mean. The measured variation weighs the estimate.
type queue struct {
	utilisation float64
	regularity  float64 // 1: constant length; 0: as random as M/M/1
	closedWaits []float64
}

// closedSteps is the number of steps of s for which the closed model is tabulated.
const closedSteps = 32

// maxClients bounds the clients of the closed model.
const maxClients = 200

// measureQueue measures how requests of a group queue at what a change is about. Only requests count that are served there
// themselves, after others.
func (t *trial) measureQueue(group *group, c *trialChange) queue {
	var ownNS, otherNS, requests, totalRequests, latency float64
	waits := make([]point, 0, len(group.graphs))
	for i := range group.graphs {
		graph := &group.graphs[i]
		totalRequests += graph.weight
		c.selectGraph(graph.Graph)
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
	currentWait := closedWait(int(clients), service, rest)
	if currentWait <= 0 {
		return measured
	}
	for i := range closedSteps + 1 {
		measured.closedWaits = append(measured.closedWaits, closedWait(int(clients), service*float64(i)/closedSteps, rest)/currentWait)
	}
	return measured
}

// regularity is 1 for a queue of constant length, and 0 if the length varies at least as a normal distribution whose standard
// deviation is its mean. It is one less the square of the coefficient of variation. That is measured by quartiles, so that a
// few requests with other causes do not matter.
func regularity(waits []point) float64 {
	middle := quantile(waits, 0.5)
	if middle <= 0 {
		return 0
	}
	v := (quantile(waits, 0.75) - quantile(waits, 0.25)) / 1.349 / middle
	return max(0, 1-v*v)
}

// closedWait returns how long each of some clients waits for the others at one server, if they rest elsewhere between two
// services.
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

// factor returns by what the time in the queue is multiplied if each service takes serviceFactor times as long.
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
		closed = q.closedWaits[step] + (q.closedWaits[step+1]-q.closedWaits[step])*(serviceFactor*closedSteps-float64(step))
		closed = min(max(closed, open), serviceFactor)
	}
	return open + q.regularity*(closed-open)
}

// workSums returns the time in a graph that the change is about: work for others, and the request's own.
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

// RepeatShare returns the share of the requests which wait for work of others that then do the same work themselves; false if none
// wait for it. A change says what the work is.
func (m *Model) RepeatShare(id string, change Change) (share float64, ok bool) {
	group := m.groups[id]
	if group == nil {
		return 0, false
	}
	m.prepare()
	c := &m.compile(id, []Change{change}).changes[0]
	var repeating, waiting float64
	for i := range group.graphs {
		graph := &group.graphs[i]
		if c.selectGraph(graph.Graph); c.meetsOtherWork {
			waiting += graph.weight
			if slices.ContainsFunc(graph.intervals, func(iv interval) bool { return c.weights[iv.targetID] > 0 && !iv.otherWork }) {
				repeating += graph.weight // for however short a time
			}
		}
	}
	return repeating / max(waiting, 1e-9), waiting > 0
}

// remainingEncounters returns the share of the requests with encounters that would still have one. An encounter is work of
// others at a place where this request has none (a writer, a cache rebuild, a slow request). If such work took a share P of
// the time, and the time between stays, it takes s*P/(s*P+1-P) after the change.
func (c *trialChange) remainingEncounters(group *group) float64 {
	var exposed, total, beforeNS, afterNS float64
	for i := range group.graphs {
		graph := &group.graphs[i]
		total += graph.weight
		if c.selectGraph(graph.Graph); !c.meetsOwnWork && !c.meetsOtherWork {
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
