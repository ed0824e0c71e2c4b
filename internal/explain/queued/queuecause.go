// Package queued gives the cause queue to the time for which requests wait in queues.
//
// A walk follows a wait for a slot, a server or a stream to the goroutine that ended it, so that time has the cause of what the
// holders did. Whether such a wait is a queue depends on who the holders are in the whole trace, and package finding decides it. Then
// Label moves the time behind each wait in a queue to rows of the cause queue, at the line that waits. The chain of waits stays, and
// each route names the work at its end (report.Work). Sums of a band, a block and a bucket do not change. If a wait contains the
// request's own service time (report.Queue.OwnNS), that part is not moved.
package queued

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/report"
)

// Label labels the bands and blocks of a group. bands are the group's with all chains of waits, and histogramCauses is the group's
// with the cause queue.
func Label(g *report.Group, queues []*report.Queue, bands []report.Band, histogramCauses map[report.CauseName][]int64) {
	g.Bands = bands
	for i := range g.Bands {
		labelBand(&g.Bands[i], queues)
	}
	labelBlocks(g, histogramCauses)
	g.HistogramCauses = histogramCauses
}

// A queuedPart is the time of one route that is moved to the row of a queue.
type queuedPart struct {
	source int // index of the row
	route  report.Route
	queue  *report.Queue
	wait   *report.Via
}

// labelBand moves the time in queues to separate rows.
func labelBand(b *report.Band, queues []*report.Queue) {
	var parts []queuedPart
	queueNS, requests := map[*report.Queue]int64{}, map[*report.Queue]int64{}
	for i := range b.Causes {
		row := &b.Causes[i]
		for _, r := range row.AllRoutes() {
			r.Via = withTimedWait(queues, row, r.Via)
			q, wait := verdict.QueueWait(queues, r.Via)
			if q == nil {
				continue
			}
			r.AheadWork = &report.Work{Cause: row.Cause, Kind: row.Kind, Site: row.Site, SiteFrom: row.SiteFrom, Call: row.Call}
			parts = append(parts, queuedPart{i, r, q, wait})
			queueNS[q] += r.TotalNS
			requests[q] = max(requests[q], int64(row.Requests))
		}
	}
	movedNS := make([]int64, len(b.Causes))
	ownRoutes := make([][]report.Route, len(b.Causes))
	var rows []report.Cause
	for _, p := range parts {
		if ownNS := spell.OwnPart(p.route.TotalNS, p.queue.OwnNS, requests[p.queue], queueNS[p.queue]); ownNS > 0 {
			ownRoutes[p.source] = append(ownRoutes[p.source], report.Route{Via: p.route.Via, TotalNS: ownNS})
			p.route.TotalNS -= ownNS
		}
		if p.route.TotalNS > 0 {
			movedNS[p.source] += p.route.TotalNS
			rows = addToQueue(rows, &p, &b.Causes[p.source])
		}
	}
	remaining := []report.Cause{}
	for i := range b.Causes {
		if row := &b.Causes[i]; movedNS[i] == 0 {
			remaining = append(remaining, *row)
		} else if movedNS[i] < row.TotalNS {
			remaining = append(remaining, withoutQueue(row, movedNS[i], ownRoutes[i], queues))
		}
	}
	for i := range rows {
		finishRow(&rows[i])
	}
	b.Causes = append(remaining, rows...)
	for row := range entry.Each(b.Causes) {
		row.Routes = row.Routes[:min(len(row.Routes), groups.MaxRoutes)]
	}
	slices.SortStableFunc(b.Causes, func(a, b report.Cause) int {
		return verdict.CompareTimes(a.Cause, a.TotalNS, b.Cause, b.TotalNS)
	})
}

// withTimedWait returns a chain of waits to the cause of a row with the wait in a queue that a timer ended (verdict.WithTimedWait).
func withTimedWait(queues []*report.Queue, row *report.Cause, via []report.Via) []report.Via {
	return verdict.WithTimedWait(row, via, func(wait *report.Via) bool {
		return slices.ContainsFunc(queues, func(q *report.Queue) bool { return q.Contains(wait) })
	})
}

