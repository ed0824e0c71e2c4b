package queues

import (
	"cmp"
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/sample"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Hold is an interval in which a goroutine held a slot of a pool, as far as the waits for its slots show it.
type Hold struct {
	interval
	holder       uint64
	site         tracefmt.FrameID // where the holder had waited for the slot, else where it released it; 0: not known
	isBackground bool             // the holder served no request
	isPartial    bool             // it may have begun earlier or, in a pool that serves waiters in any order, later
}

// A queuedRequest is a request that waited for slots of a pool, with who held them during its waits.
type queuedRequest struct {
	g               uint64
	start, end      int64
	key             slotKey
	firstWait, last int64 // from the start of its first wait to the end of its last one
	holds           []Hold
}

const (
	queuedRequestsOfPool = 16 // the slowest
	maxHolds             = 300
	maxSlotLanes         = 32
)

func slowerFirst(a, b *queuedRequest) int {
	return cmp.Or(cmp.Compare(b.end-b.start, a.end-a.start), cmp.Compare(a.start, b.start), cmp.Compare(a.g, b.g))
}

// keepHolds keeps, for the slowest requests among those that waited at one line, who held the slots during their waits.
func (s *Sum) keepHolds(list []*handover, sums map[slotKey]*slotWaitSum) {
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
		r.firstWait, r.last = min(r.firstWait, h.waitStart), max(r.last, h.waitEnd)
	}
	for _, r := range order {
		top := s.queuedRequests[r.key]
		if top == nil {
			top = sample.New(queuedRequestsOfPool, slowerFirst)
			s.queuedRequests[r.key] = top
		}
		if last, isFull := top.Last(); isFull && slowerFirst(last, r) < 0 {
			continue
		}
		for _, hold := range sums[r.key].holds {
			if hold.start < r.last && hold.end > r.firstWait {
				r.holds = append(r.holds, hold)
			}
		}
		top.Add(r)
	}
	for _, sum := range sums {
		sum.holds = nil
	}
}

// minPoolShare is the least part of a request, between its first and its last wait for a slot, for which a pool is shown.
const minPoolShare = 0.05

// AddPools adds to a request of the report who held the slots of the pools in whose queues it waited.
func (s *Sum) AddPools(r *report.Request, group string, sp *spell.Speller) {
	r.Pools = nil
	start := sp.Start + r.StartNS
	type poolKey struct {
		queue *report.Queue
		line  tracefmt.Line
	}
	pools := map[poolKey]*queuedRequest{}
	for _, top := range s.queuedRequests {
		for _, queued := range top.Sorted() {
			if queued.g != r.Goroutine || queued.end != start+r.LatencyNS {
				continue
			}
			queue, _ := sp.QueueWait(group, []path.ChainWait{{Kind: queued.key.wait, Site: queued.key.site, Call: queued.key.call}})
			if queue == nil {
				continue
			}
			key := poolKey{queue, sp.Syms.Line(queued.key.site)}
			if pool := pools[key]; pool != nil { // it waited for the same pool from another line
				queued = &queuedRequest{end: pool.end, key: pool.key, firstWait: min(pool.firstWait, queued.firstWait), last: max(pool.last, queued.last), holds: slices.Concat(pool.holds, queued.holds)}
			}
			pools[key] = queued
		}
	}
	for key, queued := range pools {
		if float64(queued.last-queued.firstWait) >= minPoolShare*float64(r.LatencyNS) {
			if pool := queued.pool(key.queue.For, start, sp); len(pool.Slots) > 0 {
				r.Pools = append(r.Pools, pool)
			}
		}
	}
	slices.SortFunc(r.Pools, func(a, b report.Pool) int {
		return cmp.Or(cmp.Compare(a.FromNS, b.FromNS), cmp.Compare(a.ToNS, b.ToNS), cmp.Compare(a.For, b.For))
	})
}

// pool returns the pool of the report: holds are divided among slots, so that those of a slot do not overlap.
func (q *queuedRequest) pool(name string, start int64, sp *spell.Speller) report.Pool {
	out := report.Pool{For: name, Site: sp.Site(q.key.site), FromNS: q.firstWait - sp.Start, ToNS: q.last - sp.Start, Slots: [][]report.Hold{}}
	holds := slices.SortedFunc(slices.Values(q.holds), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.holder, b.holder))
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

// SumOf returns a Sum with who held slots of pools while the requests of a time waited. Each result is used before the next
// request is walked.
func SumOf(stage *path.Stage, walked iter.Seq[*path.WalkResult]) *Sum {
	s := New()
	p := s.NewAdder(stage).(*workerSum)
	for w := range walked {
		s.requestGoroutines[w.Req.G] = struct{}{}
		p.addHandovers(w)
	}
	s.aggregateHandovers()
	return s
}
