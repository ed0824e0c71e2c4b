// Package peers finds out whether a peer that requests wait for over the
// network is this process itself: a gateway that calls its own gRPC server over
// loopback, a handler that calls its own service. No event of a trace says which
// socket a goroutine waits for.
//
// That one request lies in nearly each wait, and not if the waits are moved in time, is no proof: whoever loads a page asks
// for two things at once. It is a hint (Peer.Sure is false). An exchange has an order, which proof.go holds the trace
// against; and where all sockets of the process were seen, and none leads to itself, there is no such peer: see Elsewhere.
package peers

import (
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Bounds of what is kept and believed.
const (
	// maxSpans bounds the waits, and the requests, that are kept: from twice as many
	// on only so many, those that begin first.
	maxSpans = 1 << 12
	// hintConfidence is the confidence in what only fits in time.
	hintConfidence = 0.6
)

// A Sum keeps waits and requests with their times. It implements pass.Sum.
type Sum struct {
	collectors []*collector
	waits      map[path.GroupID][]answers.Span
	requests   map[path.GroupID][]answers.Span
	keptUntil  int64 // what begins later was not kept

	isRefuted    bool
	participants map[uint64]bool       // see waitsOrServes
	peerByGroup  map[path.GroupID]Peer // see Of
}

type groupSpan struct {
	answers.Span
	group path.GroupID
}

// New returns a Sum to which nothing was added.
func New() *Sum { return new(Sum) }

// NewAdder implements pass.Sum.
func (s *Sum) NewAdder(stage *path.Stage) path.Adder {
	p := &collector{stage: stage, keptUntil: math.MaxInt64, isSendStack: make(map[tracefmt.StackID]bool)}
	s.collectors = append(s.collectors, p)
	return p
}

// EndGeneration implements pass.Ender: it forgets what is too many, by what all workers kept, so that it does not depend on who saw
// what.
func (s *Sum) EndGeneration() {
	keptUntil := s.keptByAll()
	for _, list := range []func(*collector) []groupSpan{waitsOf, requestsOf} {
		var starts []int64
		for _, p := range s.collectors {
			for _, g := range list(p) {
				if g.Start < keptUntil {
					starts = append(starts, g.Start)
				}
			}
		}
		if len(starts) > 2*maxSpans {
			slices.Sort(starts)
			keptUntil = starts[maxSpans]
		}
	}
	isLate := func(g groupSpan) bool { return g.Start >= keptUntil }
	for _, p := range s.collectors {
		p.keptUntil, p.waits, p.requests = keptUntil, slices.DeleteFunc(p.waits, isLate), slices.DeleteFunc(p.requests, isLate)
	}
	s.collectEvidence()
}

// keptByAll returns until when all workers kept what began.
func (s *Sum) keptByAll() int64 {
	keptUntil := int64(math.MaxInt64)
	for _, p := range s.collectors {
		keptUntil = min(keptUntil, p.keptUntil)
	}
	return keptUntil
}

// A part is one worker's.
type collector struct {
	stage           *path.Stage
	waits, requests []groupSpan
	keptUntil       int64 // what begins later is not kept
	partsBuffer     []answers.WaitPart
	isSendStack     map[tracefmt.StackID]bool
}

func waitsOf(p *collector) []groupSpan    { return p.waits }
func requestsOf(p *collector) []groupSpan { return p.requests }

// Add implements pass.Adder.
func (p *collector) Add(w *path.Walked) {
	if w.Form == path.Glanced || w.Weight != 1 {
		p.keptUntil = min(p.keptUntil, w.Start) // from here on not every request is walked
		return
	}
	if !answers.IsWhole(w) {
		return
	}
	if r, ok := answers.AnswerSpan(w); ok {
		p.requests = p.appendSpan(p.requests, groupSpan{r, w.Group})
	}
	answers.EachWait(w, p.partsBuffer, func(x answers.Span) {
		p.partsBuffer = x.Parts
		p.waits = p.appendSpan(p.waits, groupSpan{x, w.Group})
	})
}

func (p *collector) appendSpan(list []groupSpan, span groupSpan) []groupSpan {
	if span.Start >= p.keptUntil {
		return list
	}
	span.Parts = slices.Clone(span.Parts)
	return append(list, span)
}

// HasProvenPeer reports whether what was kept so far tells that requests wait for others of the process:
// what is kept later may still tell otherwise. No worker may be adding.
func (s *Sum) HasProvenPeer() bool {
	ids := make(map[path.GroupKey]path.GroupID) // workers number groups each for themselves
	groupNumber := func(worker int, group path.GroupID) path.GroupID {
		key := s.collectors[worker].stage.IDs.Group(group)
		id, ok := ids[key]
		if !ok {
			id = path.GroupID(len(ids))
			ids[key] = id
		}
		return id
	}
	snapshot := Sum{isRefuted: s.isRefuted, waits: s.spansByGroup(waitsOf, groupNumber)}
	if len(snapshot.waits) == 0 {
		return false
	}
	snapshot.requests = s.spansByGroup(requestsOf, groupNumber)
	return slices.ContainsFunc(snapshot.WaitingGroups(), func(id path.GroupID) bool {
		p, ok := snapshot.PeerOf(id)
		return ok && p.Proven
	})
}

// Merge brings together what all workers kept, by the groups of the report.
func (s *Sum) Merge(ts []path.Translation) {
	groupNumber := func(worker int, group path.GroupID) path.GroupID { return ts[worker].Groups[group] }
	s.waits, s.requests, s.keptUntil = s.spansByGroup(waitsOf, groupNumber), s.spansByGroup(requestsOf, groupNumber), s.keptByAll()
	s.collectors = nil
}

// spansByGroup returns what all workers kept, by the number that a worker's group gets.
func (s *Sum) spansByGroup(list func(*collector) []groupSpan, groupNumber func(worker int, group path.GroupID) path.GroupID) map[path.GroupID][]answers.Span {
	all, keptUntil := make(map[path.GroupID][]answers.Span), s.keptByAll()
	for i, p := range s.collectors {
		for _, g := range list(p) {
			if g.Start < keptUntil {
				id := groupNumber(i, g.group)
				all[id] = append(all[id], g.Span)
			}
		}
	}
	for _, spans := range all {
		answers.Sort(spans)
	}
	return all
}

// WaitingGroups returns the groups of whose requests waits were kept.
func (s *Sum) WaitingGroups() []path.GroupID { return slices.Sorted(maps.Keys(s.waits)) }

// maxFurtherGroups bounds the further groups that answer one group's waits.
const maxFurtherGroups = 4
