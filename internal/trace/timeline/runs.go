package timeline

import (
	"maps"
	"math"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Run is an interval in which a goroutine held a P and ran, on one thread. A system call ends it.
type Run struct {
	From, To int64
	G        uint64
	// Stack is the stack of the event that ended the run, or the last stack in it.
	Stack tracefmt.StackID
	// P is the P that it held; NoP if the trace does not name it.
	P uint32
	// M is the id of the thread.
	M uint64
	// Began and Ended report that the first and the last instant of the run are in the trace: it is cut
	// neither at the limits of the query nor at the generation's.
	Began, Ended bool
}

// NoP is the P of a run for which the trace names no P.
const NoP = noProc

// A stream locates one thread's part of a generation.
type stream struct {
	m     uint64
	index [2]int32 // threads.index[from:to]
	holds [2]int32 // threads.holds[from:to]
}

// A hold states which P a thread holds from a record of its stream on.
type hold struct {
	rec ref
	p   uint32
}

// A holdCursor finds the P that a thread holds at records that are passed in increasing order.
type holdCursor struct {
	holds []hold
	next  int // index of the first hold that may be after the last record
}

// procAt returns the P that the thread holds at record rec; noProc if it holds none. It tries the next few holds before it
// searches: a thread keeps one P for many runs, or changes it at each run.
func (c *holdCursor) procAt(rec ref) uint32 {
	for range 4 {
		if c.next == len(c.holds) || c.holds[c.next].rec > rec {
			return c.current()
		}
		c.next++
	}
	rest := c.holds[c.next:]
	c.next += sort.Search(len(rest), func(i int) bool { return rest[i].rec > rec })
	return c.current()
}

// current returns the P of the last hold before next; noProc if there is none.
func (c *holdCursor) current() uint32 {
	if c.next == 0 {
		return noProc
	}
	return c.holds[c.next-1].p
}

// A waypoint allows a reader to enter a thread's stream at rec: no event from rec on is before t, and the
// goroutine running runs there or is in a system call.
type waypoint struct {
	t       int64 // since the generation's base
	rec     ref
	running uint32
}

// threads hold the streams of all threads, in an order that depends on the trace alone.
type threads struct {
	streams []stream
	index   []waypoint
	holds   []hold
}

func (t *threads) reset() {
	*t = threads{streams: t.streams[:0], index: t.index[:0], holds: t.holds[:0]}
}

// waypointEvery is the maximal number of records between two waypoints.
const waypointEvery = 128

// EachRun calls f for each run in the window that overlaps [from, to), generation by generation and within each thread by thread.
// Runs are cut at from and to, but joined where generations meet.
func (g *Gen) EachRun(from, to int64, f func(Run)) {
	var run Run
	emit := func() {
		if run.To > run.From && run.To > from {
			f(run)
		}
	}
	for k := range g.streams {
		g.streamRuns(&g.streams[k], from-g.Base, to-g.Base, &run, emit)
	}
}

// streamRuns calls f for the runs of one thread's stream that end after from, including runs of length 0; times are relative to
// the generation's base. Before each call it stores the run in *run.
func (g *Gen) streamRuns(s *stream, from, to int64, run *Run, f func()) {
	waypoints := g.index[s.index[0]:s.index[1]]
	k := sort.Search(len(waypoints), func(i int) bool { return waypoints[i].t > from })
	if k == len(waypoints) && k == 0 || k == 0 && waypoints[0].t >= to {
		return
	}
	k = max(k-1, 0)
	*run = Run{M: s.m}
	held := holdCursor{holds: g.holds[s.holds[0]:s.holds[1]]}
	cur, start, startAt := waypoints[k].running, from, waypoints[k].rec
	emit := func(end int64, ended bool) {
		if cur != 0 {
			run.From, run.To, run.G, run.Ended = g.Base+max(start, from), g.Base+max(end, start, from), g.ids.ids[cur], ended
			run.P, run.Began = held.procAt(startAt), run.Began && start >= from
			f()
		}
		cur, run.Stack, run.Began = 0, 0, false
	}
	for rec, r := waypoints[k].rec, g.record(waypoints[k].rec); ; rec, r = g.next(rec) {
		if r.kind() == kindLink {
			rec = r.link()
			r = g.record(rec)
		}
		if r.kind() == kindEnd {
			emit(min(to, g.End-g.Base), false)
			return
		}
		t := r.time()
		kind := tracefmt.EventType(r.kind())
		if t >= to {
			switch kind {
			case tracefmt.EvGoSyscallEnd, tracefmt.EvGoSyscallEndBlocked, tracefmt.EvGoDestroySyscall:
				return // the waypoint was inside a system call: no goroutine ran
			}
			// The event that ends the run has the stack of the run.
			if s := r.stack(); s != 0 {
				run.Stack = g.stack(s)
			}
			emit(to, false)
			return
		}
		switch kind {
		case tracefmt.EvGoStart:
			cur, start, startAt, run.Began = r.peer(), t, rec, true
		case tracefmt.EventType(kindSwitched):
			cur, start, startAt, run.Began = g.switchedTo(rec), t, rec, true
		case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
			if r.binds() && r.status() == uint32(tracefmt.GoRunning) {
				cur, start, startAt, run.Began = r.peer(), t, rec, false
			}
		case tracefmt.EvGoBlock, tracefmt.EvGoStop, tracefmt.EvGoSyscallBegin:
			run.Stack = g.stack(r.stack())
			emit(t, true)
		case tracefmt.EvGoDestroy, tracefmt.EvGoSwitch, tracefmt.EvGoSwitchDestroy:
			emit(t, true)
		case tracefmt.EvGoSyscallEndBlocked, tracefmt.EvGoDestroySyscall:
			cur = 0 // it was in a system call, although a waypoint names it as running
		case tracefmt.EvGoSyscallEnd:
			cur, start, startAt, run.Began = r.peer(), t, rec, true
		default:
			if s := r.stack(); s != 0 {
				run.Stack = g.stack(s)
			}
		}
	}
}

// Runs joins the runs of consecutive generations, which must be added in order. It stores at most one run for each
// thread.
type Runs struct {
	open map[uint64]Run // for each thread, the run that continues after the last generation
}

// Add calls f for each run that ended in g, and for each run of earlier generations that does not continue in g,
// thread by thread. The runs of one thread come in order, including runs of length 0.
func (r *Runs) Add(g *Gen, f func(Run)) {
	r.addBetween(g, g.Base, math.MaxInt64, f)
}

// addBetween joins the runs of generation g that overlap [from, to) with open runs of earlier generations, and calls f for each
// run that ended, thread by thread; see Add.
func (r *Runs) addBetween(g *Gen, from, to int64, f func(Run)) {
	if r.open == nil {
		r.open = make(map[uint64]Run)
	}
	var run Run
	for k := range g.streams {
		s := &g.streams[k]
		before, waits := r.open[s.m]
		delete(r.open, s.m)
		g.streamRuns(s, from-g.Base, to-g.Base, &run, func() {
			if waits {
				waits = false
				if !run.Began && run.G == before.G && (run.P == before.P || run.P == NoP) {
					run.From, run.Began, run.P = before.From, before.Began, before.P
					run.To = max(run.To, run.From)
				} else {
					before.To = min(before.To, max(run.From, before.From))
					f(before)
				}
			}
			if run.Ended {
				f(run)
			} else {
				r.open[s.m] = run
			}
		})
		if waits {
			if to <= g.End { // the thread has more events, but after to
				before.To = max(before.To, to)
			}
			f(before)
		}
	}
}

// HasOpenBefore reports whether a run is open whose last known instant is before t.
func (r *Runs) HasOpenBefore(t int64) bool {
	for _, run := range r.open {
		if run.To < t {
			return true
		}
	}
	return false
}

// Close calls f for each open run, ordered by thread; such a run ends at its last known instant.
func (r *Runs) Close(f func(Run)) {
	for _, m := range slices.Sorted(maps.Keys(r.open)) {
		f(r.open[m])
	}
	clear(r.open)
}

// EachRun calls f for each run in the window that overlaps [from, to), thread by thread. Runs are cut at from and to, but
// joined where generations meet.
func (w *Window) EachRun(from, to int64, f func(Run)) {
	var join Runs
	keep := func(r Run) {
		if r.From < to && r.To > from && r.To > r.From {
			f(r)
		}
	}
	for i, g := range w.Gens {
		// The last generation before from and the first one after to are needed too: a run that is open at
		// the end of a generation continues until the thread's first event in the next one.
		if i+1 == len(w.Gens) || w.Gens[i+1].End >= from {
			join.addBetween(g, from, to, keep)
		}
		if g.Base >= to {
			break
		}
	}
	join.Close(keep)
}

// switchedTo returns the goroutine whose run a coroutine switch begins: the peer of the switch's own record, which precedes rec;
// 0 if another event precedes rec.
func (g *Gen) switchedTo(rec ref) uint32 {
	if r := g.record(rec - 1); tracefmt.EventType(r.kind()) == tracefmt.EvGoSwitch || tracefmt.EventType(r.kind()) == tracefmt.EvGoSwitchDestroy {
		return r.peer()
	}
	return 0
}

// EachLongRun calls f for each run of at least shortest ns that began and ended in the generation, thread by thread. It reads
// only where waypoints are far apart in time, so it may miss a run with very many events.
func (g *Gen) EachLongRun(shortest int64, f func(Run)) {
	var run Run
	for k := range g.streams {
		s := &g.streams[k]
		waypoints := g.index[s.index[0]:s.index[1]]
		after := func(i int) int64 {
			if i < len(waypoints) {
				return waypoints[i].t
			}
			return g.End - g.Base + 1
		}
		done := int64(-1)
		for i := 0; i < len(waypoints); i++ {
			// If a run crosses a waypoint, at least half of its length is on one side of it.
			if after(i+1)-waypoints[i].t < shortest/2 {
				continue
			}
			from := max(i-1, 0)
			for i++; i < len(waypoints) && after(i+1)-waypoints[i].t >= shortest/2; i++ {
			}
			to := after(i + 1)
			g.streamRuns(s, waypoints[from].t, to, &run, func() {
				if run.Began && run.Ended && run.To-run.From >= shortest && run.To-g.Base > done {
					f(run)
				}
			})
			done = to
		}
	}
}
