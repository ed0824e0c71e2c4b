package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/report"
)

// Bounds of moments.
const (
	maxMoments = 5 // of a group
)

// Find returns the moments of group g, without their events: short intervals in which many of its slowest requests begin. id is
// the group's merged id. It returns nil for groups with few requests.
func (s *Sum) Find(id path.GroupID, g *report.Group, ids *path.IDs, sp *spell.Speller) (out []report.Moment) {
	record := s.recordOf(id)
	if g.Role != report.RoleRequests || g.Count < threshold.TailSample || g.LatencyNS.P50 == nil || record == nil || record.hasOverflowed {
		return nil
	}
	clusters, total := slowClusters(record, g, sp.End-sp.Start)
	for _, cluster := range clusters {
		moment := report.Moment{
			Group: g.ID, StartNS: cluster[0].start - sp.Start, EndNS: cluster[len(cluster)-1].start - sp.Start, Slow: int(totalWeight(cluster)), SlowestRequests: int(total), ShareOfSlow: float64(totalWeight(cluster)) / float64(total), With: []report.MomentEvent{},
		}
		for _, r := range cluster {
			moment.UntilNS = max(moment.UntilNS, r.end-sp.Start)
		}
		moment.Cause, moment.CauseShare = mainCause(cluster, ids, sp)
		out = append(out, moment)
	}
	return out
}

// slowClusters returns clusters of slow requests that begin close together (within threshold.TimeSliceNS of the next one), in
// order of time, and the number of slow requests. It returns no cluster if the clusters contain too few of the slow requests,
// cover too much of the trace's time, or if requests of any latency begin mostly there.
func slowClusters(record *groupRecord, g *report.Group, durationNS int64) (found [][]slowRequest, total int64) {
	list, total := record.selectSlowest(g)
	if total < threshold.MedianSample/2 {
		return nil, total
	}
	slices.SortFunc(list, func(a, b slowRequest) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g)) })
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].start-list[j-1].start <= threshold.TimeSliceNS {
			j++
		}
		if totalWeight(list[i:j]) > threshold.Repeats {
			found = append(found, list[i:j])
		}
		i = j
	}
	slices.SortStableFunc(found, func(a, b []slowRequest) int { return cmp.Compare(totalWeight(b), totalWeight(a)) })
	found = found[:min(len(found), maxMoments)]
	var slowCount, began, lengthNS int64
	for _, cluster := range found {
		slowCount += totalWeight(cluster)
		lengthNS += cluster[len(cluster)-1].start - cluster[0].start
		began += record.beganBetween(cluster[0].start, cluster[len(cluster)-1].start)
	}
	share := float64(slowCount) / float64(total)
	if share < threshold.MajorShare || float64(lengthNS) > threshold.MinorShare*float64(durationNS) || share < threshold.FarFactor*float64(began)/float64(g.Count) {
		return nil, total
	}
	slices.SortFunc(found, func(a, b []slowRequest) int { return cmp.Compare(a[0].start, b[0].start) })
	return found, total
}

// selectSlowest returns the slow requests that are examined, the slowest first: the slowest percent (at least
// threshold.MedianSample requests), as far as they are far slower than the median. total is the number of requests that they
// represent.
func (k *groupRecord) selectSlowest(g *report.Group) (list []slowRequest, total int64) {
	list = k.slowerThan(threshold.FarFactor * *g.LatencyNS.P50)
	slices.SortFunc(list, slowerFirst)
	n := max(int64(threshold.MedianSample), int64(g.Count/100))
	for i := range list {
		if total >= n {
			return list[:i], total
		}
		total += list[i].weight
	}
	return list, total
}

// slowerThan returns the stored requests of latency leastNS or more, in no order.
func (k *groupRecord) slowerThan(leastNS int64) (list []slowRequest) {
	for _, r := range k.slowest.Elements() {
		if r.end-r.start >= leastNS {
			list = append(list, r)
		}
	}
	return list
}

// CountOpenIntervals returns the number of separate intervals in which requests of latency leastNS or more were open: requests
// that are open at the same time probably share one cause. It knows only the slowest requests (maxSlowest).
func (s *Sum) CountOpenIntervals(id path.GroupID, leastNS int64) (n int) {
	return s.recordOf(id).countOpenIntervals(leastNS)
}

// countOpenIntervals returns the number of separate intervals in which stored requests of latency leastNS or more were open; 0
// for a nil record.
func (k *groupRecord) countOpenIntervals(leastNS int64) (n int) {
	if k == nil {
		return 0
	}
	list := k.slowerThan(leastNS)
	slices.SortFunc(list, func(a, b slowRequest) int { return cmp.Compare(a.start, b.start) })
	end := int64(0)
	for i, r := range list {
		if i == 0 || r.start > end {
			n++
		}
		end = max(end, r.end)
	}
	return n
}

// totalWeight returns the number of requests that a list represents.
func totalWeight(list []slowRequest) (n int64) {
	for i := range list {
		n += list[i].weight
	}
	return n
}

// beganBetween returns the number of requests that began in [from, to], rounded to whole intervals of threshold.TimeSliceNS.
func (k *groupRecord) beganBetween(from, to int64) (n int64) {
	for interval := from / threshold.TimeSliceNS; interval <= to/threshold.TimeSliceNS; interval++ {
		n += k.beganByInterval[interval]
	}
	return n
}

// mainCause returns the cause that is the largest one of most requests, and the share of the requests for which it is.
func mainCause(list []slowRequest, ids *path.IDs, sp *spell.Speller) (report.CauseName, float64) {
	sums := map[cause.Cause]int64{}
	for _, r := range list {
		sums[ids.Cause(r.cause).WithSettledCause(sp.Settlement).Code.Cause()] += r.weight
	}
	best, top := cause.Cause(0), int64(-1)
	for c, n := range sums {
		if n > top || n == top && c < best {
			best, top = c, n
		}
	}
	return spell.Cause(best), float64(top) / float64(totalWeight(list))
}
