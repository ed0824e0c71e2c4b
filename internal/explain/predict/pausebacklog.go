package predict

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A pauseBacklog is the work of a server, a goroutine that pauses, for requests that queued during its pauses. After a shorter
// pause fewer requests are queued. Requests that came after the pause wait for that work, too.
type pauseBacklog struct {
	scale   variantValues        // factor by which the changes shorten the pauses on average
	targets map[int32]bool       // of the work for earlier requests
	ownNS   map[workSite]float64 // mean time that a request takes where work for earlier requests is done, without that work
}

// A workSite is the cause and site of work. The targets of a chain have less detail than those of other graphs.
type workSite struct {
	cause cause.Cause
	site  tracefmt.FrameID
}

// measureBacklog sets the trial's backlog from the graphs of a group that show both the pause and the work after it.
func (t *trial) measureBacklog(group *group) {
	t.backlog = nil
	found := &pauseBacklog{scale: unchanged, targets: make(map[int32]bool), ownNS: make(map[workSite]float64)}
	workNS, sites := make(map[workSite]float64), make(map[workSite]bool)
	var requests, pausedNS float64
	var remainingNS variantValues
	for i := range group.graphs {
		graph := &group.graphs[i]
		queued, _ := t.workForEarlierRequests(graph.Graph)
		if queued == nil {
			continue
		}
		for k := range t.changes { // for intervalFactor
			if t.changes[k].effect == nil {
				t.changes[k].prepareRequest(graph.Graph)
			}
		}
		requests += graph.weight
		for k := range graph.intervals {
			iv := &graph.intervals[k]
			switch at := (workSite{iv.cause, iv.site}); {
			case queued[k]:
				found.targets[iv.targetID], sites[at] = true, true
			case t.isPause(iv):
				pausedNS += graph.weight * float64(iv.ns)
				for v, factor := range t.intervalFactor(graph.Graph, iv) {
					remainingNS[v] += graph.weight * float64(iv.ns) * factor
				}
			default:
				workNS[at] += graph.weight * float64(iv.ns)
			}
		}
	}
	if len(sites) == 0 {
		return
	}
	found.scale[est], found.scale[low] = remainingNS[est]/pausedNS, remainingNS[low]/pausedNS
	for at := range sites {
		found.ownNS[at] = workNS[at] / requests
	}
	t.backlog = found
}

// isPause reports whether an interval is a pause of a server that a change shortens.
func (t *trial) isPause(iv *interval) bool {
	return iv.deliversResult && iv.cause == cause.Sleep && t.isAffected(iv)
}

// workForEarlierRequests marks, by interval, the work that a server did for earlier requests in the queue, if that queue built
// up during a pause of the server that a change shortens. Work of one target on one goroutine that occurs again later in the
// graph is such work; the last occurrence is for this request. scale is the factor for such work before the first pause in the
// graph. queued is nil if there is none.
func (t *trial) workForEarlierRequests(graph *Graph) (queued []bool, scale variantValues) {
	hasPause := slices.ContainsFunc(graph.intervals, func(iv interval) bool { return t.isPause(&iv) })
	if scale = unchanged; !hasPause {
		if t.backlog == nil {
			return nil, unchanged
		}
		scale = t.backlog.scale
	}
	type serverWork struct{ firstNode, target int32 }
	firstNodes, laterWork := make([]int32, len(graph.nodes)), make(map[serverWork]bool)
	queued = make([]bool, len(graph.intervals))
	for i := range graph.nodes {
		if firstNodes[i] = int32(i); graph.nodes[i].predecessor >= 0 {
			firstNodes[i] = firstNodes[graph.nodes[i].predecessor]
		}
	}
	for i, node := range slices.Backward(graph.nodes) {
		for k := node.endInterval - 1; k >= node.firstInterval; k-- {
			if iv := &graph.intervals[k]; iv.otherWork && !t.isAffected(iv) && (hasPause || t.backlog.targets[iv.targetID]) {
				work := serverWork{firstNodes[i], iv.targetID}
				queued[k], laterWork[work] = laterWork[work], true
			}
		}
	}
	return queued, scale
}

// limitChain limits the factors of an interval of a chain, which is the sum of a site's time: what exceeds the usual time of a
// request there is work for earlier requests.
func (b *pauseBacklog) limitChain(factors variantValues, iv *interval) variantValues {
	ownNS, ok := b.ownNS[workSite{iv.cause, iv.site}]
	if excess := float64(iv.ns) - ownNS; ok && excess > 0 {
		for v, scale := range b.scale {
			factors[v] = min(factors[v], (ownNS+excess*scale)/float64(iv.ns))
		}
	}
	return factors
}
