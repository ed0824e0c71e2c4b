// Package peers finds out whether a peer that requests wait for over the
// network is this process itself: a gateway that calls its own gRPC server over
// loopback, a handler that calls its own service. No event of a trace says which
// socket a goroutine waits for, but what is asked here is served here: nearly
// each wait of such requests has one request of another group in it, and moved by
// some time, the waits do not.
package peers

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/path"
	"github.com/whylate/whylate/internal/request"
)

// Bounds of what is kept and believed.
const (
	// maxKept bounds the waits and requests that one worker keeps: those that
	// begin first.
	maxKept = 1 << 12
	// joined is how long something else may go on in a wait, or as long as it was
	// so far: the reader of a connection that many requests share hands answers to
	// others, and the connection has frames of its own.
	joined = 200e3
	// A wait is at least so long, and there are so many of them.
	leastWait = 10e3
	fewest    = 20
	// inside is the part of a request that lies in the wait which it answers: it
	// may begin before the one who asks has gone to sleep, and end a little after
	// its answer was read.
	inside = 0.6
	// held is how many of the waits must have a request of their own in them, and
	// chance how many may have one if they are moved in time.
	held   = 0.9
	chance = 0.5
	// Where moved waits have as many, because always somebody waits, the numbers
	// must be the same, give or take this part, and so large.
	alike = 0.02
	many  = 200
)

// A Sum keeps waits and requests with their times. It implements pass.Sum.
type Sum struct {
	parts  []*part
	waits  map[path.GroupID][]span
	served map[path.GroupID][]span
	until  int64 // what begins later was not kept
}

// A span is a wait or a request.
type span struct {
	start, end int64
	// unseen is, of a request, how long its message may have lain unread before it
	// began; of a wait, how much of its end nobody looked or a CPU was waited for.
	unseen int64
}

type grouped struct {
	span
	group path.GroupID
}

// New returns a Sum to which nothing was added.
func New() *Sum { return new(Sum) }

// Part implements pass.Sum.
func (s *Sum) Part(*path.Stage) path.Adder {
	p := &part{until: math.MaxInt64}
	s.parts = append(s.parts, p)
	return p
}

// Begin implements pass.Sum.
func (s *Sum) Begin([]request.Request) {}

// End implements pass.Sum.
func (s *Sum) End() {}

// A part is one worker's.
type part struct {
	waits, served []grouped
	until         int64 // what begins later is not kept
}

// Add implements pass.Adder.
func (p *part) Add(w *path.Walked) {
	if w.Form == path.Glanced || w.Weight != 1 {
		p.until = min(p.until, w.Start) // from here on not every request is walked
		return
	}
	if w.Observer || w.Req.Open || w.Form != path.Whole {
		return
	}
	switch w.Req.Kind {
	case request.Mark, request.HTTP1, request.HTTP2, request.GRPC, request.WebSocket:
		p.served = p.keep(p.served, grouped{span{w.Start, w.Req.End, w.Gap}, w.Group})
	}
	var last span
	done := func() {
		if last.end-last.start >= leastWait {
			p.waits = p.keep(p.waits, grouped{last, w.Group})
		}
	}
	for i := range w.Segments {
		s := &w.Segments[i]
		switch s.Code.Cause() {
		case cause.SchedPoll, cause.Sched, cause.SchedWake:
			// What has come is not read before a CPU runs who waits.
			if last.end != 0 && s.Start == last.end {
				last.end, last.unseen = s.End, last.unseen+s.End-s.Start
			}
		case cause.Network:
			if s.Inbound {
				continue
			}
			if last.end == 0 || s.Start-last.end > max(joined, last.end-last.start) {
				done()
				last = span{start: s.Start}
			}
			last.end, last.unseen = s.End, 0
		}
	}
	done()
}

func (p *part) keep(list []grouped, g grouped) []grouped {
	if g.start >= p.until {
		return list
	}
	if list = append(list, g); len(list) < maxKept {
		return list
	}
	starts := make([]int64, len(list))
	for i := range list {
		starts[i] = list[i].start
	}
	slices.Sort(starts)
	p.until = starts[len(starts)/2]
	return slices.DeleteFunc(list, func(g grouped) bool { return g.start >= p.until })
}

