package predict

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/report"
)

// AddBacklog adds the messages that queue for the goroutines of a group. Latencies of that group are from the arrival of a message until
// it is done.
func (m *Model) AddBacklog(id string, b *request.Backlog) { m.groups[id].backlog = b }

// isAboutBacklog reports whether a change is the number of goroutines that handle the messages of a group.
func (m *Model) isAboutBacklog(g *group, c *Change) bool {
	return g.backlog != nil && c.Kind == report.ChangeSlots && m.matchesFrame(m.parseSite(c.Site), g.backlog.Frame)
}

// predictMessages predicts how long messages take from their arrival until they are done; nil if the changes do not affect that.
// They arrive as in the trace, and as many goroutines handle them as changes say, the first message first. Other changes shorten
// the handling of a message as they shorten that of requests that take as long. Low: no message queues. High: a tenth more
// messages arrive.
func (m *Model) predictMessages(g *group, changes []Change) *report.Predicted {
	consumers, otherChanges := g.backlog.Goroutines, []Change{}
	for i := range changes {
		if m.isAboutBacklog(g, &changes[i]) {
			consumers = changes[i].Count
		} else {
			otherChanges = append(otherChanges, changes[i])
		}
	}
	shorten := func(ns int64) variantValues { return variantValues{float64(ns), float64(ns), float64(ns)} }
	hasSetting := false
	if len(otherChanges) > 0 {
		switch trial := m.compile(g.id, otherChanges); {
		case len(g.graphs) > 0 && !trial.isNoOp() && trial.affects(g):
			shorten, hasSetting = trial.handlingTimes(g), trial.hasSettings()
		case consumers != g.backlog.Goroutines:
		case trial.isNoOp() && g.p50 != nil:
			return unchangedPrediction(g, changes)
		default:
			return nil
		}
	}
	before := timesInSystem(g.backlog.Messages, g.backlog.Goroutines, 1, func(ns int64) float64 { return float64(ns) })
	if g.backlog.IsDivided { // that is not one queue for all goroutines
		for i, msg := range g.backlog.Messages {
			before[i] = float64(msg.End - msg.Arrival)
		}
	}
	var after [variants][]float64
	for v := range after {
		count, load := consumers, 1.0
		switch v {
		case low:
			if consumers > g.backlog.Goroutines {
				count = len(before)
			}
		case high:
			load = 1.1
		}
		after[v] = timesInSystem(g.backlog.Messages, count, load, func(ns int64) float64 { return shorten(ns)[v] })
	}
	var samples series
	for i := range before {
		r := retimedRequest{weightedGraph: &weightedGraph{&Graph{Latency: int64(before[i])}, 1}, encounterChances: unchanged}
		for v := range after {
			r.latencies[v] = after[v][i]
		}
		samples.add(&r)
	}
	predicted := g.estimate(&samples, changes, hasSetting)
	if g.p90 != nil {
		p90 := estimatePercentile(&samples, 0.9, g.p90, hasSetting)
		p90.Est, p90.Low, p90.High = max(p90.Est, predicted.P50NS.Est), max(p90.Low, predicted.P50NS.Low), max(p90.High, predicted.P50NS.High)
		predicted.P90NS, predicted.WasP90NS = &p90, g.p90
	}
	return predicted
}

// timesInSystem returns, in order of messages, the ns from the arrival of each until it is done, if so many consumers (at least
// 1) handle them. load multiplies the rate of arrivals. handlingNS returns how long a message takes that took so many ns in the
// trace.
func timesInSystem(messages []request.QueuedMessage, consumers int, load float64, handlingNS func(int64) float64) []float64 {
	free := make([]float64, min(consumers, len(messages)))
	totals := make([]float64, len(messages))
	for i := range messages {
		msg, first := &messages[i], 0
		arrival := float64(msg.Arrival-messages[0].Arrival) / load
		for k := range free {
			if free[k] < free[first] {
				first = k
			}
			if free[first] <= arrival {
				break
			}
		}
		free[first] = max(free[first], arrival) + handlingNS(msg.End-msg.Start)
		totals[i] = free[first] - arrival
	}
	return totals
}

// handlingTimes returns a function that returns how long a message takes after the changes, by the request that took as long.
func (t *trial) handlingTimes(g *group) func(int64) variantValues {
	t.measureGroup(g)
	requests := withoutPartial(t.retimeAll(g))
	slices.SortFunc(requests, func(a, b retimedRequest) int { return int(a.Latency - b.Latency) })
	return func(ns int64) (out variantValues) {
		i, _ := slices.BinarySearchFunc(requests, ns, func(r retimedRequest, ns int64) int { return int(r.Latency - ns) })
		r := &requests[min(i, len(requests)-1)]
		if i > 0 && (i == len(requests) || math.Abs(float64(requests[i-1].Latency-ns)) < math.Abs(float64(r.Latency-ns))) {
			r = &requests[i-1]
		}
		for v := range out {
			out[v] = float64(ns) * r.latencies[v] / float64(max(r.Latency, 1))
		}
		return out
	}
}
