package timeline

import (
	"math"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// State is the scheduling state of a goroutine.
type State uint8

// The states of a goroutine. NotAlive is the state before its creation and after its end.
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

// Origin is the event that began a span.
type Origin uint8

// The events that begin spans.
const (
	OriginUnknown      Origin = iota
	OriginStatus              // the state began before the trace, or the event that began it was lost
	OriginCreated             // the goroutine was created
	OriginStarted             // it got a P
	OriginBlocked             // it blocked
	OriginSwitched            // it switched to another coroutine, or another one switched to it
	OriginUnblocked           // it was woken
	OriginStopped             // it yielded or was preempted
	OriginSyscall             // it entered a system call or C
	OriginSyscallEnded        // it returned with its P (then running) or without one (then runnable)
	OriginCut                 // an event with a stack divided its run
	OriginDestroyed
)

// BeforeTrace is the Start of a span whose beginning is not in the trace.
const BeforeTrace = math.MinInt64

// A Span is one state of one goroutine over [Start, End). Each event that has a stack ends a running span, so that
// running time is attributed to the code before that event; the spans of one run follow each other without a gap.
type Span struct {
	Start, End int64
	State      State
	Origin     Origin
	// Reason is the runtime's text for why it waits or stopped.
	Reason tracefmt.StringID
	// Stack is where a wait, system call or stop began. For a running span it is the stack of the event that
	// ended it; for a runnable span, the stack of the wait, system call or run before it, or of the creation.
	Stack tracefmt.StackID
	// Waker is the goroutine that ended this wait or, for a runnable span, the wait before it. It is 0 for the
	// poller, a timer or an unknown waker.
	Waker uint64
	// WakerStack is the stack of the waker at the wake.
	WakerStack tracefmt.StackID
	// Peer is the creator, for a span that a creation began, and the other coroutine, for one that a switch
	// began.
	Peer uint64
	// WakeNoP reports that a thread without a P woke it: sysmon.
	WakeNoP bool
	// Woken reports that the end of the wait is in the trace.
	Woken bool
	// Assist reports that the span is part of a GC mark assist, or of sweeping for an allocation (deductSweepCredit and
	// mcentral.cacheSpan of the runtime). Nothing preempts a goroutine that sweeps, so its whole sweep is in one run.
	Assist bool
	// InSTW reports that the goroutine itself stops the world.
	InSTW bool
	// Preempted reports that a running span ended by preemption; Stack is then where the code was at that
	// instant.
	Preempted bool
	// Died reports that the end of the goroutine ended the span.
	Died bool
}

// Spans appends to buf the spans of a goroutine that overlap [from, to), in order, and returns buf. Spans are not
// cut at from and to: the first may begin earlier, the last may end later. A span that continues after the window
// ends at the window's end, and Woken is false. Nothing is appended for a goroutine that does not occur in the
// window.
func (w *Window) Spans(id uint64, from, to int64, buf []Span) []Span {
	return w.appendSpans(id, expander{from: from, to: to, buf: buf})
}

// SpansCoarse is Spans (of goroutine id in [from, to), appended to buf) with less detail for long runs, of about a thousand
// events or more. It divides the middle of such a run into a few parts with equal numbers of events. Within a part, all time of
// one kind (state and stack) is one span, and the spans are ordered by the first occurrence of their kind. So the time of each
// stack is correct, but its order within a part is lost, and the time beyond the sixteen most frequent kinds of a part has no
// stack. The cost does not grow with the number of events.
func (w *Window) SpansCoarse(id uint64, from, to int64, buf []Span) []Span {
	return w.appendSpans(id, expander{from: from, to: to, buf: buf, coarse: true, initialLen: len(buf)})
}

// EachSpans calls f with the spans that Spans would return for goroutine id in [from, to), in batches, until f returns false,
// so that the memory does not grow with the life of the goroutine. The batches are in buf, which EachSpans returns, perhaps
// extended.
func (w *Window) EachSpans(id uint64, from, to int64, buf []Span, f func([]Span) bool) []Span {
	isDone := false
	buf = w.appendSpans(id, expander{from: from, to: to, buf: buf[:0], sink: func(spans []Span) bool {
		isDone = !f(spans)
		return !isDone
	}})
	if !isDone {
		f(buf)
	}
	return buf
}

// spansPerCall is the number of spans after which EachSpans calls f.
const spansPerCall = 256

// flushToSink passes the closed spans to the sink, if there are spansPerCall or more, and removes them from buf. It returns
// false if the sink needs no more.
func (e *expander) flushToSink() bool {
	return e.sink == nil || len(e.buf) < spansPerCall || e.flush()
}

// flush is flushToSink, however many spans there are.
func (e *expander) flush() bool {
	n := len(e.buf)
	if e.open {
		n--
	}
	if !e.sink(e.buf[:n]) {
		return false
	}
	if e.buf = append(e.buf[:0], e.buf[n:]...); e.open {
		e.openSpan = &e.buf[0]
	}
	return true
}

// appendSpans appends to e.buf the spans of a goroutine between e.from and e.to, and returns the buffer. It expands the
// goroutine's pieces from the nearest point at which its state is known.
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
	if end := max(e.to, w.Gens[len(w.Gens)-1].End); e.open {
		e.closeSpan(max(end, e.openSpan.Start))
	}
	return e.result(w)
}

