package timeline

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// noProc is a thread without a P.
const noProc = ^uint32(0)

// A ProcEvent is what a thread wrote of a P.
type ProcEvent struct {
	Time   int64
	M      uint64
	P, seq uint32
	Change ProcChange
}

// ProcChange is what happened to a P, or what state it was said to be in.
type ProcChange uint8

// Changes and states of a P in a [ProcEvent].
const (
	ProcTaken           ProcChange = iota // the thread took it
	ProcReleased                          // the thread let it go
	ProcStolen                            // the thread took it away from another one in a system call
	ProcAbandoned                         // the thread let it go on its way back to C
	procStatus                            // and the status itself:
	ProcStatusRunning   = procStatus + ProcChange(tracefmt.ProcRunning)
	ProcStatusIdle      = procStatus + ProcChange(tracefmt.ProcIdle)
	ProcStatusSyscall   = procStatus + ProcChange(tracefmt.ProcSyscall) // it is held by the thread, which is in a system call
	ProcStatusAbandoned = procStatus + ProcChange(tracefmt.ProcSyscallAbandoned)
)

// isHeld reports whether a P is held after a change, false for a status that there is not.
func (c ProcChange) isHeld() (held, ok bool) {
	switch c {
	case ProcTaken, ProcStatusRunning, ProcStatusSyscall:
		return true, true
	case ProcReleased, ProcStolen, ProcAbandoned, ProcStatusIdle, ProcStatusAbandoned:
		return false, true
	}
	return false, false
}

// A ProcTransition is one change of a P's state, or, where Status is set, the
// repetition of its state at the start of a generation. A P whose goroutine is
// in a system call counts as running until it stops or is taken away.
type ProcTransition struct {
	Time            int64
	P               uint32
	Running, Status bool
}

// dropStaleAbandons removes from evs where a thread on its way back to C let go
// a P that had been stolen from it before: there was nothing left to let go,
// and somebody else may have the P by then.
func dropStaleAbandons(evs []ProcEvent) []ProcEvent {
	if !slices.ContainsFunc(evs, func(e ProcEvent) bool { return e.Change == ProcAbandoned }) {
		return evs
	}
	stolen := make(map[[2]uint32]ProcEvent)
	for _, e := range evs {
		if e.Change == ProcStolen {
			stolen[[2]uint32{e.P, e.seq}] = e
		}
	}
	return slices.DeleteFunc(evs, func(e ProcEvent) bool {
		s, ok := stolen[[2]uint32{e.P, e.seq + 1}]
		// On one thread the stream says what came first, whatever the times.
		return e.Change == ProcAbandoned && ok && s.Time < e.Time && s.M != e.M
	})
}

// ProcTransitions returns the changes of every P's state, P by P in their
// true order. It allocates; meant for tests.
func (g *Gen) ProcTransitions() []ProcTransition {
	evs := slices.Clone(g.ProcEvents)
	// The trace numbers starts, thefts and system calls of a P; a stop follows
	// what its thread saw last of the P.
	rank := func(e ProcEvent) int {
		if e.Change == ProcReleased || e.Change == ProcAbandoned {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(evs, func(a, b ProcEvent) int {
		return cmp.Or(cmp.Compare(a.P, b.P), cmp.Compare(a.seq, b.seq), rank(a)-rank(b), cmp.Compare(a.Time, b.Time))
	})
	out := make([]ProcTransition, 0, len(evs))
	for _, e := range evs {
		held, _ := e.Change.isHeld()
		out = append(out, ProcTransition{e.Time, e.P, held, e.Change >= procStatus})
	}
	return out
}

// idleTime is when Ps stood idle, worked out when it is first asked for.
type idleTime struct {
	idleOnce sync.Once
	idle     idleIntervals
}

func (t *idleTime) reset() { *t = idleTime{} }

// idleIntervals answers for how long at least one P stood idle between two times.
type idleIntervals struct {
	starts     []int64 // starts of the stretches with an idle P
	ends       []int64
	idleBefore []int64 // idle time before from[i]
}

// buildIdle walks the changes of all Ps in order of time. Ps that the
// generation never names (beyond GOMAXPROCS, or idle throughout in a trace
// that does not say so) do not count.
func (g *Gen) buildIdle() {
	evs := slices.Clone(g.ProcEvents)
	slices.SortFunc(evs, func(a, b ProcEvent) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.P, b.P), cmp.Compare(a.seq, b.seq), cmp.Compare(a.Change, b.Change))
	})
	idle := map[uint32]bool{}
	// The state before a P's first change is known from that change.
	n := 0
	for _, e := range evs {
		if _, ok := idle[e.P]; ok {
			continue
		}
		idle[e.P] = e.Change == ProcTaken || e.Change == ProcStatusIdle || e.Change == ProcStatusAbandoned
		if idle[e.P] {
			n++
		}
	}
	f := &g.idle
	if n > 0 {
		f.begin(g.Base)
	}
	for _, e := range evs {
		held, ok := e.Change.isHeld()
		if !ok || idle[e.P] == !held {
			continue
		}
		if idle[e.P] = !held; held {
			if n--; n == 0 {
				f.end(e.Time)
			}
		} else if n++; n == 1 {
			f.begin(e.Time)
		}
	}
	if len(f.ends) < len(f.starts) {
		f.end(max(g.End, f.starts[len(f.starts)-1]))
	}
}

func (f *idleIntervals) begin(t int64) {
	sum := int64(0)
	if k := len(f.starts) - 1; k >= 0 {
		sum = f.idleBefore[k] + f.ends[k] - f.starts[k]
	}
	f.starts = append(f.starts, t)
	f.idleBefore = append(f.idleBefore, sum)
}

func (f *idleIntervals) end(t int64) { f.ends = append(f.ends, t) }

// totalBefore returns the idle time before t.
func (f *idleIntervals) totalBefore(t int64) int64 {
	i, _ := slices.BinarySearch(f.starts, t)
	// from[i-1] < t
	if i == 0 {
		return 0
	}
	return f.idleBefore[i-1] + min(t, f.ends[i-1]) - f.starts[i-1]
}

// lastIdle returns the last instant not after t at which a P stood idle.
func (f *idleIntervals) lastIdle(t int64) (int64, bool) {
	i, found := slices.BinarySearch(f.starts, t)
	if found {
		return t, true
	}
	if i == 0 {
		return 0, false
	}
	return min(t, f.ends[i-1]), true
}

// IdleTime returns for how long, between from and to, at least one P stood idle.
func (g *Gen) IdleTime(from, to int64) int64 {
	g.idleOnce.Do(g.buildIdle)
	if to <= from {
		return 0
	}
	return g.idle.totalBefore(to) - g.idle.totalBefore(from)
}

// IdleIntervals calls f for every stretch between from and to in which at
// least one P stood idle, until f returns false.
func (g *Gen) IdleIntervals(from, to int64, f func(a, b int64) bool) {
	g.idleOnce.Do(g.buildIdle)
	i, _ := slices.BinarySearch(g.idle.ends, from)
	for ; i < len(g.idle.starts) && g.idle.starts[i] < to; i++ {
		if a, b := max(from, g.idle.starts[i]), min(to, g.idle.ends[i]); a < b && !f(a, b) {
			return
		}
	}
}
