package timeline

import (
	"math"
	"slices"
	"sort"
)

// A holding is a stretch in which a thread holds a P, by its own account,
// between two of its events about Ps. Times are since the generation's base.
type holding struct {
	p        uint32
	call     bool  // in a system call, said the P's status
	taken    int64 // the P was taken then, or its status told
	from, to int64
}

// holdings are those longer than a silence.
type holdings struct {
	of map[uint64][]holding // by thread, in order
	// thefts tells when a P was taken from a thread in a system call.
	thefts map[uint32][]int64
	base   int64
}

// holdings finds who holds a P for longer than least. g.procs has the threads
// one after the other, each in its own order.
func (g *Gen) holdings(least int64) holdings {
	h := holdings{of: make(map[uint64][]holding), thefts: make(map[uint32][]int64), base: g.Base}
	x := holding{p: noProc}
	for i := range g.procs {
		e := &g.procs[i]
		first := i == 0 || g.procs[i-1].m != e.m
		if first {
			x.p = noProc
		}
		x.from, x.to = e.t, math.MaxInt64
		if i+1 < len(g.procs) && g.procs[i+1].m == e.m {
			x.to = g.procs[i+1].t
		}
		switch {
		case e.kind == procStart:
			x.p, x.call, x.taken = e.p, false, e.t
		case e.kind == procStatus+1 || e.kind == procStatus+3:
			x.p, x.call, x.taken = e.p, e.kind == procStatus+3, e.t
			if first {
				x.from = math.MinInt64 // it repeats what was so before
			}
		case e.kind == procStop, e.kind == procAbandon, e.kind == procSteal && e.p == x.p:
			x.p = noProc
		}
		if x.p != noProc && (x.from < 0 || x.to-x.from > least) {
			h.of[e.m] = append(h.of[e.m], x)
			h.thefts[x.p] = nil
		}
	}
	for i := range g.procs {
		e := &g.procs[i]
		if e.kind != procSteal {
			continue
		}
		if at, ok := h.thefts[e.p]; ok {
			h.thefts[e.p] = append(at, e.t)
		}
	}
	for _, at := range h.thefts {
		slices.Sort(at)
	}
	return h
}

// count adds a thread that runs no goroutine's code in a silence, if it holds
// a P and it, or who takes the P from it, writes an event soon after. Silences
// are cut at all events about Ps.
func (h *holdings) count(s *Silence, m uint64, in *gap) {
	start, end := s.Start-h.base, s.End-h.base
	list := h.of[m]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > start })
	if i == len(list) || list[i].from > start {
		return
	}
	x := &list[i]
	next := x.to
	if x.taken >= end {
		next = x.taken // a status, its first event in this generation
	}
	if in.ended != 0 {
		next = min(next, in.to)
	}
	// A thread in a system call does not know that its P is taken.
	at := h.thefts[x.p]
	if i, _ := slices.BinarySearch(at, x.taken+1); i < len(at) {
		if at[i] < end {
			return
		}
		next = min(next, at[i])
	}
	switch {
	case next-end > ResumeNS:
	case in.called || x.call:
		s.Called++
	default:
		s.Between++
	}
}
