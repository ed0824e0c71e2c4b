package predict

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// A prediction is checked by natural variation, as in Chow et al., "The Mystery Machine" (OSDI 2014): requests of the same
// trace that met as little of the cause as the change would leave show how long such requests take.

// A retimedRequest is a sampled request with the latencies that trial.retime computed for it, in ns.
type retimedRequest struct {
	*weightedGraph
	latencies, unmetLatencies variantValues
	encounterChances          variantValues
	exposureNS                float64 // time that the changes affect, on all goroutines
	remainingNS               float64 // the part of exposureNS that is left after the changes
	isPartial                 bool    // its graph is partial, and no change affects the queue in which it waits
}

// A series holds the latencies of sampled requests, in ns, before and after a change.
type series struct {
	before   []point
	after    [variants][]point
	requests []*retimedRequest
}

// add adds a sampled request with its latencies before and after the change. Where a change leaves it only a probability to meet
// the cause (encounterChances), both possible latencies are added, weighted by their probabilities.
func (s *series) add(request *retimedRequest) {
	s.requests = append(s.requests, request)
	s.before = append(s.before, point{float64(request.Latency), request.weight})
	for v := range s.after {
		if request.encounterChances[v] == 1 {
			s.after[v] = append(s.after[v], point{request.latencies[v], request.weight})
			continue
		}
		s.after[v] = append(s.after[v], point{request.latencies[v], request.weight * request.encounterChances[v]},
			point{request.unmetLatencies[v], request.weight * (1 - request.encounterChances[v])})
	}
}

// exposureOf returns how much time of a request the changes affect, and how much of that they leave, summed over all branches of
// its graph, critical or not. retime must have been called for this graph just before, because it sets the fields that depend
// on the graph.
func (t *trial) exposureOf(graph *Graph) (exposureNS, remainingNS float64) {
	t.withoutEncounters = false
	for node := range entry.Each(graph.nodes) {
		t.queueScale(graph, node)
		for k := node.firstInterval; k < node.endInterval; k++ {
			iv := &graph.intervals[k]
			if w := t.changedShare(graph, iv); w > 0 {
				exposureNS += w * float64(iv.ns)
				remainingNS += max(0, w-(1-t.intervalFactor(graph, iv)[est])) * float64(iv.ns)
			}
		}
	}
	return exposureNS, remainingNS
}

// changedShare returns which share of an interval the changes affect, from 0 to 1. For a wait for a P, that includes the share
// in which affected code ran on other goroutines.
func (t *trial) changedShare(graph *Graph, iv *interval) float64 {
	share := 0.0
	for k := range t.changes {
		if c := &t.changes[k]; !c.affectsOnlyOthersWork() || !c.isOwnWork(iv) && !iv.endsWithTick {
			share = max(share, c.weights[iv.targetID])
		}
	}
	ranShare := 0.0
	for k := iv.firstShare; k < iv.endShare; k++ {
		changed := 0.0
		for j := range t.changes {
			changed = max(changed, t.changes[j].weights[graph.runShares[k].targetID])
		}
		ranShare += changed * graph.runShares[k].share
	}
	return max(share, ranShare)
}

// checkPrediction compares a group's predicted median with the measured latency of comparable requests: those that already met
// about as little of the cause as the change would leave. If these are too few, but many requests met none of the cause, it
// compares those with the prediction for removing the cause. It returns nil if no comparison is possible: the change hardly
// changes the median, too few requests are comparable, or chance may explain the difference.
func (m *Model) checkPrediction(group *group, changes []Change, requests []retimedRequest) *report.Check {
	impact := group.impactOf(requests)
	if impact == nil {
		return nil
	}
	if latencies, exposures := impact.comparableRequests(requests); isSufficientSample(latencies, impact.totalRequests) {
		return impact.compareMedians(latencies, exposures)
	}
	// This costs as much as the prediction. It is skipped if too few requests met so little: removing the cause predicts no
	// more than the change, and takes no more than all.
	unexposed := groupImpact{toleranceNS: max(impact.toleranceNS, threshold.NoiseShare*impact.medianNS)}
	latencies, _ := unexposed.comparableRequests(requests)
	if impact.remainingNS == 0 || !isSufficientSample(latencies, impact.totalRequests) {
		return nil
	}
	removals := slices.Clone(changes)
	for i := range removals {
		removals[i].To, removals[i].Scale, removals[i].Relative = 0, 0, true
	}
	trial := m.compile(group.id, removals)
	trial.measureGroup(group)
	impact = group.impactOf(trial.retimeAll(group))
	if impact == nil {
		return nil
	}
	latencies, exposures := impact.comparableRequests(requests)
	if !isSufficientSample(latencies, impact.totalRequests) {
		return nil
	}
	out := impact.compareMedians(latencies, exposures)
	if out != nil {
		out.CauseRemoved = true
	}
	return out
}

