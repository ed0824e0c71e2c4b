package timeline

import (
	"cmp"
	"iter"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// noProc is a thread without a P.
const noProc = ^uint32(0)

// A procEvent is a change of a P's state, in the order found.
type procEvent struct {
	t      int64
	p, seq uint32
	kind   uint8
	m      uint64
}

// Kinds of procEvent. A status is procStatus plus the status itself.
const (
	procStart uint8 = iota
	procStop
	procSteal
	// procAbandon: a thread that returns to C releases the P.
	procAbandon
	procStatus
)

// A ProcEvent is what a thread wrote of a P.
type ProcEvent struct {
	Time int64
	P    uint32
	M    uint64
	What ProcChange
}

// ProcChange is what happened to a P, or what state it was said to be in.
type ProcChange uint8

// Changes and states of a P in a [ProcEvent].
const (
	ProcTaken  ProcChange = iota // the thread took it
	ProcLetGo                    // the thread let it go
	ProcStolen                   // the thread took it away from another one in a system call
	ProcRuns                     // it runs on the thread
	ProcInCall                   // it is held by the thread, which is in a system call
	ProcOther                    // it is held by nobody
)

// ProcEvents yields the events about Ps, thread by thread, each in its own order.
func (g *Gen) ProcEvents() iter.Seq[ProcEvent] {
	return func(yield func(ProcEvent) bool) {
		for i := range g.procs {
			e := &g.procs[i]
			out := ProcEvent{g.Base + e.t, e.p, e.m, ProcOther}
			switch e.kind {
			case procStart:
				out.What = ProcTaken
			case procStop, procAbandon:
				out.What = ProcLetGo
			case procSteal:
				out.What = ProcStolen
			case procStatus + uint8(tracefmt.ProcRunning):
				out.What = ProcRuns
			case procStatus + uint8(tracefmt.ProcSyscall):
				out.What = ProcInCall
			}
			if !yield(out) {
				return
			}
		}
	}
}

// ProcState is the state of a P.
type ProcState uint8

// States of a P. A P whose goroutine is in a system call counts as running
// until it stops or is taken away.
const (
	ProcUndetermined ProcState = iota
	ProcRunning
	ProcIdle
)

// A ProcTransition is one change of a P's state, or, where Status is set, the
// repetition of its state at the start of a generation.
type ProcTransition struct {
	Time   int64
	P      uint32
	State  ProcState
	Status bool
}

// dropStaleAbandons removes from evs where a thread on its way back to C let go
// a P that had been stolen from it before: there was nothing left to let go,
// and somebody else may have the P by then.
func dropStaleAbandons(evs []procEvent) []procEvent {
	if !slices.ContainsFunc(evs, func(e procEvent) bool { return e.kind == procAbandon }) {
		return evs
	}
	stolen := make(map[[2]uint32]procEvent)
	for _, e := range evs {
		if e.kind == procSteal {
			stolen[[2]uint32{e.p, e.seq}] = e
		}
	}
	return slices.DeleteFunc(evs, func(e procEvent) bool {
		s, ok := stolen[[2]uint32{e.p, e.seq + 1}]
		// On one thread the stream says what came first, whatever the times.
		return e.kind == procAbandon && ok && s.t < e.t && s.m != e.m
	})
}

// ProcTransitions returns the changes of every P's state, P by P in their
// true order. It allocates; meant for tests and views.
func (g *Gen) ProcTransitions() []ProcTransition {
	evs := slices.Clone(g.procs)
	// The trace numbers starts, thefts and system calls of a P; a stop follows
	// what its thread saw last of the P.
	rank := func(e procEvent) int {
		if e.kind == procStop || e.kind == procAbandon {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(evs, func(a, b procEvent) int {
		return cmp.Or(cmp.Compare(a.p, b.p), cmp.Compare(a.seq, b.seq), rank(a)-rank(b), cmp.Compare(a.t, b.t))
	})
	out := make([]ProcTransition, 0, len(evs))
	for _, e := range evs {
		tr := ProcTransition{Time: g.Base + e.t, P: e.p}
		switch e.kind {
		case procStart:
			tr.State = ProcRunning
		case procStop, procSteal, procAbandon:
			tr.State = ProcIdle
		default:
			tr.Status = true
			switch uint64(e.kind - procStatus) {
			case tracefmt.ProcRunning, tracefmt.ProcSyscall:
				tr.State = ProcRunning
			case tracefmt.ProcIdle, tracefmt.ProcSyscallAbandoned:
				tr.State = ProcIdle
			}
		}
		out = append(out, tr)
	}
	return out
}

// idleTime is when Ps stood idle, worked out when it is first asked for.
type idleTime struct {
	idleOnce sync.Once
	idle     idleFunc
}

func (t *idleTime) reset() { *t = idleTime{} }

// idleFunc answers for how long at least one P stood idle between two times.
type idleFunc struct {
	from []int64 // starts of the stretches with an idle P
	to   []int64
	sum  []int64 // idle time before from[i]
}

// buildIdle walks the changes of all Ps in order of time. Ps that the
// generation never names (beyond GOMAXPROCS, or idle throughout in a trace
// that does not say so) do not count.
func (g *Gen) buildIdle() {
	evs := slices.Clone(g.procs)
	slices.SortFunc(evs, func(a, b procEvent) int {
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.p, b.p), cmp.Compare(a.seq, b.seq), cmp.Compare(a.kind, b.kind))
	})
	idle := map[uint32]bool{}
	// The state before a P's first change is known from that change.
	n := 0
	first := map[uint32]bool{}
	for _, e := range evs {
		if first[e.p] {
			continue
		}
		first[e.p] = true
		switch {
		case e.kind == procStart, e.kind == procStatus+2, e.kind == procStatus+4:
			idle[e.p] = true
			n++
		}
	}
	f := &g.idle
	if n > 0 {
		f.open(g.Base)
	}
	set := func(p uint32, v bool, t int64) {
		if idle[p] == v {
			return
		}
		idle[p] = v
		if v {
			if n++; n == 1 {
				f.open(t)
			}
		} else if n--; n == 0 {
			f.shut(t)
		}
	}
	for _, e := range evs {
		t := g.Base + e.t
		switch e.kind {
		case procStart, procStatus + 1, procStatus + 3:
			set(e.p, false, t)
		case procStop, procSteal, procAbandon, procStatus + 2, procStatus + 4:
			set(e.p, true, t)
		}
	}
	if len(f.to) < len(f.from) {
		f.shut(max(g.End, f.from[len(f.from)-1]))
	}
}

func (f *idleFunc) open(t int64) {
	sum := int64(0)
	if k := len(f.from) - 1; k >= 0 {
		sum = f.sum[k] + f.to[k] - f.from[k]
	}
	f.from = append(f.from, t)
	f.sum = append(f.sum, sum)
}

func (f *idleFunc) shut(t int64) { f.to = append(f.to, t) }

// before returns the idle time before t.
func (f *idleFunc) before(t int64) int64 {
	i, _ := slices.BinarySearch(f.from, t)
	// from[i-1] < t
	if i == 0 {
		return 0
	}
	return f.sum[i-1] + min(t, f.to[i-1]) - f.from[i-1]
}

// lastIdle returns the last instant not after t at which a P stood idle.
func (f *idleFunc) lastIdle(t int64) (int64, bool) {
	i, found := slices.BinarySearch(f.from, t)
	if found {
		return t, true
	}
	if i == 0 {
		return 0, false
	}
	return min(t, f.to[i-1]), true
}

// Idle returns for how long, between from and to, at least one P stood idle.
func (g *Gen) Idle(from, to int64) int64 {
	g.idleOnce.Do(g.buildIdle)
	if to <= from {
		return 0
	}
	return g.idle.before(to) - g.idle.before(from)
}

// IdleStretches calls f for every stretch between from and to in which at
// least one P stood idle, until f returns false.
func (g *Gen) IdleStretches(from, to int64, f func(a, b int64) bool) {
	g.idleOnce.Do(g.buildIdle)
	i, _ := slices.BinarySearch(g.idle.to, from)
	for ; i < len(g.idle.from) && g.idle.from[i] < to; i++ {
		if a, b := max(from, g.idle.from[i]), min(to, g.idle.to[i]); a < b && !f(a, b) {
			return
		}
	}
}
