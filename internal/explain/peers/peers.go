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
	// maxKept bounds the waits, and the requests, that are kept: from twice as many
	// on only so many, those that begin first.
	maxKept = 1 << 12
	// hinted is the confidence in what only fits in time.
	hinted = 0.6
)

// A Sum keeps waits and requests with their times. It implements pass.Sum.
type Sum struct {
	parts  []*part
	waits  map[path.GroupID][]answers.Span
	served map[path.GroupID][]answers.Span
	until  int64 // what begins later was not kept

	refuted bool
	known   map[uint64]bool       // see waitsOrServes
	own     map[path.GroupID]Peer // see Of
}

type grouped struct {
	answers.Span
	group path.GroupID
}

// New returns a Sum to which nothing was added.
func New() *Sum { return new(Sum) }

// Part implements pass.Sum.
func (s *Sum) Part(stage *path.Stage) path.Adder {
	p := &part{stage: stage, until: math.MaxInt64, isSent: make(map[tracefmt.StackID]bool)}
	s.parts = append(s.parts, p)
	return p
}

// End implements pass.Ender: it forgets what is too many, by what all workers kept, so that it does not depend on who saw
// what.
func (s *Sum) End() {
	until := s.upTo()
	for _, list := range []func(*part) []grouped{waiting, serving} {
		var starts []int64
		for _, p := range s.parts {
			for _, g := range list(p) {
				if g.Start < until {
					starts = append(starts, g.Start)
				}
			}
		}
		if len(starts) > 2*maxKept {
			slices.Sort(starts)
			until = starts[maxKept]
		}
	}
	late := func(g grouped) bool { return g.Start >= until }
	for _, p := range s.parts {
		p.until, p.waits, p.served = until, slices.DeleteFunc(p.waits, late), slices.DeleteFunc(p.served, late)
	}
	s.look()
}

// upTo returns until when all workers kept what began.
func (s *Sum) upTo() int64 {
	until := int64(math.MaxInt64)
	for _, p := range s.parts {
		until = min(until, p.until)
	}
	return until
}

// A part is one worker's.
type part struct {
	stage         *path.Stage
	waits, served []grouped
	until         int64 // what begins later is not kept
	buf           []answers.WaitPart
	isSent        map[tracefmt.StackID]bool
}

func waiting(p *part) []grouped { return p.waits }
func serving(p *part) []grouped { return p.served }

// Add implements pass.Adder.
func (p *part) Add(w *path.Walked) {
	if w.Form == path.Glanced || w.Weight != 1 {
		p.until = min(p.until, w.Start) // from here on not every request is walked
		return
	}
	if !answers.IsWhole(w) {
		return
	}
	if r, ok := answers.AnswerSpan(w); ok {
		p.served = p.keep(p.served, grouped{r, w.Group})
	}
	answers.EachWait(w, p.buf, func(x answers.Span) {
		p.buf = x.Parts
		p.waits = p.keep(p.waits, grouped{x, w.Group})
	})
}

func (p *part) keep(list []grouped, g grouped) []grouped {
	if g.Start >= p.until {
		return list
	}
	g.Parts = slices.Clone(g.Parts)
	return append(list, g)
}

// Likely reports whether what was kept so far tells that requests wait for others of the process:
// what is kept later may still tell otherwise. No worker may be adding.
func (s *Sum) Likely() bool {
	ids := make(map[path.GroupKey]path.GroupID) // workers number groups each for themselves
	number := func(worker int, group path.GroupID) path.GroupID {
		key := s.parts[worker].stage.IDs.Group(group)
		id, ok := ids[key]
		if !ok {
			id = path.GroupID(len(ids))
			ids[key] = id
		}
		return id
	}
	now := Sum{refuted: s.refuted, waits: s.gather(waiting, number)}
	if len(now.waits) == 0 {
		return false
	}
	now.served = s.gather(serving, number)
	return slices.ContainsFunc(now.Waiting(), func(id path.GroupID) bool {
		p, ok := now.Of(id)
		return ok && p.Sure
	})
}

// Merge brings together what all workers kept, by the groups of the report.
func (s *Sum) Merge(ts []path.Translation) {
	number := func(worker int, group path.GroupID) path.GroupID { return ts[worker].Groups[group] }
	s.waits, s.served, s.until = s.gather(waiting, number), s.gather(serving, number), s.upTo()
	s.parts = nil
}

// gather returns what all workers kept, by the number that a worker's group gets.
func (s *Sum) gather(list func(*part) []grouped, number func(worker int, group path.GroupID) path.GroupID) map[path.GroupID][]answers.Span {
	all, until := make(map[path.GroupID][]answers.Span), s.upTo()
	for i, p := range s.parts {
		for _, g := range list(p) {
			if g.Start < until {
				id := number(i, g.group)
				all[id] = append(all[id], g.Span)
			}
		}
	}
	for _, spans := range all {
		answers.Sort(spans)
	}
	return all
}

// Waiting returns the groups of whose requests waits were kept.
func (s *Sum) Waiting() []path.GroupID { return slices.Sorted(maps.Keys(s.waits)) }

// mostAlso bounds the further groups that answer one group's waits.
const mostAlso = 4