// A groupImpact is the effect of a change on a group's sampled requests, as far as checkPrediction needs it.
type groupImpact struct {
	totalRequests  float64
	fasterRequests float64         // number of requests that the change makes faster
	medianNS       float64         // before the change
	predicted      report.Estimate // median after the change
	toleranceNS    float64         // times that differ by less count as equal
	remainingNS    float64         // median, over all requests, of the time of the cause that remains
}

// impactOf returns the effect of a change on the group, from its retimed requests. It returns nil if no comparison can confirm
// the effect: the change makes too few requests faster, hardly changes the median, or affected requests met hardly more of the
// cause than the change leaves.
func (group *group) impactOf(requests []retimedRequest) *groupImpact {
	var samples series
	var faster, exposures, remaining []point
	out := new(groupImpact)
	for request := range entry.Each(requests) {
		out.totalRequests += request.weight
		samples.add(request)
		chance := request.encounterChances[est]
		remaining = append(remaining, point{request.remainingNS, request.weight * chance}, point{0, request.weight * (1 - chance)})
		if request.latencies[est]*chance+request.unmetLatencies[est]*(1-chance) < threshold.NearlyAllShare*float64(request.Latency) {
			faster = append(faster, point{float64(request.Latency), request.weight})
			exposures = append(exposures, point{request.exposureNS, request.weight})
		}
	}
	if !isSufficientSample(faster, out.totalRequests) {
		return nil
	}
	out.fasterRequests, _ = effectiveSize(faster)
	out.predicted, out.remainingNS = estimatePercentile(&samples, 0.5, group.p50, false), quantile(remaining, 0.5)
	if out.medianNS = quantile(samples.before, 0.5); group.p50 != nil {
		out.medianNS = float64(*group.p50)
	}
	// A request that does not wait also saves the wake-ups after a wait, which do not shrink with its cause.
	predictedNS := float64(out.predicted.Est)
	out.toleranceNS = max(threshold.NoticeableShare*predictedNS, threshold.NoiseShare*(out.medianNS-predictedNS))
	if predictedNS > threshold.NearlyAllShare*out.medianNS || quantile(exposures, 0.5) <= out.remainingNS+out.toleranceNS {
		return nil
	}
	return out
}

// comparableRequests selects the requests whose exposure to the cause is, within toleranceNS, the time that the change leaves.
// It returns their measured latencies and their exposures, in ns.
func (a *groupImpact) comparableRequests(requests []retimedRequest) (latencies, exposures []point) {
	for i := range requests {
		if request := &requests[i]; math.Abs(request.exposureNS-a.remainingNS) <= a.toleranceNS {
			latencies = append(latencies, point{float64(request.Latency), request.weight})
			exposures = append(exposures, point{request.exposureNS, request.weight})
		}
	}
	return latencies, exposures
}

// compareMedians returns whether the median latency of the comparable requests is within the predicted range (Check.Agrees). It
// returns nil if the median is outside of the range, but the sample is so small that chance may explain it.
func (a *groupImpact) compareMedians(latencies, exposures []point) *report.Check {
	requests, size := effectiveSize(latencies)
	out := &report.Check{
		Requests: int(math.Round(requests)), Sampled: len(latencies), Affected: int(math.Round(a.fasterRequests)),
		AtLeastNS: int64(max(0, a.remainingNS-a.toleranceNS)), AtMostNS: int64(a.remainingNS + a.toleranceNS),
		MetNS: int64(quantile(exposures, 0.5)), P50NS: int64(quantile(latencies, 0.5)),
		LeftNS: int64(a.remainingNS), PredictedNS: a.predicted,
	}
	if requests >= threshold.TailSample {
		p99 := int64(quantile(latencies, 0.99))
		out.P99NS = &p99
	}
	low, high, p50 := float64(a.predicted.Low)-a.toleranceNS, float64(a.predicted.High)+a.toleranceNS, float64(out.P50NS)
	if out.Agrees = low <= p50 && p50 <= high; out.Agrees {
		return out
	}
	// The median is between these quantiles in 19 of 20 samples, by the normal approximation of the binomial distribution.
	deviation := min(1/math.Sqrt(size), 0.5)
	if quantile(latencies, 0.5-deviation) <= high && quantile(latencies, 0.5+deviation) >= low {
		return nil
	}
	return out
}

// effectiveSize returns the sum of the weights, which is the number of requests that the points represent, and the number of
// unweighted points that would give the same accuracy (Kish's effective sample size).
func effectiveSize(ps []point) (requests, size float64) {
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

// isSufficientSample reports whether there are enough requests for a comparison: their number, the effective size of their sample,
// and their share of the group.
func isSufficientSample(ps []point, total float64) bool {
	requests, size := effectiveSize(ps)
	return requests >= threshold.MedianSample && size >= threshold.SmallSample && requests >= threshold.NoiseShare*total
}