// Merge brings together what all workers kept, by the groups of the report.
func (s *Sum) Merge(ts []path.Translation) {
	s.waits, s.served = make(map[path.GroupID][]span), make(map[path.GroupID][]span)
	until := int64(math.MaxInt64)
	for _, p := range s.parts {
		until = min(until, p.until)
	}
	s.until = until
	for i, p := range s.parts {
		for _, of := range []struct {
			from []grouped
			to   map[path.GroupID][]span
		}{{p.waits, s.waits}, {p.served, s.served}} {
			for _, g := range of.from {
				if g.start < until {
					id := ts[i].Groups[g.group]
					of.to[id] = append(of.to[id], g.span)
				}
			}
		}
	}
	for _, m := range []map[path.GroupID][]span{s.waits, s.served} {
		for _, list := range m {
			slices.SortFunc(list, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
		}
	}
	s.parts = nil
}

// A Peer is the group that serves what another one waits for.
type Peer struct {
	Group path.GroupID
	// Waits is how many there were, Held in how many of them one request of the
	// group lay, and ByChance the part of them that have one if moved in time.
	Waits, Held int
	ByChance    float64
	// WaitNS is what the waits took. Of those that hold a request, ServedNS is what
	// these had, ThereNS what went before them and BackNS what came after: of the
	// first, messages may have lain unread for UnseenNS, and of the second whoever
	// waited was not run for LateNS.
	WaitNS, ServedNS, ThereNS, BackNS, UnseenNS, LateNS int64
	Confidence                                          float64
}

// Of returns the group that serves what requests of a group wait for; ok is
// false where there is none, or too little tells.
func (s *Sum) Of(id path.GroupID) (best Peer, ok bool) {
	waits := s.waits[id]
	if len(waits) < fewest {
		return best, false
	}
	ids := make([]path.GroupID, 0, len(s.served))
	for other := range s.served {
		if other != id {
			ids = append(ids, other)
		}
	}
	slices.Sort(ids)
	for _, other := range ids {
		// Of several, one may call the next: the one that takes most of the waits is
		// what was called.
		if p := compare(waits, s.served[other]); p.Confidence > 0 && (!ok || p.ServedNS > best.ServedNS) {
			p.Group = other
			best, ok = p, true
		}
	}
	return best, ok
}

// compare holds waits against requests.
func compare(waits, served []span) Peer {
	p := Peer{Waits: len(waits)}
	if len(served) < fewest {
		return p
	}
	for _, w := range waits {
		p.WaitNS += w.end - w.start
	}
	p.Held = match(waits, served, 0, func(w, r span) {
		p.ServedNS += min(w.end, r.end) - max(w.start, r.start)
		p.ThereNS += max(0, r.start-w.start)
		p.BackNS += max(0, w.end-r.end)
		p.UnseenNS += min(max(0, r.start-w.start), max(0, r.unseen))
		p.LateNS += min(max(0, w.end-r.end), w.unseen)
	})
	fits := float64(p.Held) / float64(len(waits))
	if fits < held {
		return p
	}
	// How often they are about as far apart as the shifts are from each other is
	// another matter for each of these.
	apart := float64(waits[len(waits)-1].start-waits[0].start) / float64(len(waits))
	for _, by := range []float64{1.37, -1.91, 2.71, -3.33, 4.19} {
		n := match(waits, served, int64(by*apart), func(w, r span) {})
		p.ByChance += float64(n) / float64(len(waits)) / 5
	}
	few, all := float64(min(len(waits), len(served))), float64(max(len(waits), len(served)))
	switch {
	case p.ByChance <= chance:
		p.Confidence = min(0.95, fits*(1-p.ByChance*p.ByChance))
	case len(waits) >= many && all-few <= alike*all:
		p.Confidence = 0.6
	}
	return p
}

// match gives each wait, moved in time by some ns, one request that lies in it,
// tells of each, and returns how many have one.
func match(waits, served []span, by int64, found func(w, r span)) (n int) {
	var open []span // waits that may still have one, by their ends
	next := 0
	for _, r := range served {
		took := r.end - r.start
		for ; next < len(waits) && waits[next].start+by < r.end; next++ {
			w := waits[next]
			w.start, w.end = w.start+by, w.end+by
			at, _ := slices.BinarySearchFunc(open, w.end, func(o span, end int64) int { return cmp.Compare(o.end, end) })
			open = slices.Insert(open, at, w)
		}
		gone, _ := slices.BinarySearchFunc(open, r.start, func(o span, t int64) int { return cmp.Compare(o.end, t) })
		open = open[gone:]
		for i, w := range open {
			if in := min(w.end, r.end) - max(w.start, r.start); in > 0 && float64(in) >= inside*float64(took) {
				n++
				found(w, r)
				open = slices.Delete(open, i, i+1)
				break
			}
		}
	}
	return n
}
