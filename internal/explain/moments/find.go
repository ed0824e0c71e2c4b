package moments

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// Bounds of moments.
const (
	maxMoments = 5 // of a group
)

// Find returns the moments of the group g, whose merged id is id.
func (s *Sum) Find(id path.GroupID, g *report.Group, ids *path.IDs, sp *spell.Speller) []report.Moment {
	record := s.recordOf(id)
	if g.Role != report.RoleRequests || g.Count < threshold.TailSample || g.LatencyNS.P50 == nil || record == nil || record.hasOverflowed {
		return nil
	}
	clusters, total := slowClusters(record, g, sp.End-sp.Start)
	var out []report.Moment
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

// slowClusters returns, in order of time, clusters of slow requests that begin close together, and the number of slow
// requests. It returns no cluster if they contain too few of the slow requests, if they take too much of the trace's time, or if
// requests of any latency begin mostly there.
func slowClusters(record *groupRecord, g *report.Group, durationNS int64) (found [][]*slowRequest, total int64) {
	list, total := record.selectSlowest(g)
	if total < threshold.MedianSample/2 {
		return nil, total
	}
	slices.SortFunc(list, func(a, b *slowRequest) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g)) })
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
	slices.SortStableFunc(found, func(a, b []*slowRequest) int { return cmp.Compare(totalWeight(b), totalWeight(a)) })
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
	slices.SortFunc(found, func(a, b []*slowRequest) int { return cmp.Compare(a[0].start, b[0].start) })
	return found, total
}

// selectSlowest returns the slowest requests that are examined, and how many requests they represent.
func (k *groupRecord) selectSlowest(g *report.Group) (list []*slowRequest, total int64) {
	n := max(int64(threshold.MedianSample), int64(g.Count/100))
	for _, r := range k.slowest.Sorted() {
		if total >= n || r.end-r.start < threshold.FarFactor**g.LatencyNS.P50 {
			break
		}
		list = append(list, r)
		total += r.weight
	}
	return list, total
}

// CountOpenIntervals returns the number of separate intervals in which requests of at least a given latency were
// open: requests that are open at the same time share one cause. It sees only requests that are stored.
func (s *Sum) CountOpenIntervals(id path.GroupID, leastNS int64) (n int) {
	return s.recordOf(id).countOpenIntervals(leastNS)
}

func (k *groupRecord) countOpenIntervals(leastNS int64) (n int) {
	if k == nil {
		return 0
	}
	list := slices.DeleteFunc(slices.Clone(k.slowest.Sorted()), func(r *slowRequest) bool { return r.end-r.start < leastNS })
	slices.SortFunc(list, func(a, b *slowRequest) int { return cmp.Compare(a.start, b.start) })
	end := int64(0)
	for i, r := range list {
		if i == 0 || r.start > end {
			n++
		}
		end = max(end, r.end)
	}
	return n
}

func totalWeight(list []*slowRequest) (n int64) {
	for i := range list {
		n += list[i].weight
	}
	return n
}

// beganBetween returns how many requests began in [from, to], rounded to whole intervals.
func (k *groupRecord) beganBetween(from, to int64) (n int64) {
	for interval := from / threshold.TimeSliceNS; interval <= to/threshold.TimeSliceNS; interval++ {
		n += k.beganByInterval[interval]
	}
	return n
}

// mainCause returns the cause that most often took the most time of a request, and its share of the requests.
func mainCause(list []*slowRequest, ids *path.IDs, sp *spell.Speller) (report.CauseName, float64) {
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

// AddEvents adds to moments what happened in them, until their last request ended.
func AddEvents(list []report.Moment, series *report.Series, herds []process.HerdWakeup, durationNS int64) {
	for i := range list {
		moment := &list[i]
		if series != nil {
			for _, e := range []struct {
				kind   report.MomentKind
				ranges [][2]int64
			}{{report.MomentGC, series.GC}, {report.MomentSTW, series.STW}, {report.MomentFreeze, series.Freezes}} {
				moment.With = append(moment.With, coveringEvent(moment, e.kind, e.ranges, durationNS)...)
			}
		}
		for k := range herds {
			// A herd delays requests that arrive while it runs.
			if herd := &herds[k]; herd.FromNS <= moment.EndNS && herd.ToNS >= moment.StartNS {
				moment.With = append(moment.With, report.MomentEvent{Kind: report.MomentHerd, StartNS: herd.FromNS, DurationNS: herd.ToNS - herd.FromNS, Count: herd.Goroutines, Site: herd.Site, Text: words.Number(int64(herd.Goroutines)) + " goroutines of " + words.FuncName(herd.Start) + " woke at once"})
			}
		}
		moment.Text = momentText(moment)
	}
}

// coveringEvent returns an event for the given ranges of one kind, if they cover much of a moment.
func coveringEvent(moment *report.Moment, kind report.MomentKind, ranges [][2]int64, durationNS int64) []report.MomentEvent {
	from, to := moment.StartNS, max(moment.UntilNS, moment.StartNS+1)
	var covered, all, first, last int64
	n := 0
	for _, r := range ranges {
		all += r[1]
		if d := min(r[0]+r[1], to) - max(r[0], from); d > 0 {
			covered += d
			if n == 0 {
				first = r[0]
			}
			last = r[0] + r[1]
			n++
		}
	}
	cover := float64(covered) / float64(to-from)
	if n == 0 || cover < threshold.NoticeableShare || cover < 2*float64(all)/float64(max(durationNS, 1)) {
		return nil
	}
	sentence := map[report.MomentKind]string{report.MomentGC: "garbage was collected", report.MomentSTW: "the world was stopped", report.MomentFreeze: "the kernel held the process back"}[kind]
	return []report.MomentEvent{{Kind: kind, StartNS: first, DurationNS: last - first, Count: n, Text: sentence + " for " + words.Duration(covered) + " of it"}}
}

// momentText returns the text of a moment for the report.
func momentText(moment *report.Moment) string {
	s := words.Count(moment.Slow, "of the slowest requests begins", "of the slowest requests begin") + " within " + words.Duration(max(moment.EndNS-moment.StartNS, 1)) + " from " + words.Duration(moment.StartNS) + " on"
	for i := range moment.With {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		s += sep + moment.With[i].Text
	}
	return s
}