// addToQueue adds a part of a row to the row of its queue and line, which finishRow must finish.
func addToQueue(rows []report.Cause, p *queuedPart, source *report.Cause) []report.Cause {
	row := entry.FindOrAppend(&rows, func(r report.Cause) bool { return r.Kind == p.queue.For && r.Site.Equal(p.wait.Site) },
		report.Cause{Cause: report.CauseQueue, Kind: p.queue.For, Site: p.wait.Site, Call: p.wait.Call})
	fraction := float64(p.route.TotalNS) / float64(source.TotalNS)
	row.Routes = append(row.Routes, p.route)
	row.TotalNS += p.route.TotalNS
	row.Share += fraction * source.Share
	row.ShareError = max(row.ShareError, source.ShareError)
	row.Requests = max(row.Requests, source.Requests)
	for _, ran := range source.RanMeanwhile { // their shares are times until finishRow
		isSame := func(s report.Share) bool { return s.Site.Equal(ran.Site) }
		entry.FindOrAppend(&row.RanMeanwhile, isSame, report.Share{Site: ran.Site}).Share += ran.Share * float64(p.route.TotalNS)
	}
	return rows
}

// maxRanMeanwhile bounds the functions of RanMeanwhile.
const maxRanMeanwhile = 5

// finishRow sorts a row's routes and computes shares of its time.
func finishRow(row *report.Cause) {
	slices.SortStableFunc(row.Routes, func(a, b report.Route) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	row.Via, row.AheadWork = row.Routes[0].Via, row.Routes[0].AheadWork
	if len(row.Routes) == 1 {
		row.Routes = nil
	}
	for k := range row.RanMeanwhile {
		row.RanMeanwhile[k].Share /= float64(row.TotalNS)
	}
	row.RanMeanwhile = slices.DeleteFunc(row.RanMeanwhile, func(s report.Share) bool { return s.Share < threshold.MinorShare })
	slices.SortStableFunc(row.RanMeanwhile, func(a, b report.Share) int { return cmp.Compare(b.Share, a.Share) })
	row.RanMeanwhile = row.RanMeanwhile[:min(len(row.RanMeanwhile), maxRanMeanwhile)]
}

// withoutQueue returns a row without the time that was moved. Its routes are those outside of queues, and those through queues for
// the requests' own service time.
func withoutQueue(row *report.Cause, movedNS int64, ownRoutes []report.Route, queues []*report.Queue) report.Cause {
	out := *row
	fraction := float64(row.TotalNS-movedNS) / float64(row.TotalNS)
	out.TotalNS -= movedNS
	out.Share, out.Samples = fraction*row.Share, int(fraction*float64(row.Samples)+0.5)
	routes := ownRoutes
	for _, r := range row.AllRoutes() {
		if q, _ := verdict.QueueWait(queues, withTimedWait(queues, row, r.Via)); q == nil {
			routes = append(routes, r)
		}
	}
	out.Routes = nil
	slices.SortStableFunc(routes, func(a, b report.Route) int { return cmp.Compare(b.TotalNS, a.TotalNS) })
	if out.Via = routes[0].Via; len(routes) > 1 {
		out.Routes = routes
	}
	return out
}

// labelBlocks divides each cause of each block. A block has no chains of waits, but a latency histogram: the time in queues
// depends on the latency, and its part in requests of equal latency is known for the group.
func labelBlocks(g *report.Group, labelled map[report.CauseName][]int64) {
	if len(labelled[report.CauseQueue]) == 0 {
		return
	}
	indexByLimit := map[int64]int{}
	for i, bucket := range g.Histogram {
		indexByLimit[bucket[0]] = i
	}
	for block := range entry.Each(g.Blocks) {
		for name, ns := range block.Causes {
			var allNS, queuedNS float64
			for _, bucket := range block.Histogram {
				i, ok := indexByLimit[bucket[0]]
				before := g.HistogramCauses[name]
				if !ok || before == nil {
					continue
				}
				remainingNS := int64(0)
				if after := labelled[name]; after != nil {
					remainingNS = after[i]
				}
				requests := float64(bucket[1]) / float64(g.Histogram[i][1])
				allNS += requests * float64(before[i])
				queuedNS += requests * float64(before[i]-remainingNS)
			}
			if queuedNS <= 0 {
				continue
			}
			moved := int64(queuedNS / allNS * float64(ns))
			block.Causes[report.CauseQueue] += moved
			if block.Causes[name] -= moved; block.Causes[name] == 0 {
				delete(block.Causes, name)
			}
		}
	}
}