// entryAt returns the slot from which generation i alone shows the state of a goroutine at time from. ok is false if an earlier
// generation is needed.
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

// firstNeeded returns the index of the generation, i or an earlier one, in which expansion must begin so that the span that
// contains from is complete. A runnable span also repeats fields of the span before it.
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

// result returns the spans, and adds the number of visited events to Window.Passed.
func (e *expander) result(w *Window) []Span {
	if w.Passed != nil {
		w.Passed.Add(int64(e.passed))
	}
	return e.buf
}

// secondChange returns the time of goroutine number d's second change of state in the generation. From then on its spans do not
// depend on the generation before; after only one change, a runnable span still repeats fields of the wait before it. After
// longRunAfter events it returns the end of time, because it is never wrong to read the generation before as well.
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

// An expander builds the spans of one goroutine from its pieces, for one query.
type expander struct {
	from, to int64
	buf      []Span
	// openSpan is the last element of buf while its end is unknown (open). It is built in place so that it
	// need not be copied. It must not be changed once it is closed.
	openSpan   *Span
	open       bool
	before     func(id uint64) (Span, bool) // Window.carriedSpan; nil if expansion begins inside the window
	sink       func([]Span) bool            // receives batches, see Window.EachSpans; nil for none
	coarse     bool                         // less detail for long runs, see Window.SpansCoarse
	initialLen int                          // length of buf before the first span
	passed     int                          // number of visited events
	loaded     uint64                       // see Gen.load
	// marking, if not nil, receives marks of the run that is expanded.
	marking *longRun
	// States that continue over several spans.
	assist, stw bool
	assistStack tracefmt.StackID // stack at the begin of the assist or sweep
}

// expandGen expands the pieces of goroutine number d in generation i of the window. It returns true when it has reached the end
// of the requested time.
func (e *expander) expandGen(w *Window, i int, d uint32) bool {
	g := w.Gens[i]
	lo, hi := g.slotBase[d], g.slotBase[d+1]
	if !e.open {
		if e.from > g.Base {
			// The last piece that begins at or before from determines the state at from.
			if k, ok := g.entrySlot(d, e.from-g.Base, 3); ok {
				lo = k
			}
		}
		e.assist, e.assistStack, e.stw = w.rangeState(i, d, lo-g.slotBase[d])
	}
	return e.expandPieces(g, d, lo, hi)
}

