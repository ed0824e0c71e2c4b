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
	NotAlive
)

var stateNames = [...]string{"unknown", "running", "runnable", "waiting", "syscall", "gone"}

func (s State) String() string { return stateNames[s] }

// Origin says what began a span.
type Origin uint8

// Beginnings of spans.
const (
	OriginUnknown      Origin = iota
	OriginStatus              // already in this state when the trace began, or the beginning was lost
	OriginCreated             // created
	OriginStarted             // got a P
	OriginBlocked             // blocked itself
	OriginSwitched            // a coroutine switch
	OriginUnblocked           // woken
	OriginStopped             // yielded or preempted
	OriginSyscall             // entered the kernel, or C
	OriginSyscallEnded        // returned with its P, or without one (then runnable)
	OriginCut                 // a running span cut at an event with a stack
	OriginDestroyed
)

// BeforeTrace is the start of a span whose beginning was not seen.
const BeforeTrace = math.MinInt64

// A Span is one state of one goroutine over [Start, End). A running span ends
// at every event that carries a stack, so that its time is next to the code
// that ran; the parts of one run follow each other without a gap.
type Span struct {
	Start, End int64
	State      State
	Origin     Origin
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
	return w.appendSpans(id, expander{from: from, to: to, buf: buf, coarse: true, initialLen: len(buf)})
}

// EachSpans calls f with the spans that Spans would return, in batches, so that a goroutine's whole life need not fit in
// memory. Batches use buf, which is returned, perhaps grown.
func (w *Window) EachSpans(id uint64, from, to int64, buf []Span, f func([]Span)) []Span {
	buf = w.appendSpans(id, expander{from: from, to: to, buf: buf[:0], sink: f})
	f(buf)
	return buf
}

// spansPerCall is how many spans EachSpans gathers for a call.
const spansPerCall = 256

// passToSink passes all spans to the sink but the open one.
func (e *expander) passToSink() {
	n := len(e.buf)
	if e.open {
		n--
	}
	e.sink(e.buf[:n])
	if e.buf = append(e.buf[:0], e.buf[n:]...); e.open {
		e.openSpan = &e.buf[0]
	}
}

func (w *Window) appendSpans(id uint64, e expander) []Span {
	if len(w.Gens) == 0 {
		return e.buf
	}
	i := w.genAt(e.from)
	if g, d, k, ok := w.entryAt(i, id, e.from); ok {
		e.assist, e.assistStack, e.stw = w.rangeState(i, d, k-g.slotBase[d])
		if e.expandPieces(g, d, k, g.slotBase[d+1]) {
			return e.result(w)
		}
		i++
	} else {
		i = w.firstNeeded(i, id, e.from)
		if i == 0 {
			e.before = w.carriedSpan
		}
	}
	for ; i < len(w.Gens); i++ {
		g := w.Gens[i]
		if i > 0 && g.Base >= e.to && (!e.open || e.openSpan.State == NotAlive) {
			break
		}
		if d := g.ids.lookup(id); d != 0 && e.expandGen(w, i, d) {
			return e.result(w)
		}
	}
	e.closeLast(max(e.to, w.Gens[len(w.Gens)-1].End))
	return e.result(w)
}

