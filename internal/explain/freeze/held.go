package freeze

import (
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// noP is a thread that holds no P.
const noP = math.MaxUint32

// A holding is a stretch in which a thread holds a P, by its own account,
// between two of its events about Ps.
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
}

// holdingsOf finds who holds a P for longer than least.
func holdingsOf(g *timeline.Gen, least int64) holdings {
	h := holdings{of: make(map[uint64][]holding), thefts: make(map[uint32][]int64)}
	x := holding{p: noP}
	// until says that a thread held x until to.
	until := func(m uint64, to int64) {
		if x.p == noP {
			return
		}
		if x.to = to; x.from == math.MinInt64 || x.to-x.from > least {
			h.of[m] = append(h.of[m], x)
			h.thefts[x.p] = nil
		}
	}
	m, first := uint64(0), true
	for _, e := range g.ProcEvents {
		if first || e.M != m {
			until(m, math.MaxInt64)
			x.p, m, first = noP, e.M, true
		} else {
			until(m, e.Time)
		}
		x.from = e.Time
		switch e.What {
		case timeline.ProcTaken:
			x.p, x.call, x.taken = e.P, false, e.Time
		case timeline.ProcRuns, timeline.ProcInCall:
			x.p, x.call, x.taken = e.P, e.What == timeline.ProcInCall, e.Time
			if first {
				x.from = math.MinInt64 // it repeats what was so before
			}
		case timeline.ProcLetGo, timeline.ProcAbandoned:
			x.p = noP
		case timeline.ProcStolen:
			if e.P == x.p {
				x.p = noP
			}
		}
		first = false
	}
	until(m, math.MaxInt64)
	for _, e := range g.ProcEvents {
		if e.What != timeline.ProcStolen {
			continue
		}
		if at, ok := h.thefts[e.P]; ok {
			h.thefts[e.P] = append(at, e.Time)
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
func (h *holdings) count(s *silence, m uint64, in *timeline.Gap) {
	list := h.of[m]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > s.Start })
	if i == len(list) || list[i].from > s.Start {
		return
	}
	x := &list[i]
	next := x.to
	if x.taken >= s.End {
		next = x.taken // a status, its first event in this generation
	}
	if in.Ended {
		next = min(next, in.To)
	}
	// A thread in a system call does not know that its P is taken.
	at := h.thefts[x.p]
	if i, _ := slices.BinarySearch(at, x.taken+1); i < len(at) {
		if at[i] < s.End {
			return
		}
		next = min(next, at[i])
	}
	switch {
	case next-s.End > resumeNS:
	case in.Called || x.call:
		s.Called++
	default:
		s.Between++
	}
}