// expandPieces expands the pieces at slots[lo:hi] of goroutine number d. It returns true when it has reached the end of the
// requested time.
func (e *expander) expandPieces(g *Gen, d, lo, hi uint32) bool {
	for preloaded := lo; lo < hi; lo++ {
		if e.sink != nil && lo == preloaded {
			preloaded = min(lo+recordsAhead, hi)
			e.loaded = g.preloadRecords(g.slots[lo:preloaded])
		}
		s := g.slots[lo]
		if s.rec == 0 {
			continue
		}
		if !e.flushToSink() {
			return true
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

// recordsAhead is how many records are loaded into the cache together. Those of one goroutine are far from each other, and the CPU
// waits for all of them no longer than for one.
const recordsAhead = 16

// preloadRecords reads the records of slots and those on the next line of the CPU's cache, so that they are in the cache. The sum
// only keeps the compiler from removing the reads.
func (g *Gen) preloadRecords(slots []slot) (sum uint64) {
	for i := range slots {
		s := g.slabs[slots[i].rec>>slabBits]
		sum += s.words[slots[i].rec&slabMask] + s.words[(slots[i].rec+8)&slabMask]
	}
	return sum
}

// expandRun expands the events of the run that begins at runStart. Of a long run it enters at a mark and, if less detail is
// requested, appends sums instead of spans. It returns true when it has reached the end of the requested time.
func (e *expander) expandRun(g *Gen, runStart ref) bool {
	var key longKey // identifies the run and the state at its begin
	if e.open {
		key = longKey{runStart, e.openSpan.State, e.assist, e.stw, e.assistStack}
	}
	entered, skimmed := false, !e.coarse
	before, last := runStart, int64(0) // the last visited event, and its time
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
		if passed%markEvery == 0 && !e.flushToSink() {
			return true
		}
		if passed%markEvery == 0 && e.open {
			next := before
			switch {
			case e.marking != nil:
				e.marking.addMark(e, before, last)
			case passed == markEvery && !skimmed && opened >= e.from && origin == OriginStarted && len(e.buf)-e.initialLen > coarseSpans:
				// There are enough spans in full detail: expand this run again with less detail.
				skimmed = true
				e.buf = append(e.buf[:start-1], Span{Start: opened, State: key.state, Origin: origin, Assist: key.assist, InSTW: key.stw})
				e.openSpan, e.assist, e.stw, e.assistStack = &e.buf[start-1], key.assist, key.stw, key.assistStack
				next = g.longRunOf(key).summarize(e, key.rec, coarseFewerParts)
			case passed < longRunAfter:
			case !entered && t <= e.from:
				entered = true
				next = g.longRunOf(key).enterAtMark(e, before)
			case !skimmed && e.openSpan.Start >= e.from:
				skimmed = true
				next = g.longRunOf(key).summarize(e, before, coarseParts)
			}
			if next != before {
				before = next
				passed-- // next is at a mark again
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
			e.closeSpanAtStack(t, stack)
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
			e.closeSpanAtStack(t, stack)
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
		case tracefmt.EvGCMarkAssistBegin, tracefmt.EvGCSweepBegin:
			e.assistStack = g.stack(r.stack())
			e.cutRunning(t, e.assistStack)
			e.assist = true
			if e.open {
				e.openSpan.Assist = true
			}
		case tracefmt.EvGCMarkAssistEnd, tracefmt.EvGCSweepEnd:
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
			// These are about another goroutine.
		default:
			if s := r.stack(); s != 0 {
				e.cutRunning(t, g.stack(s))
			}
		}
	}
}

// statusState converts a goroutine status of the trace format to a State.
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

// beginSpan appends an open span that begins at t, and returns it. It fills the element of buf in place: copying a fresh struct
// would stall until the stores to its fields are done.
func (e *expander) beginSpan(t int64, state State, origin Origin) *Span {
	e.buf = append(e.buf, Span{})
	s := &e.buf[len(e.buf)-1]
	s.Start, s.State, s.Origin, s.Assist, s.InSTW = t, state, origin, e.assist, e.stw
	e.openSpan, e.open = s, true
	return s
}

// closeSpan ends the open span at t (with length 0 if t is before its start), and removes it if it is outside of [from, to).
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

// dropOpenSpan removes the open span.
func (e *expander) dropOpenSpan() {
	if e.open {
		e.open = false
		e.buf = e.buf[:len(e.buf)-1]
	}
}

// closeSpanAtStack is closeSpan for an event with a stack: a running span gets that stack, because its time belongs to the code
// before the event.
func (e *expander) closeSpanAtStack(t int64, stack tracefmt.StackID) {
	if e.open && e.openSpan.State == Running {
		e.openSpan.Stack = stack
	}
	e.closeSpan(t)
}

// cutRunning ends an open running span at an event with a stack, and begins another running span. Other states stay as they
// are.
func (e *expander) cutRunning(t int64, stack tracefmt.StackID) {
	if !e.open || e.openSpan.State != Running {
		return
	}
	cutTime := max(t, e.openSpan.Start)
	e.closeSpanAtStack(t, stack)
	e.beginSpan(cutTime, Running, OriginCut)
}
