package timeline

import (
	"math"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// State is what a goroutine is doing.
type State uint8

// The states of a goroutine. Gone also stands for not yet born.
const (
	Unknown State = iota
	Running
	Runnable
	Waiting
	Syscall
	Gone
)

var stateNames = [...]string{"unknown", "running", "runnable", "waiting", "syscall", "gone"}

func (s State) String() string { return stateNames[s] }

// How says what began a span.
type How uint8

// Beginnings of spans.
const (
	HowUnknown      How = iota
	HowStatus           // already in this state when the trace began, or the beginning was lost
	HowCreated          // created
	HowStarted          // got a P
	HowBlocked          // blocked itself
	HowSwitched         // a coroutine switch
	HowUnblocked        // woken
	HowStopped          // yielded or preempted
	HowSyscall          // entered the kernel, or C
	HowSyscallEnded     // returned with its P, or without one (then runnable)
	HowPoint            // a running span cut at an event with a stack
	HowDestroyed
)

// BeforeTrace is the start of a span whose beginning was not seen.
const BeforeTrace = math.MinInt64

// A Span is one state of one goroutine over [Start, End). A running span ends
// at every event that carries a stack, so that its time is next to the code
// that ran; the parts of one run follow each other without a gap.
type Span struct {
	Start, End int64
	State      State
	How        How
	// Reason is why it waits or stopped, in the trace's own words.
	Reason tracefmt.StringID
	// Stack is where a wait, system call or stop began; for a running span the
	// stack of the event that ended it; for a runnable span where it was before
	// (the wait's, the system call's, its own), or where it was created.
	Stack tracefmt.StackID
	// Waker ended this wait, or, for a runnable span, the wait before it; 0 for
	// the poller, a timer, or an unknown waker.
	Waker uint64
	// WakerStack is the waker's stack at the wake.
	WakerStack tracefmt.StackID
	// Peer is, for a span begun by a creation, the creator.
	Peer uint64
	// WakeNoP says that the wake came from a thread without a P: sysmon.
	WakeNoP bool
	// Woken says that the end of the wait was seen.
	Woken bool
	// Assist says that the span lies inside a GC mark assist.
	Assist bool
	// InSTW says that the goroutine itself was stopping the world.
	InSTW bool
	// Preempted says that a running span ended because the goroutine was
	// preempted: Stack is then where it really was.
	Preempted bool
	// Died is set on a span that ended because the goroutine ended.
	Died bool
}

// Spans appends to buf the spans of a goroutine that overlap [from, to), in
// order, and returns it. Spans are not cut: the first may begin before from, the
// last may end after to; a span still open at the window's end ends there,
// not Woken. Nothing is appended for a goroutine that the window does not know.
func (w *Window) Spans(id uint64, from, to int64, buf []Span) []Span {
	return w.appendSpans(id, expander{from: from, to: to, buf: buf})
}

// SpansCoarse is Spans with less detail for long runs, of about a thousand events or more. The middle of such a run is divided
// into a few parts with equal numbers of events. A part has one span for each kind of time (state and stack), as long as all
// time of that kind in the part, in the order in which the kinds first appear. So times still add up by stack, but their order
// within a part is lost, and time beyond the sixteen most frequent kinds of a part has no stack.
// The cost does not grow with the number of events.
func (w *Window) SpansCoarse(id uint64, from, to int64, buf []Span) []Span {
	return w.appendSpans(id, expander{from: from, to: to, buf: buf, coarse: true, had: len(buf)})
}

// EachSpans calls f with the spans that Spans would return, in batches, so that a goroutine's whole life need not fit in
// memory. Batches use buf, which is returned, perhaps grown.
func (w *Window) EachSpans(id uint64, from, to int64, buf []Span, f func([]Span)) []Span {
	buf = w.appendSpans(id, expander{from: from, to: to, buf: buf[:0], sink: f})
	f(buf)
	return buf
}

// sinkEvery is how many spans EachSpans gathers for a call.
const sinkEvery = 256

// pour passes all spans to the sink but the open one.
func (e *expander) pour() {
	n := len(e.buf)
	if e.open {
		n--
	}
	e.sink(e.buf[:n])
	if e.buf = append(e.buf[:0], e.buf[n:]...); e.open {
		e.cur = &e.buf[0]
	}
}

func (w *Window) appendSpans(id uint64, e expander) []Span {
	if len(w.Gens) == 0 {
		return e.buf
	}
	i := w.genAt(e.from)
	if g, d, k, ok := w.entryAt(i, id, e.from); ok {
		e.assist, e.assistStack, e.stw = w.inside(i, d, k-g.base[d])
		if e.pieces(g, d, k, g.base[d+1]) {
			return e.done(w)
		}
		i++
	} else {
		i = w.firstNeeded(i, id, e.from)
		if i == 0 {
			e.before = w.before
		}
	}
	for ; i < len(w.Gens); i++ {
		g := w.Gens[i]
		if i > 0 && g.Base >= e.to && (!e.open || e.cur.State == Gone) {
			break
		}
		if d := g.ids.lookup(id); d != 0 && e.expand(w, i, d) {
			return e.done(w)
		}
	}
	e.finish(max(e.to, w.Gens[len(w.Gens)-1].End))
	return e.done(w)
}

// entryAt returns from which slot on a generation alone shows what a goroutine
// was doing at from, if it does: earlier ones need not be read.
func (w *Window) entryAt(i int, id uint64, from int64) (g *Gen, d, k uint32, ok bool) {
	g = w.Gens[i]
	if from <= g.Base {
		return g, 0, 0, false
	}
	if d = g.ids.lookup(id); d != 0 {
		k, ok = g.entry(d, from-g.Base, 6)
	}
	return g, d, k, ok
}

// firstNeeded returns the generation, i or one before, in which the span that
// contains from begins, and the span before, from which it repeats fields.
func (w *Window) firstNeeded(i int, id uint64, from int64) int {
	for ; i > 0; i-- {
		g := w.Gens[i]
		d := g.ids.lookup(id)
		if d != 0 && (g.secondChange(d) <= from || w.Gens[i-1].ids.lookup(id) == 0) {
			break
		}
	}
	return i
}

func (e *expander) done(w *Window) []Span {
	if w.Passed != nil {
		w.Passed.Add(int64(e.passed))
	}
	return e.buf
}

// secondChange returns the time of the goroutine's second change of state in the
// generation. From then on its spans do not depend on the generation before;
// after the first change, a runnable span still repeats fields of the wait
// before it. It gives up after many events, because reading the generation
// before as well is never wrong.
func (g *Gen) secondChange(d uint32) int64 {
	n, passed := 0, 0
	for _, s := range g.slots[g.base[d]:g.base[d+1]] {
		r := g.record(s.rec)
		if !r.is(repeats) {
			if n++; n == 2 {
				return g.Base + r.time()
			}
		}
		if !opensRun(r) {
			continue
		}
		for r := range g.run(s.rec) {
			if passed++; passed > longAfter {
				return math.MaxInt64
			}
			if !r.is(changes) {
				continue
			}
			if n++; n == 2 {
				return g.Base + r.time()
			}
		}
	}
	return math.MaxInt64
}

// expander builds spans from pieces.
type expander struct {
	from, to int64
	buf      []Span
	// The open span is already the last one in buf, at cur, so that it need not
	// be moved. It must not be changed once it is closed.
	cur    *Span
	open   bool
	before func(id uint64) (Span, bool) // see Window; nil for nothing
	sink   func([]Span)                 // see Window.EachSpans; nil for none
	coarse bool                         // see Window.SpansCoarse
	had    int                          // the length of buf at first
	passed int                          // events of runs visited
	// marking, if not nil, takes marks of the run being read.
	marking *longRun
	// What outlasts a span.
	assist, stw bool
	assistStack tracefmt.StackID // where the assist began
}

// expand reads a goroutine's pieces in generation i of the window and reports
// whether it reached the end of the wanted time.
func (e *expander) expand(w *Window, i int, d uint32) bool {
	g := w.Gens[i]
	lo, hi := g.base[d], g.base[d+1]
	if !e.open {
		if e.from > g.Base {
			// The last piece that begins at or before from says what it was
			// doing then.
			if k, ok := g.entry(d, e.from-g.Base, 3); ok {
				lo = k
			}
		}
		e.assist, e.assistStack, e.stw = w.inside(i, d, lo-g.base[d])
	}
	return e.pieces(g, d, lo, hi)
}

// pieces reads the pieces at slots[lo:hi] of goroutine d; it reports what expand does.
func (e *expander) pieces(g *Gen, d, lo, hi uint32) bool {
	for ; lo < hi; lo++ {
		s := g.slots[lo]
		if s.rec == 0 {
			continue
		}
		if e.sink != nil && len(e.buf) >= sinkEvery {
			e.pour()
		}
		r := g.record(s.rec)
		t := g.Base + r.time()
		if e.open && e.cur.Start >= e.to {
			e.drop()
			return true
		}
		switch kind := tracefmt.EventType(r.kind()); kind {
		case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
			if e.open {
				if e.cur.Stack == 0 && kind == tracefmt.EvGoStatusStack {
					e.cur.Stack = g.stack(r.stack())
				}
				break
			}
			e.begin(BeforeTrace, statusState(r.status()), HowStatus)
			if e.before != nil {
				if c, ok := e.before(g.ids.ids[d]); ok && c.State == e.cur.State {
					*e.cur = c
					e.cur.Assist, e.cur.InSTW = e.assist, e.stw
				}
			}
			if kind == tracefmt.EvGoStatusStack && e.cur.Stack == 0 {
				e.cur.Stack = g.stack(r.stack())
			}
		case tracefmt.EvGoCreate:
			e.close(t)
			n := e.begin(t, Runnable, HowCreated)
			n.Stack, n.Peer = g.stack(r.stack()), g.ids.ids[s.owner()]
		case tracefmt.EvGoCreateBlocked:
			e.close(t)
			n := e.begin(t, Waiting, HowCreated)
			n.Stack, n.Peer = g.stack(r.stack()), g.ids.ids[s.owner()]
		case tracefmt.EvGoCreateSyscall:
			e.close(t)
			e.begin(t, Syscall, HowCreated)
		case tracefmt.EvGoUnblock:
			waker, at, noP := g.ids.ids[s.owner()], g.stack(r.stack()), r.aux()&auxNoP != 0
			var stack tracefmt.StackID
			var reason tracefmt.StringID
			if e.open {
				c := e.cur
				c.Waker, c.WakerStack, c.WakeNoP, c.Woken = waker, at, noP, true
				stack, reason = c.Stack, c.Reason
			}
			e.close(t)
			n := e.begin(t, Runnable, HowUnblocked)
			n.Stack, n.Reason, n.Waker, n.WakerStack, n.WakeNoP = stack, reason, waker, at, noP
		case tracefmt.EvGoStart:
			e.close(t)
			e.begin(t, Running, HowStarted)
		case tracefmt.EventType(kindSwitched):
			if e.open && e.cur.State == Waiting {
				e.cur.Waker, e.cur.Woken = g.ids.ids[r.peer()], true
			}
			e.close(t)
			n := e.begin(t, Running, HowSwitched)
			n.Peer = g.ids.ids[r.peer()]
		}
		if opensRun(r) && e.run(g, s.rec) {
			return true
		}
	}
	return false
}

// run reads the events of a run and reports whether it reached the end of the
// wanted time.
func (e *expander) run(g *Gen, at ref) bool {
	var key longKey // the run and the state in which it began
	if e.open {
		key = longKey{at, e.cur.State, e.assist, e.stw, e.assistStack}
	}
	entered, skimmed := false, !e.coarse
	before, last := at, int64(0) // the event before, and its time
	start, opened, how := len(e.buf), int64(0), HowUnknown
	if e.open {
		opened, how = e.cur.Start, e.cur.How
	}
	for passed := 0; ; passed++ {
		at, r := g.next(before)
		e.passed++
		kind := tracefmt.EventType(r.kind())
		if endsWalk(r) {
			return false
		}
		t := g.Base + r.time()
		if e.open && e.cur.Start >= e.to {
			e.drop()
			return true
		}
		if passed%markEvery == 0 && e.open {
			next := before
			switch {
			case e.marking != nil:
				e.marking.mark(e, before, last)
			case passed == markEvery && !skimmed && opened >= e.from && how == HowStarted && len(e.buf)-e.had > coarseSpans:
				// The runs before already have enough spans in full detail: start this run again, with less.
				skimmed = true
				e.buf = append(e.buf[:start-1], Span{Start: opened, State: key.state, How: how, Assist: key.assist, InSTW: key.stw})
				e.cur, e.assist, e.stw, e.assistStack = &e.buf[start-1], key.assist, key.stw, key.assistStack
				next = g.long(key).skim(e, key.at, coarseLess)
			case passed < longAfter:
			case !entered && t <= e.from:
				entered = true
				next = g.long(key).enter(e, before)
			case !skimmed && e.cur.Start >= e.from:
				skimmed = true
				next = g.long(key).skim(e, before, coarseParts)
			}
			if next != before {
				before = next
				passed-- // before is at a mark again
				continue
			}
		}
		before, last = at, t
		switch kind {
		case tracefmt.EvGoBlock, tracefmt.EvGoStop:
			stack, reason := g.stack(r.stack()), g.str(r.peer())
			if e.open {
				e.cur.Preempted = kind == tracefmt.EvGoStop && e.cur.State == Running
			}
			e.cut(t, stack)
			if kind == tracefmt.EvGoBlock {
				n := e.begin(t, Waiting, HowBlocked)
				n.Stack, n.Reason = stack, reason
			} else {
				n := e.begin(t, Runnable, HowStopped)
				n.Stack, n.Reason = stack, reason
			}
			return false
		case tracefmt.EvGoSwitch:
			e.close(t)
			n := e.begin(t, Waiting, HowSwitched)
			n.Peer = g.ids.ids[r.peer()]
			return false
		case tracefmt.EvGoDestroy, tracefmt.EvGoDestroySyscall, tracefmt.EvGoSwitchDestroy:
			if e.open {
				e.cur.Died = true
			}
			e.close(t)
			e.begin(t, Gone, HowDestroyed)
			e.assist, e.stw = false, false
			return false
		case tracefmt.EvGoSyscallBegin:
			stack := g.stack(r.stack())
			e.cut(t, stack)
			n := e.begin(t, Syscall, HowSyscall)
			n.Stack = stack
		case tracefmt.EvGoSyscallEnd:
			e.close(t)
			e.begin(t, Running, HowSyscallEnded)
		case tracefmt.EvGoSyscallEndBlocked:
			var stack tracefmt.StackID
			if e.open {
				stack = e.cur.Stack
			}
			e.close(t)
			n := e.begin(t, Runnable, HowSyscallEnded)
			n.Stack = stack
			return false
		case tracefmt.EvGCMarkAssistBegin:
			e.assistStack = g.stack(r.stack())
			e.point(t, e.assistStack)
			e.assist = true
			if e.open {
				e.cur.Assist = true
			}
		case tracefmt.EvGCMarkAssistEnd:
			e.point(t, e.assistStack)
			e.assist = false
			if e.open {
				e.cur.Assist = false
			}
		case tracefmt.EvSTWBegin:
			e.point(t, g.stack(r.stack()))
			e.stw = true
			if e.open {
				e.cur.InSTW = true
			}
		case tracefmt.EvSTWEnd:
			e.point(t, 0)
			e.stw = false
			if e.open {
				e.cur.InSTW = false
			}
		case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack, tracefmt.EvGCMarkAssistActive:
			// About another goroutine.
		default:
			if s := r.stack(); s != 0 {
				e.point(t, g.stack(s))
			}
		}
	}
}

func statusState(status uint32) State {
	switch uint64(status) {
	case tracefmt.GoRunnable:
		return Runnable
	case tracefmt.GoRunning:
		return Running
	case tracefmt.GoSyscall:
		return Syscall
	case tracefmt.GoWaiting:
		return Waiting
	}
	return Unknown
}

// begin begins a span. It is filled in place: a copy of a fresh struct would
// stall until the stores to its fields are done.
func (e *expander) begin(t int64, state State, how How) *Span {
	e.buf = append(e.buf, Span{})
	s := &e.buf[len(e.buf)-1]
	s.Start, s.State, s.How, s.Assist, s.InSTW = t, state, how, e.assist, e.stw
	e.cur, e.open = s, true
	return s
}

// close ends the open span at t, or with length zero if t is before its start.
func (e *expander) close(t int64) {
	if !e.open {
		return
	}
	e.open = false
	e.cur.End = max(t, e.cur.Start)
	if e.cur.End <= e.from || e.cur.Start >= e.to {
		e.buf = e.buf[:len(e.buf)-1]
	}
}

// drop forgets the open span.
func (e *expander) drop() {
	if e.open {
		e.open = false
		e.buf = e.buf[:len(e.buf)-1]
	}
}

// cut closes a running span with the stack of the event that ends it.
func (e *expander) cut(t int64, stack tracefmt.StackID) {
	if e.open && e.cur.State == Running {
		e.cur.Stack = stack
	}
	e.close(t)
}

// point splits a running span at an event with a stack.
func (e *expander) point(t int64, stack tracefmt.StackID) {
	if !e.open || e.cur.State != Running {
		return
	}
	at := max(t, e.cur.Start)
	e.cut(t, stack)
	e.begin(at, Running, HowPoint)
}

func (e *expander) finish(end int64) {
	if e.open {
		e.close(max(end, e.cur.Start))
	}
}
