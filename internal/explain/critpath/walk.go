// Package critpath finds what a request really waited for: its critical path.
//
// A request's path is walked backwards from its end on the goroutine that
// ended it. Where that goroutine waited, the walk goes on in the goroutine that
// woke it, but only within the time of that wait, and so on; where a goroutine
// was born within the time, the walk goes on in its creator. Every instant of
// the request is emitted exactly once, so the steps add up to its latency.
//
// The bound is what keeps the walk from wandering through locks into other
// requests (Giraldeau and Dagenais, "Wait Analysis of Distributed Systems
// Using Kernel Tracing", IEEE TPDS 2016, describe it for processes in the
// kernel).
//
// A recorded waker is not always the cause; see [Walker] for the rules.
package critpath

import (
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Kind says what a step is.
type Kind uint8

// A Step is a stretch of a critical path in one state of one goroutine.
type Step struct {
	Start, End int64
	G          uint64
	Kind       Kind
	Beginning  timeline.How
	// Stack is where: see timeline.Span.
	Stack tracefmt.StackID
	// ResumeStack is, for running time, the stack of the event before it on the same
	// goroutine: where it resumed. 0: not known.
	ResumeStack tracefmt.StackID
	Reason      tracefmt.StringID
	// FollowedWait is the index in Vias of the wait that led here, or -1.
	FollowedWait int32
	// Inbound says that a network wait is for the client of a request.
	Inbound bool
	// Preempted says that Stack is where a CPU step was at its end, not just
	// where the next event came from.
	Preempted bool
	// WokenByPoller says that a Runnable step began with a wake by the poller: where
	// nobody had polled for a while, the data may have been there since then.
	WokenByPoller bool
	// TimerStart is, for a Sleep that a timer's function of the standard library
	// ended (a context's deadline), where that function starts; 0 otherwise.
	TimerStart tracefmt.StackID
}

// A Via is a wait that the walk followed to its waker.
type FollowedWait struct {
	Kind   WaitKind
	Stack  tracefmt.StackID
	Parent int32 // the via before, nearer to the request, or -1
	// G waited from From to To, also where the walk needs only a part of that; Waker ended it.
	G, Waker   uint64
	Start, End int64
}

// WaitKind names a kind of wait that the walk follows.
type WaitKind uint8

// Waits.
const (
	WaitOther WaitKind = iota
	WaitLock
	WaitGroup
	WaitCond
	WaitOnce
	WaitChan
	WaitSend
	WaitSelect
	WaitCoroutine
	WaitPoll // a network wait ended by a deadline or a close
	WaitPeer // a network wait for the answer of the process itself: see Answer
)

var waitKindNames = [...]string{"wait", "lock", "waitgroup", "cond", "once", "chan", "chan send", "select", "coroutine", "network", "peer"}

func (kind WaitKind) String() string { return waitKindNames[kind] }

// maxSteps bounds one walk. It is by steps, not by depth: chains through a
// lock that all connections share are rightly 60 deep.
const maxSteps = 1 << 18

// maxNesting bounds how many waits within waits are followed: where ten thousand goroutines queue for one place, each of them
// waited for all who came before it. What is left is told as the wait in that queue.
const maxNesting = 256

// A Walker walks. It keeps its buffers from walk to walk; one goroutine may
// use it at a time, several Walkers may read one window together.
//
// Which wakers are believed (facts measured on real traces, see DESIGN 5):
//
//   - sync, channel, select and Cond waits: the goroutine that made the wake.
//     A select or receive woken by nobody is a timer's.
//   - sync waits with gcStart, gcMarkDone or stopTheWorld on their stack are
//     the runtime's own, not locks.
//   - network waits: nobody, unless the waker's stack is in internal/poll (a
//     deadline passed on, a close). A goroutine that restarts the world polls
//     the network by the way and shows as waker of strangers.
//   - a goroutine that nobody created is a timer's function: the time before
//     its birth is sleep; if the function is the standard library's (a context's
//     deadline), where it is waited for.
//   - who gives up a place of a pool that is handed to any of those who wait may have come after the waiter: what it did
//     before it wanted a place itself is not on the path.
//   - a Cond's waiter that a Broadcast woke, that finds nothing done and waits
//     again, was not meant: only the last wake counts. (A lock's waiter that was
//     woken and lost had a holder to wait for each time, and a Signal means
//     one: those waits are followed one by one.)
//   - so it is where a goroutine that serves several was woken by later arrivals, which it kept, and a timer in the same
//     select ended its last wait there: the timer ran meanwhile, and the arrivals held nobody up.
type Walker struct {
	// FollowedWaits of the last walk.
	FollowedWaits []FollowedWait
	// Hops counts the wakers followed in the last walk, Cut says that it was
	// given up for its length.
	Hops      int
	Truncated bool
	// VisitOwnStack is called, if not nil, for every span of the request's own goroutine:
	// their stacks name the request.
	VisitOwnStack func(stack tracefmt.StackID)
	// AnswersOf, if not nil, returns which requests of this process a request waits
	// for over the network, by its goroutine and its start.
	AnswersOf func(g uint64, start int64) []Answer
	// IsClientWait, if not nil, says of more waits for the network that a client of the process ends them.
	IsClientWait func(wait tracefmt.StackID) bool

	window         *timeline.Window
	symbols        *tracefmt.Symbols
	stackTraits    []stackTraits // by stack
	functionTraits []stackTraits // by function
	spans          []timeline.Span
	frames         []walkFrame
	steps          []Step
	reasonClasses  []waitReason // by string
}

type walkFrame struct {
	g              uint64
	start          int64 // the walk ends here
	firstSpan      int   // spans[lo:idx+1] are still to be looked at
	nextSpan       int
	spanCount      int // how many spans it began with
	followedWait   int32
	isOwn          bool
	laterWaitStack tracefmt.StackID // of the wait that was dealt with last, the next one in time
	// for the request whose work this is: what it waits for here, and at which level it was itself asked for
	answers     []Answer
	answerDepth int
}

// New returns a Walker over a window.
func New(window *timeline.Window, symbols *tracefmt.Symbols) *Walker {
	return &Walker{window: window, symbols: symbols}
}

type waitReason uint8

const (
	reasonUnclassified waitReason = iota
	reasonOther
	reasonNetwork
	reasonSelect
	reasonReceive
	reasonSend
	reasonCond
	reasonSync
	reasonSleep
	reasonForever
	reasonMarkAssist
	reasonGCPhase
	reasonCoroutineSwitch
)

func waitReasonOf(s string) waitReason {
	switch s {
	case "network":
		return reasonNetwork
	case "select":
		return reasonSelect
	case "chan receive":
		return reasonReceive
	case "chan send":
		return reasonSend
	case "sync.(*Cond).Wait":
		return reasonCond
	case "sync":
		return reasonSync
	case "sleep":
		return reasonSleep
	case "forever":
		return reasonForever
	case "GC mark assist wait for work":
		return reasonMarkAssist
	case "GC background sweeper wait", "wait until GC ends", "GC weak to strong wait", "system goroutine wait", "preempted":
		return reasonGCPhase
	case "":
		return reasonCoroutineSwitch
	}
	return reasonOther
}

func (w *Walker) waitReason(id tracefmt.StringID) waitReason {
	for int(id) >= len(w.reasonClasses) {
		w.reasonClasses = append(w.reasonClasses, reasonUnclassified)
	}
	if w.reasonClasses[id] == reasonUnclassified {
		w.reasonClasses[id] = waitReasonOf(w.symbols.String(id))
	}
	return w.reasonClasses[id]
}

// Walk returns the critical path of what goroutine g was doing from from to
// to: steps in order of time that cover it without gap or overlap. The slice
// is valid until the next call.
func (w *Walker) Walk(g uint64, from, to int64) []Step {
	w.steps, w.spans, w.frames, w.FollowedWaits = w.steps[:0], w.spans[:0], w.frames[:0], w.FollowedWaits[:0]
	w.Hops, w.Truncated = 0, false
	if to <= from {
		return nil
	}
	cursor := to
	w.pushFrame(g, from, cursor, -1, true)
	w.frames[0].answers = w.findAnswers(g, from)
	for n := 0; len(w.frames) > 0; n++ {
		if n > maxSteps {
			w.Truncated = true
			w.emitStep(&cursor, from, Step{Kind: Unknown, FollowedWait: -1})
			break
		}
		frame := &w.frames[len(w.frames)-1]
		if cursor <= frame.start {
			w.popFrame()
			continue
		}
		if frame.nextSpan < frame.firstSpan {
			if first := frame.firstSpan; frame.spanCount > 0 && w.spans[first].How == timeline.HowCreated && w.spans[first].Start > frame.start {
				w.followCreator(*frame, w.spans[first], &cursor)
				continue
			}
			w.emitStep(&cursor, frame.start, Step{G: frame.g, Kind: Unknown, FollowedWait: frame.followedWait})
			w.popFrame()
			continue
		}
		span := &w.spans[frame.nextSpan]
		if span.End < cursor {
			w.emitStep(&cursor, max(span.End, frame.start), Step{G: frame.g, Kind: Unknown, FollowedWait: frame.followedWait})
			continue
		}
		frame.nextSpan--
		start := max(span.Start, frame.start)
		if frame.isOwn && w.VisitOwnStack != nil && span.Stack != 0 && span.How != timeline.HowCreated && start < cursor {
			w.VisitOwnStack(span.Stack)
		}
		if start < cursor {
			if span.State == timeline.Waiting && w.followWait(frame, span, start, &cursor) {
				continue // f is not valid any more
			}
			frame = &w.frames[len(w.frames)-1]
			span = &w.spans[frame.nextSpan+1]
			if span.State != timeline.Waiting {
				w.emitSpan(frame, span, start, &cursor)
			}
		}
	}
	slices.Reverse(w.steps)
	return w.steps
}

// followCreator goes on in the goroutine that made the one of frame f.
func (w *Walker) followCreator(frame walkFrame, first timeline.Span, cursor *int64) {
	w.popFrame()
	if first.Peer == 0 {
		// Nobody: a timer's function. The time before its birth is the timer's.
		step := Step{G: frame.g, Kind: Sleep, Beginning: timeline.HowCreated, Stack: w.window.StartOf(frame.g, first.Start), FollowedWait: frame.followedWait}
		if n := len(w.frames); n > 0 && frame.followedWait >= 0 && w.traitsOf(step.Stack)&notStdlib == 0 {
			followed := w.FollowedWaits[frame.followedWait]
			step.TimerStart = step.Stack
			step.G, step.Stack, step.FollowedWait = w.frames[n-1].g, followed.Stack, followed.Parent
		}
		w.emitStep(cursor, frame.start, step)
		return
	}
	// What made it may serve others as well: a connection, a dispatcher.
	w.pushFrame(first.Peer, frame.start, *cursor, frame.followedWait, false)
	w.inheritAnswers(frame)
}

func (w *Walker) pushFrame(g uint64, start, end int64, followedWait int32, isOwn bool) {
	firstSpan := len(w.spans)
	w.spans = w.window.SpansCoarse(g, start, end, w.spans)
	w.frames = append(w.frames, walkFrame{g: g, start: start, firstSpan: firstSpan, nextSpan: len(w.spans) - 1, spanCount: len(w.spans) - firstSpan, followedWait: followedWait, isOwn: isOwn})
}

func (w *Walker) popFrame() {
	f := w.frames[len(w.frames)-1]
	w.spans = w.spans[:f.firstSpan]
	w.frames = w.frames[:len(w.frames)-1]
}

func (w *Walker) emitStep(cursor *int64, start int64, step Step) {
	if start >= *cursor {
		return
	}
	step.Start, step.End = start, *cursor
	*cursor = start
	w.steps = append(w.steps, step)
}

// emitSpan emits a span that is not a wait. The step is filled in where it stands:
// it is most of the steps.
func (w *Walker) emitSpan(frame *walkFrame, span *timeline.Span, start int64, cursor *int64) {
	if start >= *cursor {
		return
	}
	w.steps = append(w.steps, Step{})
	step := &w.steps[len(w.steps)-1]
	step.Start, step.End = start, *cursor
	*cursor = start
	step.G, step.Beginning, step.Stack, step.Reason, step.FollowedWait = frame.g, span.How, span.Stack, span.Reason, frame.followedWait
	switch span.State {
	case timeline.Running:
		step.Kind, step.Preempted = CPU, span.Preempted
		if frame.nextSpan >= frame.firstSpan {
			if previous := &w.spans[frame.nextSpan]; previous.How != timeline.HowCreated {
				step.ResumeStack = previous.Stack
			}
		}
		switch {
		case span.Assist:
			step.Kind = Assist
		case span.InSTW:
			step.Kind = StopWorld
		}
	case timeline.Runnable:
		step.Kind = Runnable
		step.WokenByPoller = span.How == timeline.HowUnblocked && span.Waker == 0 && w.waitReason(span.Reason) == reasonNetwork && w.unreadTime(span.Start, span.WakeNoP) > 0
		if span.Assist {
			step.Kind = Assist
		}
	case timeline.Syscall:
		step.Kind = Syscall
	}
}

// followWait deals with a wait: it goes on in the waker and reports true, or
// emits the wait itself.
func (w *Walker) followWait(frame *walkFrame, span *timeline.Span, start int64, cursor *int64) bool {
	v := w.judgeWait(frame, span, *cursor)
	answer := frame.matchAnswer(&v, start, *cursor)
	if v.pollGapStart != 0 {
		gap := v.step
		gap.Kind = PollGap
		w.emitStep(cursor, max(v.pollGapStart, start), gap)
	}
	if answer != nil && w.followAnswer(frame, span, start, cursor, &v, answer) {
		return true
	}
	hasSamePlace := frame.laterWaitStack == span.Stack
	frame.laterWaitStack = span.Stack
	if v.mayBeFutile {
		start = w.mergeVainWaits(frame, span, start, w.endedByBroadcast)
	} else if v.endedByTimer && !frame.isOwn && !hasSamePlace {
		start = w.mergeVainWaits(frame, span, start, endedByGoroutine)
	}
	if !v.followWaker || len(w.frames) >= maxNesting {
		w.emitStep(cursor, start, v.step)
		return false
	}
	followedWait := frame.followedWait
	if followedWait >= 0 && w.mayHaveOvertaken(w.FollowedWaits[followedWait].Stack, span.Stack) {
		start = frame.start
	}
	if v.kind != WaitCoroutine {
		followedWait = int32(len(w.FollowedWaits))
		w.FollowedWaits = append(w.FollowedWaits, FollowedWait{Kind: v.kind, Stack: span.Stack, Parent: frame.followedWait, G: frame.g, Waker: span.Waker, Start: min(span.Start, start), End: span.End})
	}
	outer := *frame
	if !w.enterGoroutine(span.Waker, start, *cursor, followedWait) {
		w.emitStep(cursor, start, v.step) // the wait stays the leaf it is
		return false
	}
	w.inheritAnswers(outer)
	return true
}

// enterGoroutine goes on in the goroutine that ended a wait. It reports false if nothing is known of that.
func (w *Walker) enterGoroutine(g uint64, start, end int64, followedWait int32) bool {
	spanCount := len(w.spans)
	w.pushFrame(g, start, end, followedWait, false)
	if len(w.spans) == spanCount {
		w.popFrame()
		return false
	}
	w.Hops++
	return true
}

// mayHaveOvertaken reports whether who ended a wait for a place of a pool had waited for one itself, and had it, though it may have
// come later, because places are handed to any of those who wait. What it did before that wait held nobody up: the place was
// then with who gave it to it.
func (w *Walker) mayHaveOvertaken(followedStack, stack tracefmt.StackID) bool {
	return w.traitsOf(followedStack)&w.traitsOf(stack)&unorderedSlot != 0
}

// A verdict says what a wait was.
type waitVerdict struct {
	step         Step     // what it is if it is not followed
	kind         WaitKind // what it is if it is
	followWaker  bool     // the waker is believed
	mayBeFutile  bool     // the waits on the same Cond before it may have been for the same
	endedByTimer bool     // a timer ended it, beside which others may do so
	pollGapStart int64    // nobody polled the network since; 0: not known, or somebody did
}

// judgeWait decides whether a wait is followed. f.idx stands before the wait's
// span; hi is the end of what is looked at.
func (w *Walker) judgeWait(frame *walkFrame, span *timeline.Span, end int64) waitVerdict {
	v := waitVerdict{step: Step{G: frame.g, Beginning: span.How, Stack: span.Stack, Reason: span.Reason, FollowedWait: frame.followedWait}}
	step := &v.step
	hasEnded := span.Woken && span.End <= end
	traits := w.traitsOf(span.Stack)
	reason := w.waitReason(span.Reason)
	if span.How == timeline.HowStatus && span.Reason == 0 {
		reason = w.waitReasonByStack(span.Stack) // a status does not say why
	}
	switch reason {
	case reasonSleep:
		step.Kind = Sleep
	case reasonMarkAssist:
		step.Kind = Assist
	case reasonGCPhase:
		step.Kind = GCWait
	case reasonForever:
		step.Kind = Chan
	case reasonNetwork:
		step.Kind, step.Inbound = Network, traits&waitsForClient != 0 || w.IsClientWait != nil && w.IsClientWait(span.Stack)
		if hasEnded && span.Waker != 0 && w.traitsOf(span.WakerStack)&(inPoll|restartsWorld) == inPoll {
			v.kind = WaitPoll
		} else if hasEnded && span.Waker == 0 {
			if gap := w.unreadTime(span.End, span.WakeNoP); gap > 0 && span.End-gap < end {
				v.pollGapStart = span.End - gap
			}
		}
	case reasonSelect, reasonReceive:
		step.Kind, v.kind = Chan, WaitChan
		if reason == reasonSelect {
			v.kind = WaitSelect
		}
		if hasEnded && span.Waker == 0 {
			step.Kind, v.endedByTimer = Sleep, true // a timer's channel
		}
	case reasonSend:
		step.Kind, v.kind = Chan, WaitSend
	case reasonCond:
		step.Kind, v.kind = Lock, WaitCond
		v.mayBeFutile = hasEnded && span.Waker != 0 && span.Waker != frame.g
	case reasonSync:
		step.Kind, v.kind = Lock, WaitLock
		switch {
		case traits&stopWorldSemaphore != 0:
			step.Kind, v.kind = StopWorld, WaitOther
		case traits&gcSemaphore != 0:
			step.Kind, v.kind = GCWait, WaitOther
		case traits&inWaitGroup != 0:
			v.kind = WaitGroup
		case traits&inOnce != 0:
			v.kind = WaitOnce
		}
	case reasonCoroutineSwitch:
		step.Kind, v.kind = Chan, WaitCoroutine
	default:
		step.Kind = Unknown
		switch {
		case hasEnded && span.Waker != 0:
			v.kind = WaitLock
		case hasEnded && span.How == timeline.HowStatus:
			// It waited when the trace began, so neither why nor where is known.
			// One that reads from the poller first of all waited for that.
			if next := w.stackAfterWait(frame); w.traitsOf(next)&inPoll != 0 {
				step.Kind, step.Stack, step.Inbound = Network, next, w.traitsOf(next)&waitsForClient != 0
			}
		}
	}
	if span.Assist || traits&inMarkAssist != 0 {
		step.Kind, v.kind = Assist, WaitOther
	}
	v.followWaker = v.kind != WaitOther && hasEnded && span.Waker != 0 && span.Waker != frame.g
	return v
}

// stackAfterWait returns the stack of the first event after the wait that was just
// taken from f, 0 if that lies outside.
func (w *Walker) stackAfterWait(frame *walkFrame) tracefmt.StackID {
	for i := frame.nextSpan + 2; i < len(w.spans); i++ {
		if span := &w.spans[i]; span.State == timeline.Running {
			return span.Stack
		} else if span.State != timeline.Runnable {
			break
		}
	}
	return 0
}

// maxConditionCheckNS is how long a Cond's waiter may look at its condition before it
// waits again for the wake to count as futile: it only compared something.
const maxConditionCheckNS = 100e3

// mergeVainWaits returns the start of the first of a row of waits at one place, of which s is the last: each of those before was
// ended by a wake that is vain, and its goroutine waited again. It takes those before s off the frame.
func (w *Walker) mergeVainWaits(frame *walkFrame, span *timeline.Span, start int64, endedInVain func(*timeline.Span) bool) int64 {
	nextWaitStart := span.Start // of the wait after this one
	for i := frame.nextSpan; i >= frame.firstSpan && start > frame.start; i-- {
		previous := &w.spans[i]
		switch {
		case previous.State == timeline.Waiting && previous.Stack == span.Stack && previous.Reason == span.Reason && endedInVain(previous):
			start, nextWaitStart = max(previous.Start, frame.start), previous.Start
			frame.nextSpan = i - 1
			continue
		case previous.State == timeline.Running && nextWaitStart-previous.Start <= maxConditionCheckNS:
			continue
		case previous.State == timeline.Runnable && previous.How != timeline.HowCreated:
			nextWaitStart = previous.Start
			continue
		case previous.State == timeline.Waiting && w.traitsOf(previous.Stack)&(inCond|inMutex) == inCond|inMutex:
			nextWaitStart = previous.Start // takes the lock again
			continue
		}
		break
	}
	return start
}

// endedByBroadcast reports whether a Broadcast ended a wait, which need not have been meant for who waited.
func (w *Walker) endedByBroadcast(span *timeline.Span) bool {
	return span.Waker != 0 && w.traitsOf(span.WakerStack)&inBroadcast != 0
}

// endedByGoroutine reports whether somebody ended a wait that a timer could have ended as well: he gave something to be kept until then.
func endedByGoroutine(span *timeline.Span) bool { return span.Woken && span.Waker != 0 }

// waitReasonByStack tells why a goroutine waits from where it does: for those that
// were waiting before the trace began, of which only the stack is known.
func (w *Walker) waitReasonByStack(id tracefmt.StackID) waitReason {
	for _, f := range w.symbols.Stack(id) {
		switch w.symbols.String(w.symbols.Frame(f).Func) {
		case "internal/poll.runtime_pollWait":
			return reasonNetwork
		case "time.Sleep":
			return reasonSleep
		case "runtime.selectgo":
			return reasonSelect
		case "runtime.block":
			return reasonForever
		case "runtime.chanrecv", "runtime.chanrecv1", "runtime.chanrecv2":
			return reasonReceive
		case "runtime.chansend", "runtime.chansend1":
			return reasonSend
		case "sync.runtime_notifyListWait":
			return reasonCond
		case "sync.runtime_Semacquire", "sync.runtime_SemacquireMutex", "sync.runtime_SemacquireRWMutex",
			"sync.runtime_SemacquireRWMutexR", "sync.runtime_SemacquireWaitGroup", "internal/sync.runtime_SemacquireMutex":
			return reasonSync
		}
	}
	return reasonOther
}
