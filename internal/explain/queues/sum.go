package queues

import (
	"maps"
	"sync"

	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Sum adds up turns and late runs. It implements pass.Sum.
type Sum struct {
	parts  []*part
	span   int64 // length of all slices of time in which turns were looked at
	looked int   // about how many requests ended in them
	hubs   map[uint64]*hub
	// settling is what goes on while requests of the next generation are found: it needs nothing of the window.
	settling sync.WaitGroup
}

// New returns a Sum to which nothing was added.
func New() *Sum { return &Sum{hubs: make(map[uint64]*hub)} }

// Part implements pass.Sum.
func (s *Sum) Part(stage *path.Stage) path.Adder {
	p := &part{stage: stage, turns: turns{gs: make(map[uint64]struct{})}, asks: make(map[askKey]*askSum), under: make(map[underKey]map[tracefmt.FrameID]int64), partings: make(map[[2]tracefmt.StackID]tracefmt.FrameID)}
	s.parts = append(s.parts, p)
	return p
}

// End implements pass.Ender.
func (s *Sum) End() {
	for _, p := range s.parts[1:] {
		maps.Copy(s.parts[0].turns.gs, p.turns.gs)
	}
	s.settling.Go(s.settle)
	s.settling.Go(s.settlePlaces)
	s.joinLates()
}

// Merge brings together what all workers added.
func (s *Sum) Merge(ts []path.Translation) {
	s.settling.Wait()
	s.mergeAsks(ts)
	for _, p := range s.parts[1:] {
		s.parts[0].mergeUnder(p)
		s.parts[0].turns.merge(&p.turns)
		s.parts[0].turns.mergePlaces(&p.turns)
		for k, o := range p.turns.readers {
			addSum(&s.parts[0].turns.readers, k, o, readerSum.plus)
		}
		for k, o := range p.turns.streams {
			addSum(&s.parts[0].turns.streams, k, o, streamSum.plus)
		}
		for k, o := range p.turns.siblings {
			addSum(&s.parts[0].turns.siblings, k, o, siblingSum.plus)
		}
	}
	s.parts = s.parts[:1]
}

// addSum adds to the sum of a key, in a map that is made when there is something to add.
func addSum[S any](to *map[tracefmt.FrameID]S, k tracefmt.FrameID, s S, plus func(S, S) S) {
	if *to == nil {
		*to = make(map[tracefmt.FrameID]S)
	}
	(*to)[k] = plus((*to)[k], s)
}

// A part is one worker's.
type part struct {
	stage *path.Stage
	turns turns
	late  lates
	spans []timeline.Span
	own   []ownWait
	asks  map[askKey]*askSum
	calls []calls // of one request
	under map[underKey]map[tracefmt.FrameID]int64
	// partings holds what parting has found, by the two stacks.
	partings map[[2]tracefmt.StackID]tracefmt.FrameID
	wrote    []uint64 // goroutines that wrote to a connection since they read an answer
}

// Add implements pass.Adder.
func (p *part) Add(w *path.Walked) {
	p.addLates(w) // a Joint has no steps
	if w.Form == path.Whole && !w.Observer && !w.Req.Open {
		p.addTurns(w)
		p.addPlaces(w)
		p.addReader(w)
		p.addStream(w)
		p.addSiblings(w)
		p.addAsks(w, w.Waits())
		p.addUnder(w, w.Waits())
	}
}
