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
type procHold struct {
	p         uint32
	inSyscall bool  // in a system call, said the P's status
	takenAt   int64 // the P was taken then, or its status told
	from, to  int64
}

// procHolds are those longer than a silence.
type procHolds struct {
	byThread map[uint64][]procHold // by thread, in order
	// stolenAt tells when a P was taken from a thread in a system call.
	stolenAt map[uint32][]int64
}

// procHoldsOf finds who holds a P for longer than least.
func procHoldsOf(g *timeline.Gen, minNS int64) procHolds {
	holds := procHolds{byThread: make(map[uint64][]procHold), stolenAt: make(map[uint32][]int64)}
	hold := procHold{p: noP}
	// until says that a thread held x until to.
	endHold := func(m uint64, to int64) {
		if hold.p == noP {
			return
		}
		if hold.to = to; hold.from == math.MinInt64 || hold.to-hold.from > minNS {
			holds.byThread[m] = append(holds.byThread[m], hold)
			holds.stolenAt[hold.p] = nil
		}
	}
	m, first := uint64(0), true
	for _, e := range g.ProcEvents {
		if first || e.M != m {
			endHold(m, math.MaxInt64)
			hold.p, m, first = noP, e.M, true
		} else {
			endHold(m, e.Time)
		}
		hold.from = e.Time
		switch e.Change {
		case timeline.ProcTaken:
			hold.p, hold.inSyscall, hold.takenAt = e.P, false, e.Time
		case timeline.ProcStatusRunning, timeline.ProcStatusSyscall:
			hold.p, hold.inSyscall, hold.takenAt = e.P, e.Change == timeline.ProcStatusSyscall, e.Time
			if first {
				hold.from = math.MinInt64 // it repeats what was so before
			}
		case timeline.ProcReleased, timeline.ProcAbandoned:
			hold.p = noP
		case timeline.ProcStolen:
			if e.P == hold.p {
				hold.p = noP
			}
		}
		first = false
	}
	endHold(m, math.MaxInt64)
	for _, e := range g.ProcEvents {
		if e.Change != timeline.ProcStolen {
			continue
		}
		if times, ok := holds.stolenAt[e.P]; ok {
			holds.stolenAt[e.P] = append(times, e.Time)
		}
	}
	for _, times := range holds.stolenAt {
		slices.Sort(times)
	}
	return holds
}

// countThread adds a thread that runs no goroutine's code in a silence, if it holds
// a P and it, or who takes the P from it, writes an event soon after. Silences
// are cut at all events about Ps.
func (h *procHolds) countThread(silence *silence, m uint64, gap *timeline.Gap) {
	list := h.byThread[m]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > silence.Start })
	if i == len(list) || list[i].from > silence.Start {
		return
	}
	hold := &list[i]
	next := hold.to
	if hold.takenAt >= silence.End {
		next = hold.takenAt // a status, its first event in this generation
	}
	if gap.Ended {
		next = min(next, gap.To)
	}
	// A thread in a system call does not know that its P is taken.
	stolen := h.stolenAt[hold.p]
	if i, _ := slices.BinarySearch(stolen, hold.takenAt+1); i < len(stolen) {
		if stolen[i] < silence.End {
			return
		}
		next = min(next, stolen[i])
	}
	switch {
	case next-silence.End > resumeNS:
	case gap.Called || hold.inSyscall:
		silence.InSyscall++
	default:
		silence.InScheduler++
	}
}
