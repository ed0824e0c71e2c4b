package timeline

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// noProc is the P of a thread that holds none.
const noProc = ^uint32(0)

// A ProcEvent is an event in which a thread acquires, releases or steals a P, or the status of a P.
type ProcEvent struct {
	Time   int64
	M      uint64
	P, seq uint32
	Change ProcChange
}

// A ProcChange is a change of a P, or its state in a status event.
type ProcChange uint8

// Changes and states of a P in a [ProcEvent].
const (
	ProcTaken           ProcChange = iota // the thread took the P
	ProcReleased                          // the thread released it
	ProcStolen                            // the thread took it from another thread, which was in a system call
	ProcAbandoned                         // the thread released it when it returned to C
	procStatus                            // a status event; the values below add the status
	ProcStatusRunning   = procStatus + ProcChange(tracefmt.ProcRunning)
	ProcStatusIdle      = procStatus + ProcChange(tracefmt.ProcIdle)
	ProcStatusSyscall   = procStatus + ProcChange(tracefmt.ProcSyscall) // a thread holds it while it is in a system call
	ProcStatusAbandoned = procStatus + ProcChange(tracefmt.ProcSyscallAbandoned)
)

// isHeld reports whether a thread holds the P after the change. ok is false for an unknown status.
func (c ProcChange) isHeld() (held, ok bool) {
	switch c {
	case ProcTaken, ProcStatusRunning, ProcStatusSyscall:
		return true, true
	case ProcReleased, ProcStolen, ProcAbandoned, ProcStatusIdle, ProcStatusAbandoned:
		return false, true
	}
	return false, false
}

// A ProcTransition is one change of a P's state or, with Status, the repetition of its state at the start of a
// generation. A P whose goroutine is in a system call counts as running until it stops or another thread takes it.
type ProcTransition struct {
	Time            int64
	P               uint32
	Running, Status bool
}

// dropStaleAbandons removes the events in which a thread that returned to C released a P that another thread had stolen before:
// the thread no longer held it, and a third thread may hold it by then.
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
		// On one thread the stream determines the order, whatever the times are.
		return e.Change == ProcAbandoned && ok && s.Time < e.Time && s.M != e.M
	})
}

// ProcTransitions returns the changes of each P's state, P by P, in their true order. It allocates, and only tests
// use it.
func (g *Gen) ProcTransitions() []ProcTransition {
	evs := slices.Clone(g.ProcEvents)
	// The trace numbers the starts, thefts and system calls of a P; a stop follows the last numbered event
	// that its thread saw.
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

// idleTime holds the intervals in which a P was idle, computed on the first use.
type idleTime struct {
	idleOnce sync.Once
	idle     idleIntervals
}

func (t *idleTime) reset() { *t = idleTime{} }

// idleIntervals are the intervals with at least one idle P.
type idleIntervals struct {
	starts     []int64 // begins of the intervals
	ends       []int64
	idleBefore []int64 // idle time before starts[i]
	noneHeldNS int64   // time in which all Ps were idle
}

// buildIdle computes the intervals in which at least one P was idle, from the changes of all Ps in order of time. Ps that the
// generation never names do not count: those beyond GOMAXPROCS, and those that are idle all the time in a trace without their
// status.
func (g *Gen) buildIdle() {
	if g.PsUnknown {
		return
	}
	evs := slices.Clone(g.ProcEvents)
	slices.SortFunc(evs, func(a, b ProcEvent) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.P, b.P), cmp.Compare(a.seq, b.seq), cmp.Compare(a.Change, b.Change))
	})
	idle := map[uint32]bool{}
	// The first change of a P shows its state before.
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
	lastChange := g.Base
	addNoneHeld := func(t int64) {
		if n == len(idle) {
			f.noneHeldNS += max(t-lastChange, 0)
		}
		lastChange = t
	}
	for _, e := range evs {
		held, ok := e.Change.isHeld()
		if !ok || idle[e.P] == !held {
			continue
		}
		addNoneHeld(e.Time)
		if idle[e.P] = !held; held {
			if n--; n == 0 {
				f.end(e.Time)
			}
		} else if n++; n == 1 {
			f.begin(e.Time)
		}
	}
	addNoneHeld(g.End)
	if len(f.ends) < len(f.starts) {
		f.end(max(g.End, f.starts[len(f.starts)-1]))
	}
}

// begin starts an interval at t.
func (f *idleIntervals) begin(t int64) {
	sum := int64(0)
	if k := len(f.starts) - 1; k >= 0 {
		sum = f.idleBefore[k] + f.ends[k] - f.starts[k]
	}
	f.starts = append(f.starts, t)
	f.idleBefore = append(f.idleBefore, sum)
}

// end ends the last interval at t.
func (f *idleIntervals) end(t int64) { f.ends = append(f.ends, t) }

// totalBefore returns the length of all intervals before t, in ns.
func (f *idleIntervals) totalBefore(t int64) int64 {
	i, _ := slices.BinarySearch(f.starts, t)
	// starts[i-1] < t
	if i == 0 {
		return 0
	}
	return f.idleBefore[i-1] + min(t, f.ends[i-1]) - f.starts[i-1]
}

// lastIdle returns the last instant at or before t at which a P was idle; false if there was none.
func (f *idleIntervals) lastIdle(t int64) (idleTime int64, ok bool) {
	i, found := slices.BinarySearch(f.starts, t)
	if found {
		return t, true
	}
	if i == 0 {
		return 0, false
	}
	return min(t, f.ends[i-1]), true
}

// IdleTime returns the time between from and to in which at least one P was idle, in ns.
func (g *Gen) IdleTime(from, to int64) int64 {
	g.idleOnce.Do(g.buildIdle)
	if to <= from {
		return 0
	}
	return g.idle.totalBefore(to) - g.idle.totalBefore(from)
}

// NoneHeldTime returns the time in which no thread held a P: the process was idle. If the trace does not show Ps, it returns
// the length of the generation.
func (g *Gen) NoneHeldTime() int64 {
	if g.PsUnknown {
		return g.End - g.Base
	}
	g.idleOnce.Do(g.buildIdle)
	return g.idle.noneHeldNS
}

// IdleIntervals calls f for each interval within [from, to) in which at least one P was idle, until f returns false.
func (g *Gen) IdleIntervals(from, to int64, f func(a, b int64) bool) {
	g.idleOnce.Do(g.buildIdle)
	i, _ := slices.BinarySearch(g.idle.ends, from)
	for ; i < len(g.idle.starts) && g.idle.starts[i] < to; i++ {
		if a, b := max(from, g.idle.starts[i]), min(to, g.idle.ends[i]); a < b && !f(a, b) {
			return
		}
	}
}
