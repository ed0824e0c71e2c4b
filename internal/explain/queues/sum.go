// Package queues adds up what requests waited for on other goroutines, and
// whether others waited for those at the same time: turns, and goroutines that
// run late while many wait for them.
package queues

import (
	"iter"
	"maps"
	"math"
	"sync"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Sum adds up turns, places and late runs. It implements pass.Sum.
//
// Most of it is of a slice of every generation: the requests that end in it, all of which are walked. A slice holds so few requests that it costs
// next to nothing.
type Sum struct {
	workers           []*workerSum
	sliceNS           int64               // length of all slices
	sliceRequests     int                 // about how many requests ended in them
	requestGoroutines map[uint64]struct{} // goroutines of this generation's slice
	services          map[serviceKey]*serviceSum
	slotWaits         map[slotKey]*slotWaitSum
	hubs              map[uint64]*hubSum
	// aggregation is what goes on while requests of the next generation are found: it needs nothing of the window.
	aggregation sync.WaitGroup
}

// A part is one worker's.
type workerSum struct {
	stage *path.Stage

	// Of this generation's slice.
	sliceEnd          int64 // requests that end before belong to it
	services          []service
	handovers         []handover
	requestGoroutines map[uint64]struct{} // goroutines of its requests
	lateRuns          lateRuns

	// Of all of them.
	sleeps       map[serviceKey]sleepSum
	longWaits    map[tracefmt.FrameID]longWaitSum // by where they wait
	streams      map[tracefmt.FrameID]streamSum   // by where they sleep
	siblingLocks map[tracefmt.FrameID]siblingSum  // by where they wait for a lock
	holderLines  map[holderLineKey]int64          // ns
	peerCalls    map[peerCallKey]*peerCallSum

	// divergingLines holds what parting has found, by the two stacks.
	divergingLines map[[2]tracefmt.StackID]tracefmt.FrameID
	// Scratch, of one request.
	spans          []timeline.Span
	ownWaitScratch []ownWait
	callScratch    []requestCalls
	writers        []uint64 // goroutines that wrote to a connection since they read an answer
}

// New returns a Sum to which nothing was added.
func New() *Sum {
	return &Sum{
		requestGoroutines: make(map[uint64]struct{}), services: make(map[serviceKey]*serviceSum), slotWaits: make(map[slotKey]*slotWaitSum), hubs: make(map[uint64]*hubSum),
	}
}

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &workerSum{
		stage: stage, requestGoroutines: make(map[uint64]struct{}), lateRuns: lateRuns{runs: make(map[lateRunKey]lateRun), maxNSByG: make(map[uint64]int64)},
		sleeps: make(map[serviceKey]sleepSum), longWaits: make(map[tracefmt.FrameID]longWaitSum), streams: make(map[tracefmt.FrameID]streamSum),
		siblingLocks: make(map[tracefmt.FrameID]siblingSum), holderLines: make(map[holderLineKey]int64), peerCalls: make(map[peerCallKey]*peerCallSum),
		divergingLines: make(map[[2]tracefmt.StackID]tracefmt.FrameID),
	}
	s.workers = append(s.workers, p)
	return p
}

// maxSliceRequests bounds about how many requests of a generation belong to its slice, or
// maxLaterSliceRequests once laterSlicesFrom did.
const (
	maxSliceRequests      = 2000
	maxLaterSliceRequests = 500
	laterSlicesFrom       = 6_000
)

// BeginGeneration implements pass.Beginner.
func (s *Sum) BeginGeneration(reqs []request.Request) {
	s.aggregation.Wait()
	from, to := int64(math.MaxInt64), int64(0)
	for i := range reqs {
		if r := &reqs[i]; r.Piece == request.WholeRequest && !r.Open {
			from, to = min(from, r.End), max(to, r.End)
		}
	}
	sliceEnd := int64(math.MaxInt64)
	s.workers[0].lateRuns.sliceWeight = 1
	maxRequests := maxSliceRequests
	if s.sliceRequests >= laterSlicesFrom {
		maxRequests = maxLaterSliceRequests
	}
	s.sliceRequests += min(len(reqs), maxRequests)
	if len(reqs) > maxRequests {
		s.workers[0].lateRuns.sliceWeight = int64((len(reqs) + maxRequests/2) / maxRequests)
		sliceEnd = from + int64(float64(to-from)*float64(maxRequests)/float64(len(reqs)))
		to = sliceEnd
	}
	if to > from {
		s.sliceNS += to - from
	}
	for _, p := range s.workers {
		p.sliceEnd = sliceEnd
		p.services, p.handovers = p.services[:0], p.handovers[:0]
		clear(p.requestGoroutines)
	}
}

// NeedsWalk implements pass.Chooser: who was at work at once, and how many waited for one late run, is seen only where all
// requests are.
func (s *Sum) NeedsWalk(r *request.Request) bool {
	return len(s.workers) > 0 && r.End < s.workers[0].sliceEnd
}

// Add implements pass.Adder.
func (p *workerSum) Add(w *path.Walked) {
	p.addLateRuns(w) // a Joint has no steps
	if w.Form != path.Whole || w.Observer || w.Req.Open || w.Req.End >= p.sliceEnd {
		return
	}
	p.addServices(w)
	p.addHandovers(w)
	p.addPeerCalls(w, w.Waits())
	p.addHolderLines(w, w.Waits())
	if w.Req.IsServed() {
		waits := p.ownWaits(w)
		p.addLongWait(w, waits)
		p.addStream(w, waits) // which drops some of them
		p.addSiblingLocks(w)
	}
}

// EndGeneration implements pass.Ender.
func (s *Sum) EndGeneration() {
	clear(s.requestGoroutines)
	for _, p := range s.workers {
		maps.Copy(s.requestGoroutines, p.requestGoroutines)
	}
	s.aggregation.Go(s.aggregateServices)
	s.aggregation.Go(s.aggregateHandovers)
	s.mergeLateRuns()
}

// Merge brings together what all workers added.
func (s *Sum) Merge(ts []path.Translation) {
	s.aggregation.Wait()
	s.mergePeerCalls(ts)
	all := s.workers[0]
	for _, p := range s.workers[1:] {
		addSums(all.sleeps, p.sleeps, sleepSum.plus)
		addSums(all.longWaits, p.longWaits, longWaitSum.plus)
		addSums(all.streams, p.streams, streamSum.plus)
		addSums(all.siblingLocks, p.siblingLocks, siblingSum.plus)
		addSums(all.holderLines, p.holderLines, func(a, b int64) int64 { return a + b })
	}
	s.workers = s.workers[:1]
}

// addSums adds the sums of each key.
func addSums[K comparable, S any](to, from map[K]S, add func(S, S) S) {
	for k, s := range from {
		to[k] = add(to[k], s)
	}
}

// equalRuns yields the runs of a list whose members are alike.
func equalRuns[T any](list []T, equal func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for i, j := 0, 0; i < len(list); i = j {
			for j = i + 1; j < len(list) && equal(list[i], list[j]); j++ {
			}
			if !yield(list[i:j]) {
				return
			}
		}
	}
}
