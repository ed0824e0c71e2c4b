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
	What   ProcChange
}

// ProcChange is what happened to a P, or what state it was said to be in.
type ProcChange uint8

// Changes and states of a P in a [ProcEvent].
const (
	ProcTaken     ProcChange = iota // the thread took it
	ProcLetGo                       // the thread let it go
	ProcStolen                      // the thread took it away from another one in a system call
	ProcAbandoned                   // the thread let it go on its way back to C
	procStatus                      // and the status itself:
	ProcRuns      = procStatus + ProcChange(tracefmt.ProcRunning)
	ProcIsIdle    = procStatus + ProcChange(tracefmt.ProcIdle)
	ProcInCall    = procStatus + ProcChange(tracefmt.ProcSyscall) // it is held by the thread, which is in a system call
	ProcInNoCall  = procStatus + ProcChange(tracefmt.ProcSyscallAbandoned)
)

// held reports whether a P is held after a change, false for a status that there is not.
func (c ProcChange) held() (yes, known bool) {
	switch c {
	case ProcTaken, ProcRuns, ProcInCall:
		return true, true
	case ProcLetGo, ProcStolen, ProcAbandoned, ProcIsIdle, ProcInNoCall:
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
	if !slices.ContainsFunc(evs, func(e ProcEvent) bool { return e.What == ProcAbandoned }) {
		return evs
	}
	stolen := make(map[[2]uint32]ProcEvent)
	for _, e := range evs {
		if e.What == ProcStolen {
			stolen[[2]uint32{e.P, e.seq}] = e
		}
	}
	return slices.DeleteFunc(evs, func(e ProcEvent) bool {
		s, ok := stolen[[2]uint32{e.P, e.seq + 1}]
		// On one thread the stream says what came first, whatever the times.
		return e.What == ProcAbandoned && ok && s.Time < e.Time && s.M != e.M
	})
}

// ProcTransitions returns the changes of every P's state, P by P in their
// true order. It allocates; meant for tests.
func (g *Gen) ProcTransitions() []ProcTransition {
	evs := slices.Clone(g.ProcEvents)
	// The trace numbers starts, thefts and system calls of a P; a stop follows
	// what its thread saw last of the P.
	rank := func(e ProcEvent) int {
		if e.What == ProcLetGo || e.What == ProcAbandoned {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(evs, func(a, b ProcEvent) int {
		return cmp.Or(cmp.Compare(a.P, b.P), cmp.Compare(a.seq, b.seq), rank(a)-rank(b), cmp.Compare(a.Time, b.Time))
	})
	out := make([]ProcTransition, 0, len(evs))
	for _, e := range evs {
		held, _ := e.What.held()
		out = append(out, ProcTransition{e.Time, e.P, held, e.What >= procStatus})
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
	evs := slices.Clone(g.ProcEvents)
	slices.SortFunc(evs, func(a, b ProcEvent) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.P, b.P), cmp.Compare(a.seq, b.seq), cmp.Compare(a.What, b.What))
	})
	idle := map[uint32]bool{}
	// The state before a P's first change is known from that change.
	n := 0
	for _, e := range evs {
		if _, ok := idle[e.P]; ok {
			continue
		}
		idle[e.P] = e.What == ProcTaken || e.What == ProcIsIdle || e.What == ProcInNoCall
		if idle[e.P] {
			n++
		}
	}
	f := &g.idle
	if n > 0 {
		f.open(g.Base)
	}
	for _, e := range evs {
		held, known := e.What.held()
		if !known || idle[e.P] == !held {
			continue
		}
		if idle[e.P] = !held; held {
			if n--; n == 0 {
				f.shut(e.Time)
			}
		} else if n++; n == 1 {
			f.open(e.Time)
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
