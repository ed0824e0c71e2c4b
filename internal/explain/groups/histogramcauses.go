package groups

import (
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/report"
)

// HistogramCauses returns, by cause, the time in ns in each bucket of a group's histogram. groupID is the group's id in the
// report.
func (s *Sum) HistogramCauses(id path.GroupID, groupID string, sp *spell.Speller) map[report.CauseName][]int64 {
	w := rowWriter{table: s.tables[0], sp: sp}
	return w.histogramCauses(w.groups[id], groupID)
}

// A queueKey identifies the time in one queue that has one cause, such as the running time of the requests ahead.
type queueKey struct {
	queue *report.Queue
	cause report.CauseName
}

// histogramCauses returns, by cause, the time in ns in each bucket of histogramPairs. Time in a queue counts as
// report.CauseQueue, except the part in which the request itself is served.
func (w rowWriter) histogramCauses(g *group, groupID string) map[report.CauseName][]int64 {
	indexByBucket := map[int32]int{}
	for i, b := range g.latencies.coarseCounts() {
		indexByBucket[b.bucket] = i
	}
	out, queued := map[report.CauseName][]int64{}, map[queueKey][]int64{}
	requests := map[*report.Queue][]int64{}
	queueByCause := map[path.CauseID]*report.Queue{}
	queueOf := func(id path.CauseID) *report.Queue {
		if len(w.sp.Queues[groupID]) == 0 {
			return nil
		}
		queue, isQueue := queueByCause[id]
		if !isQueue {
			key := w.stage.IDs.Cause(id)
			queue, _ = w.sp.QueueWait(groupID, w.sp.WithTimedWait(groupID, w.stage.IDs.Chain(key.Chain), key.Code, key.Site, key.Call))
			queueByCause[id] = queue
		}
		return queue
	}
	g.causeCells.forEach(func(bucket, id int32, c *cell) {
		i, ok := indexByBucket[bucket]
		if !ok || c.ns == 0 {
			return
		}
		key := w.stage.IDs.Cause(path.CauseID(id))
		name := w.sp.CauseOf(key)
		if queue := queueOf(path.CauseID(id)); queue != nil {
			columnOf(queued, queueKey{queue, name}, len(indexByBucket))[i] += c.ns
			counts := columnOf(requests, queue, len(indexByBucket))
			counts[i] = max(counts[i], c.requests)
			return
		}
		columnOf(out, name, len(indexByBucket))[i] += c.ns
	})
	waitNS := map[*report.Queue][]int64{}
	for key, column := range queued {
		sum := columnOf(waitNS, key.queue, len(column))
		for i, ns := range column {
			sum[i] += ns
		}
	}
	for key, column := range queued {
		for i, ns := range column {
			if ns == 0 {
				continue
			}
			ownNS := spell.OwnPart(ns, key.queue.OwnNS, requests[key.queue][i], waitNS[key.queue][i])
			if ownNS > 0 {
				columnOf(out, key.cause, len(column))[i] += ownNS
			}
			if ns > ownNS {
				columnOf(out, report.CauseQueue, len(column))[i] += ns - ownNS
			}
		}
	}
	return out
}

// columnOf returns the column of a key with n cells, creating it on demand.
func columnOf[K comparable](columns map[K][]int64, key K, n int) []int64 {
	return entry.GetOrMake(columns, key, func() []int64 { return make([]int64, n) })
}
