package freeze

import (
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// noP is the P of a thread without a P.
const noP = math.MaxUint32

// A procHold is an interval in which a thread held a P, according to the thread's own events.
type procHold struct {
	p         uint32
	inSyscall bool  // the status of the P says that the thread was in a system call
	takenAt   int64 // when the thread took the P, or when its status was written
	from, to  int64
}

// procHolds are the intervals of a generation, longer than a silence, in which threads held Ps.
type procHolds struct {
	byThread map[uint64][]procHold // in order of time
	// stolenAt has the times at which a P was stolen from a thread in a system call, by P.
	stolenAt map[uint32][]int64
}

// procHoldsOf returns the intervals of a generation, longer than minNS, in which threads held Ps, from the events that acquire,
// release and steal Ps.
func procHoldsOf(g *timeline.Gen, minNS int64) procHolds {
	holds := procHolds{byThread: make(map[uint64][]procHold), stolenAt: make(map[uint32][]int64)}
	hold := procHold{p: noP}
	// endHold adds the current hold of thread m, which ends at to.
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
				hold.from = math.MinInt64 // a status: the hold began before the generation
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

// countThread counts thread m, which runs no goroutine, in a silence if the thread held a P throughout the silence, and an
// event of the thread or the theft of its P follows within resumeNS. gap is the thread's gap in the trace around the silence.
func (h *procHolds) countThread(silence *silence, m uint64, gap *timeline.Gap) {
	list := h.byThread[m]
	i := sort.Search(len(list), func(i int) bool { return list[i].to > silence.Start })
	if i == len(list) || list[i].from > silence.Start {
		return
	}
	hold := &list[i]
	next := hold.to
	if hold.takenAt >= silence.End {
		next = hold.takenAt // the hold begins with a status, the thread's first event of the generation
	}
	if gap.Ended {
		next = min(next, gap.To)
	}
	// A thread in a system call writes no event when its P is stolen.
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
