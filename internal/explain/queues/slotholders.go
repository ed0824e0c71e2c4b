package queues

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Hold is an interval in which a goroutine held a slot of a pool, as inferred from the waits for the pool's slots.
type Hold struct {
	interval
	holder       uint64
	site         tracefmt.FrameID // where the holder had waited for the slot, or where it released it; 0: not known
	isBackground bool             // the holder served no request
	isPartial    bool             // it may have begun earlier or, in a pool that serves waiters in any order, later
}

// A queuedRequest is a request that waited for slots of a pool, with the holds of these slots during its waits.
type queuedRequest struct {
	g                      uint64
	start, end             int64
	key                    slotKey
	firstWait, lastWaitEnd int64 // from the start of its first wait to the end of its last one
	holds                  []Hold
}

const (
	queuedRequestsOfPool = 16 // the slowest requests of each pool
	maxHolds             = 300
	maxSlotLanes         = 32
)

// slowerFirst orders requests by latency, the slowest first, then by start and goroutine, so that the order does not depend on
// the workers.
func slowerFirst(a, b *queuedRequest) int {
	return cmp.Or(cmp.Compare(b.end-b.start, a.end-a.start), cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}

// recordSlotHolders selects the slowest requests that waited at one source line, and stores the holds that overlap their waits. Then it
// removes the holds of all sums, which are only needed for this.
func (s *Sum) recordSlotHolders(list []*handover, sums map[slotKey]*slotWaitSum) {
	type requestKey struct {
		slotKey
		g   uint64
		end int64
	}
	requests, order := map[requestKey]*queuedRequest{}, []*queuedRequest{}
	for _, h := range list {
		if len(sums[h.key].holds) == 0 {
			continue
		}
		key := requestKey{h.key, h.requestG, h.requestEnd}
		r := requests[key]
		if r == nil {
			r = &queuedRequest{g: h.requestG, start: h.requestStart, end: h.requestEnd, key: h.key, firstWait: h.waitStart}
			requests[key], order = r, append(order, r)
		}
		r.firstWait, r.lastWaitEnd = min(r.firstWait, h.waitStart), max(r.lastWaitEnd, h.waitEnd)
	}
	for _, r := range order {
		top := entry.GetOrMake(s.queuedRequests, r.key, func() *sample.TopN[*queuedRequest] { return sample.New(queuedRequestsOfPool, slowerFirst) })
		if last, isFull := top.Last(); isFull && slowerFirst(last, r) < 0 {
			continue
		}
		for _, hold := range sums[r.key].holds {
			if hold.start < r.lastWaitEnd && hold.end > r.firstWait {
				r.holds = append(r.holds, hold)
			}
		}
		top.Add(r)
	}
	for _, sum := range sums {
		sum.holds = nil
	}
}

// A pool is shown in a request if the time from the request's first to its last wait for a slot is at least this share of its
// latency.
const minPoolShare = 0.05

// AddPools sets Pools of a request of the report: for each pool in whose queue it waited, which goroutines held the slots. A
// request that recordSlotHolders did not select gets none.
func (s *Sum) AddPools(r *report.Request, group string, sp *spell.Speller) {
	r.Pools = nil
	start := sp.Start + r.StartNS
	type poolKey struct {
		queue *report.Queue
		line  tracefmt.Line
	}
	pools := map[poolKey]*queuedRequest{}
	for _, slot := range slices.SortedFunc(maps.Keys(s.queuedRequests), compareSlotKeys(sp)) { // the first line represents the others
		for _, queued := range s.queuedRequests[slot].Sorted() {
			if queued.g != r.Goroutine || queued.end != start+r.LatencyNS {
				continue
			}
			queue, _ := sp.QueueWait(group, []path.ChainWait{{Kind: queued.key.wait, Site: queued.key.site, Call: queued.key.call}})
			if queue == nil {
				continue
			}
			key := poolKey{queue, sp.Syms.Line(queued.key.site)}
			if pool := pools[key]; pool != nil { // it waited for the same pool from another line
				queued = &queuedRequest{end: pool.end, key: pool.key, firstWait: min(pool.firstWait, queued.firstWait), lastWaitEnd: max(pool.lastWaitEnd, queued.lastWaitEnd), holds: slices.Concat(pool.holds, queued.holds)}
			}
			pools[key] = queued
		}
	}
	for key, queued := range pools {
		if float64(queued.lastWaitEnd-queued.firstWait) >= minPoolShare*float64(r.LatencyNS) {
			if pool := queued.reportPool(key.queue.For, start, sp); len(pool.Slots) > 0 {
				r.Pools = append(r.Pools, pool)
			}
		}
	}
	slices.SortFunc(r.Pools, func(a, b report.Pool) int {
		return cmp.Or(cmp.Compare(a.FromNS, b.FromNS), cmp.Compare(a.ToNS, b.ToNS), cmp.Compare(a.For, b.For))
	})
}

// reportPool converts the holds to a pool of the report, one lane for each slot: holds of a lane do not overlap, and a hold continues
// the lane on which a slot was released at its start. start is the request's start in trace time.
func (q *queuedRequest) reportPool(name string, start int64, sp *spell.Speller) report.Pool {
	out := report.Pool{For: name, Site: sp.Site(q.key.site), FromNS: q.firstWait - sp.Start, ToNS: q.lastWaitEnd - sp.Start, Slots: [][]report.Hold{}}
	holds := slices.SortedFunc(slices.Values(q.holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.holder, b.holder), sp.CompareFrames(a.site, b.site))
	})
	holds = slices.CompactFunc(holds, func(a, b Hold) bool { return a.interval == b.interval && a.holder == b.holder })
	var ends []int64 // of the last hold, by slot
	for _, hold := range holds[:min(len(holds), maxHolds)] {
		slot := slices.Index(ends, hold.start) // a slot that is released goes to the goroutine that waited for it
		if slot < 0 {
			slot = slices.IndexFunc(ends, func(end int64) bool { return end <= hold.start })
		}
		if slot < 0 {
			if len(ends) == maxSlotLanes {
				continue
			}
			slot, ends, out.Slots = len(ends), append(ends, 0), append(out.Slots, []report.Hold{})
		}
		ends[slot] = hold.end
		from, to := max(hold.start, start), min(hold.end, q.end)
		if from < to {
			out.Slots[slot] = append(out.Slots[slot], report.Hold{StartNS: from - sp.Start, DurationNS: to - from, Goroutine: hold.holder, Site: sp.Site(hold.site), Background: hold.isBackground})
		}
	}
	return out
}

// SumOfSlotHolders returns a Sum that knows only who held the slots of pools while the given requests waited (for AddPools). Each walk
// result is used before the next one is requested, so the walker may reuse its buffers.
func SumOfSlotHolders(stage *path.Stage, walked iter.Seq[*path.WalkResult]) *Sum {
	s := New()
	p := s.NewAdder(stage).(*workerSum)
	for w := range walked {
		s.requestGoroutines.add(w.Req.G)
		p.addHandovers(w)
	}
	s.aggregateHandovers()
	return s
}
