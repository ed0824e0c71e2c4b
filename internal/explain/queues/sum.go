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
	parts   []*part
	span    int64               // length of all slices
	looked  int                 // about how many requests ended in them
	serving map[uint64]struct{} // goroutines of this generation's slice
	turns   map[turnKey]*turnSum
	places  map[placeKey]*placeSum
	hubs    map[uint64]*hub
	// settling is what goes on while requests of the next generation are found: it needs nothing of the window.
	settling sync.WaitGroup
}

// A part is one worker's.
type part struct {
	stage *path.Stage

	// Of this generation's slice.
	until   int64 // requests that end before belong to it
	turns   []turn
	hands   []handOver
	serving map[uint64]struct{} // goroutines of its requests
	late    lates

	// Of all of them.
	sleeps   map[turnKey]sleepSum
	readers  map[tracefmt.FrameID]readerSum  // by where they wait
	streams  map[tracefmt.FrameID]streamSum  // by where they sleep
	siblings map[tracefmt.FrameID]siblingSum // by where they wait for a lock
	under    map[underKey]int64              // ns
	asks     map[askKey]*askSum

	// partings holds what parting has found, by the two stacks.
	partings map[[2]tracefmt.StackID]tracefmt.FrameID
	// Scratch, of one request.
	spans []timeline.Span
	own   []ownWait
	calls []calls
	wrote []uint64 // goroutines that wrote to a connection since they read an answer
}

// New returns a Sum to which nothing was added.
func New() *Sum {
	return &Sum{
		serving: make(map[uint64]struct{}), turns: make(map[turnKey]*turnSum), places: make(map[placeKey]*placeSum), hubs: make(map[uint64]*hub),
	}
}

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &part{
		stage: stage, serving: make(map[uint64]struct{}), late: lates{runs: make(map[lateKey]lateRun), most: make(map[uint64]int64)},
		sleeps: make(map[turnKey]sleepSum), readers: make(map[tracefmt.FrameID]readerSum), streams: make(map[tracefmt.FrameID]streamSum),
		siblings: make(map[tracefmt.FrameID]siblingSum), under: make(map[underKey]int64), asks: make(map[askKey]*askSum),
		partings: make(map[[2]tracefmt.StackID]tracefmt.FrameID),
	}
	s.parts = append(s.parts, p)
	return p
}

// sliceMost bounds about how many requests of a generation belong to its slice, or
// sliceLater once sliceKnown did.
const (
	sliceMost  = 2000
	sliceLater = 500
	sliceKnown = 6_000
)

// BeginGeneration implements pass.Beginner.
func (s *Sum) BeginGeneration(reqs []request.Request) {
	s.settling.Wait()
	from, to := int64(math.MaxInt64), int64(0)
	for i := range reqs {
		if r := &reqs[i]; r.Piece == request.WholeRequest && !r.Open {
			from, to = min(from, r.End), max(to, r.End)
		}
	}
	until := int64(math.MaxInt64)
	s.parts[0].late.times = 1
	most := sliceMost
	if s.looked >= sliceKnown {
		most = sliceLater
	}
	s.looked += min(len(reqs), most)
	if len(reqs) > most {
		s.parts[0].late.times = int64((len(reqs) + most/2) / most)
		until = from + int64(float64(to-from)*float64(most)/float64(len(reqs)))
		to = until
	}
	if to > from {
		s.span += to - from
	}
	for _, p := range s.parts {
		p.until = until
		p.turns, p.hands = p.turns[:0], p.hands[:0]
		clear(p.serving)
	}
}

// NeedsWalk implements pass.Chooser: who was at work at once, and how many waited for one late run, is seen only where all
// requests are.
func (s *Sum) NeedsWalk(r *request.Request) bool { return len(s.parts) > 0 && r.End < s.parts[0].until }

// Add implements pass.Adder.
func (p *part) Add(w *path.Walked) {
	p.addLates(w) // a Joint has no steps
	if w.Form != path.Whole || w.Observer || w.Req.Open || w.Req.End >= p.until {
		return
	}
	p.addTurns(w)
	p.addPlaces(w)
	p.addAsks(w, w.Waits())
	p.addUnder(w, w.Waits())
	if w.Req.IsServed() {
		own := p.ownWaits(w)
		p.addReader(w, own)
		p.addStream(w, own) // which drops some of them
		p.addSiblings(w)
	}
}

// EndGeneration implements pass.Ender.
func (s *Sum) EndGeneration() {
	clear(s.serving)
	for _, p := range s.parts {
		maps.Copy(s.serving, p.serving)
	}
	s.settling.Go(s.settleTurns)
	s.settling.Go(s.settlePlaces)
	s.joinLates()
}

// Merge brings together what all workers added.
func (s *Sum) Merge(ts []path.Translation) {
	s.settling.Wait()
	s.mergeAsks(ts)
	all := s.parts[0]
	for _, p := range s.parts[1:] {
		addSums(all.sleeps, p.sleeps, sleepSum.plus)
		addSums(all.readers, p.readers, readerSum.plus)
		addSums(all.streams, p.streams, streamSum.plus)
		addSums(all.siblings, p.siblings, siblingSum.plus)
		addSums(all.under, p.under, func(a, b int64) int64 { return a + b })
	}
	s.parts = s.parts[:1]
}

// addSums adds the sums of each key.
func addSums[K comparable, S any](to, from map[K]S, plus func(S, S) S) {
	for k, s := range from {
		to[k] = plus(to[k], s)
	}
}

// chunked yields the runs of a list whose members are alike.
func chunked[T any](list []T, alike func(a, b T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for i, j := 0, 0; i < len(list); i = j {
			for j = i + 1; j < len(list) && alike(list[i], list[j]); j++ {
			}
			if !yield(list[i:j]) {
				return
			}
		}
	}
}