// entryAt returns from which slot on a generation alone shows what a goroutine
// was doing at from, if it does: earlier ones need not be read.
func (w *Window) entryAt(i int, id uint64, from int64) (g *Gen, d, k uint32, ok bool) {
	g = w.Gens[i]
	if from <= g.Base {
		return g, 0, 0, false
	}
	if d = g.ids.lookup(id); d != 0 {
		k, ok = g.entrySlot(d, from-g.Base, 6)
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

func (e *expander) result(w *Window) []Span {
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
	for _, s := range g.slots[g.slotBase[d]:g.slotBase[d+1]] {
		r := g.record(s.rec)
		if !r.hasTrait(repeatsState) {
			if n++; n == 2 {
				return g.Base + r.time()
			}
		}
		if !opensRun(r) {
			continue
		}
		for r := range g.runEvents(s.rec) {
			if passed++; passed > longRunAfter {
				return math.MaxInt64
			}
			if !r.hasTrait(changesState) {
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
	openSpan   *Span
	open       bool
	before     func(id uint64) (Span, bool) // see Window; nil for nothing
	sink       func([]Span)                 // see Window.EachSpans; nil for none
	coarse     bool                         // see Window.SpansCoarse
	initialLen int                          // the length of buf at first
	passed     int                          // events of runs visited
	// marking, if not nil, takes marks of the run being read.
	marking *longRun
	// What outlasts a span.
	assist, stw bool
	assistStack tracefmt.StackID // where the assist began
}

// expandGen reads a goroutine's pieces in generation i of the window and reports
// whether it reached the end of the wanted time.
func (e *expander) expandGen(w *Window, i int, d uint32) bool {
	g := w.Gens[i]
	lo, hi := g.slotBase[d], g.slotBase[d+1]
	if !e.open {
		if e.from > g.Base {
			// The last piece that begins at or before from says what it was
			// doing then.
			if k, ok := g.entrySlot(d, e.from-g.Base, 3); ok {
				lo = k
			}
		}
		e.assist, e.assistStack, e.stw = w.rangeState(i, d, lo-g.slotBase[d])
	}
	return e.expandPieces(g, d, lo, hi)
}

// expandPieces reads the pieces at slots[lo:hi] of goroutine d; it reports what expand does.
func (e *expander) expandPieces(g *Gen, d, lo, hi uint32) bool {
	for ; lo < hi; lo++ {
		s := g.slots[lo]
		if s.rec == 0 {
			continue
		}
		if e.sink != nil && len(e.buf) >= spansPerCall {
			e.passToSink()
		}
		r := g.record(s.rec)
		t := g.Base + r.time()
		if e.open && e.openSpan.Start >= e.to {
			e.dropOpenSpan()
			return true
		}
		switch kind := tracefmt.EventType(r.kind()); kind {
		case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
			if e.open {
				if e.openSpan.Stack == 0 && kind == tracefmt.EvGoStatusStack {
					e.openSpan.Stack = g.stack(r.stack())
				}
				break
			}
			e.beginSpan(BeforeTrace, statusState(r.status()), OriginStatus)
			if e.before != nil {
				if c, ok := e.before(g.ids.ids[d]); ok && c.State == e.openSpan.State {
					*e.openSpan = c
					e.openSpan.Assist, e.openSpan.InSTW = e.assist, e.stw
				}
			}
			if kind == tracefmt.EvGoStatusStack && e.openSpan.Stack == 0 {
				e.openSpan.Stack = g.stack(r.stack())
			}
		case tracefmt.EvGoCreate:
			e.closeSpan(t)
			n := e.beginSpan(t, Runnable, OriginCreated)
			n.Stack, n.Peer = g.stack(r.stack()), g.ids.ids[s.creatorOrWaker()]
		case tracefmt.EvGoCreateBlocked:
			e.closeSpan(t)
			n := e.beginSpan(t, Waiting, OriginCreated)
			n.Stack, n.Peer = g.stack(r.stack()), g.ids.ids[s.creatorOrWaker()]
		case tracefmt.EvGoCreateSyscall:
			e.closeSpan(t)
			e.beginSpan(t, Syscall, OriginCreated)
		case tracefmt.EvGoUnblock:
			waker, wakerStack, noP := g.ids.ids[s.creatorOrWaker()], g.stack(r.stack()), r.aux()&auxNoP != 0
			var stack tracefmt.StackID
			var reason tracefmt.StringID
			if e.open {
				c := e.openSpan
				c.Waker, c.WakerStack, c.WakeNoP, c.Woken = waker, wakerStack, noP, true
				stack, reason = c.Stack, c.Reason
			}
			e.closeSpan(t)
			n := e.beginSpan(t, Runnable, OriginUnblocked)
			n.Stack, n.Reason, n.Waker, n.WakerStack, n.WakeNoP = stack, reason, waker, wakerStack, noP
		case tracefmt.EvGoStart:
			e.closeSpan(t)
			e.beginSpan(t, Running, OriginStarted)
		case tracefmt.EventType(kindSwitched):
			if e.open && e.openSpan.State == Waiting {
				e.openSpan.Waker, e.openSpan.Woken = g.ids.ids[r.peer()], true
			}
			e.closeSpan(t)
			n := e.beginSpan(t, Running, OriginSwitched)
			n.Peer = g.ids.ids[r.peer()]
		}
		if opensRun(r) && e.expandRun(g, s.rec) {
			return true
		}
	}
	return false
}

// expandRun reads the events of a run and reports whether it reached the end of the
// wanted time.
func (e *expander) expandRun(g *Gen, runStart ref) bool {
	var key longKey // the run and the state in which it began
	if e.open {
		key = longKey{runStart, e.openSpan.State, e.assist, e.stw, e.assistStack}
	}
	entered, skimmed := false, !e.coarse
	before, last := runStart, int64(0) // the event before, and its time
	start, opened, origin := len(e.buf), int64(0), OriginUnknown
	if e.open {
		opened, origin = e.openSpan.Start, e.openSpan.Origin
	}
	for passed := 0; ; passed++ {
		runStart, r := g.next(before)
		e.passed++
		kind := tracefmt.EventType(r.kind())
		if endsWalk(r) {
			return false
		}
		t := g.Base + r.time()
		if e.open && e.openSpan.Start >= e.to {
			e.dropOpenSpan()
			return true
		}
		if passed%markEvery == 0 && e.open {
			next := before
			switch {
			case e.marking != nil:
				e.marking.mark(e, before, last)
			case passed == markEvery && !skimmed && opened >= e.from && origin == OriginStarted && len(e.buf)-e.initialLen > coarseSpans:
				// The runs before already have enough spans in full detail: start this run again, with less.
				skimmed = true
				e.buf = append(e.buf[:start-1], Span{Start: opened, State: key.state, Origin: origin, Assist: key.assist, InSTW: key.stw})
				e.openSpan, e.assist, e.stw, e.assistStack = &e.buf[start-1], key.assist, key.stw, key.assistStack
				next = g.longRunOf(key).summarize(e, key.rec, coarseFewerParts)
			case passed < longRunAfter:
			case !entered && t <= e.from:
				entered = true
				next = g.longRunOf(key).skipTo(e, before)
			case !skimmed && e.openSpan.Start >= e.from:
				skimmed = true
				next = g.longRunOf(key).summarize(e, before, coarseParts)
			}
			if next != before {
				before = next
				passed-- // before is at a mark again
				continue
			}
		}
		before, last = runStart, t
		switch kind {
		case tracefmt.EvGoBlock, tracefmt.EvGoStop:
			stack, reason := g.stack(r.stack()), g.str(r.peer())
			if e.open {
				e.openSpan.Preempted = kind == tracefmt.EvGoStop && e.openSpan.State == Running
			}
			e.closeRunning(t, stack)
			if kind == tracefmt.EvGoBlock {
				n := e.beginSpan(t, Waiting, OriginBlocked)
				n.Stack, n.Reason = stack, reason
			} else {
				n := e.beginSpan(t, Runnable, OriginStopped)
				n.Stack, n.Reason = stack, reason
			}
			return false
		case tracefmt.EvGoSwitch:
			e.closeSpan(t)
			n := e.beginSpan(t, Waiting, OriginSwitched)
			n.Peer = g.ids.ids[r.peer()]
			return false
		case tracefmt.EvGoDestroy, tracefmt.EvGoDestroySyscall, tracefmt.EvGoSwitchDestroy:
			if e.open {
				e.openSpan.Died = true
			}
			e.closeSpan(t)
			e.beginSpan(t, NotAlive, OriginDestroyed)
			e.assist, e.stw = false, false
			return false
		case tracefmt.EvGoSyscallBegin:
			stack := g.stack(r.stack())
			e.closeRunning(t, stack)
			n := e.beginSpan(t, Syscall, OriginSyscall)
			n.Stack = stack
		case tracefmt.EvGoSyscallEnd:
			e.closeSpan(t)
			e.beginSpan(t, Running, OriginSyscallEnded)
		case tracefmt.EvGoSyscallEndBlocked:
			var stack tracefmt.StackID
			if e.open {
				stack = e.openSpan.Stack
			}
			e.closeSpan(t)
			n := e.beginSpan(t, Runnable, OriginSyscallEnded)
			n.Stack = stack
			return false
		case tracefmt.EvGCMarkAssistBegin:
			e.assistStack = g.stack(r.stack())
			e.cutRunning(t, e.assistStack)
			e.assist = true
			if e.open {
				e.openSpan.Assist = true
			}
		case tracefmt.EvGCMarkAssistEnd:
			e.cutRunning(t, e.assistStack)
			e.assist = false
			if e.open {
				e.openSpan.Assist = false
			}
		case tracefmt.EvSTWBegin:
			e.cutRunning(t, g.stack(r.stack()))
			e.stw = true
			if e.open {
				e.openSpan.InSTW = true
			}
		case tracefmt.EvSTWEnd:
			e.cutRunning(t, 0)
			e.stw = false
			if e.open {
				e.openSpan.InSTW = false
			}
		case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack, tracefmt.EvGCMarkAssistActive:
			// About another goroutine.
		default:
			if s := r.stack(); s != 0 {
				e.cutRunning(t, g.stack(s))
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

// beginSpan begins a span. It is filled in place: a copy of a fresh struct would
// stall until the stores to its fields are done.
func (e *expander) beginSpan(t int64, state State, origin Origin) *Span {
	e.buf = append(e.buf, Span{})
	s := &e.buf[len(e.buf)-1]
	s.Start, s.State, s.Origin, s.Assist, s.InSTW = t, state, origin, e.assist, e.stw
	e.openSpan, e.open = s, true
	return s
}

// closeSpan ends the open span at t, or with length zero if t is before its start.
func (e *expander) closeSpan(t int64) {
	if !e.open {
		return
	}
	e.open = false
	e.openSpan.End = max(t, e.openSpan.Start)
	if e.openSpan.End <= e.from || e.openSpan.Start >= e.to {
		e.buf = e.buf[:len(e.buf)-1]
	}
}

// dropOpenSpan forgets the open span.
func (e *expander) dropOpenSpan() {
	if e.open {
		e.open = false
		e.buf = e.buf[:len(e.buf)-1]
	}
}

// closeRunning closes a running span with the stack of the event that ends it.
func (e *expander) closeRunning(t int64, stack tracefmt.StackID) {
	if e.open && e.openSpan.State == Running {
		e.openSpan.Stack = stack
	}
	e.closeSpan(t)
}

// cutRunning splits a running span at an event with a stack.
func (e *expander) cutRunning(t int64, stack tracefmt.StackID) {
	if !e.open || e.openSpan.State != Running {
		return
	}
	cutTime := max(t, e.openSpan.Start)
	e.closeRunning(t, stack)
	e.beginSpan(cutTime, Running, OriginCut)
}

func (e *expander) closeLast(end int64) {
	if e.open {
		e.closeSpan(max(end, e.openSpan.Start))
	}
}
