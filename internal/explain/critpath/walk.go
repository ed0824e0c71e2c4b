// Package critpath computes the critical path of a request: the steps, of the request's goroutine and of others, that
// determined how long the request took.
//
// The input is a window of decoded generations, a goroutine and an interval: the time in which that goroutine worked
// for the request. The output is a list of steps, each a part of the interval in one state of one goroutine. The
// steps cover the interval without gap or overlap, so their lengths add up to the latency of the request.
//
// The walk goes backward in time, from the end of the request. Where the goroutine waited, the walk continues in the
// goroutine that woke it, limited to the interval of that wait. Where a goroutine was created within the interval,
// the walk continues in its creator. A wait that no other goroutine ended (network, timer) is a step itself.
//
// The limit to the interval of the wait keeps the walk from following locks into other requests (Giraldeau and
// Dagenais, "Wait Analysis of Distributed Systems Using Kernel Tracing", IEEE TPDS 2016, describe it for processes in
// the kernel).
//
// A recorded waker is not always the cause of a wake; [Walker] lists the rules. Predictions need more than one path;
// [Walker.Graph] returns all dependencies.
package critpath

import (
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// maxSteps bounds the steps of one walk, not the goroutines that it follows: a chain through a lock that all connections share
// can rightly be 60 goroutines deep.
const maxSteps = 1 << 18

// maxNesting bounds how many nested waits are followed. If ten thousand goroutines queue for one slot, each waited
// for all that came before it. Beyond the bound, the wait itself is a step.
const maxNesting = 256

// A Walker computes critical paths. It reuses its buffers, so only one goroutine may use it at a time; several
// Walkers may read one window concurrently.
//
// Which wakers the walk trusts (measured on real traces):
//
//   - Waits of package sync, channels, select and Cond: the goroutine that made the wake. If no goroutine woke a
//     select or receive, a timer did.
//   - Waits of package sync with gcStart, gcMarkDone or stopTheWorld on their stack are the runtime's own, not locks.
//   - Network waits: no waker, unless the waker's stack is in internal/poll (a deadline passed, or Close). A
//     goroutine that restarts the world also polls the network, and is recorded as the waker of unrelated goroutines.
//   - A goroutine without a creator runs a timer's function. The time before its creation is a Sleep. If the function
//     belongs to the standard library (a context's deadline), the place of the Sleep is the place of the wait.
//   - If a pool hands its slots to waiters in any order, the goroutine that releases a slot may have arrived after
//     the waiter. Its time before the wait for its own slot is not on the path.
//   - The goroutine that releases a lock may have begun its request after the waiter began to wait: another goroutine,
//     which no event names, had the lock before. The time before that request is the waiter's wait for the lock. In other
//     waits, the waker's request is the news that was waited for: the time before is a wait for its client.
//   - The event loop of a connection waits for packets, timers and other requests. If it was idle before the event
//     that counts, the time before that was not its own, but that of the goroutine that brought the event.
//   - The reader of a connection of HTTP/2 ends the wait for an answer. If flow control held up the request's body, the time until
//     then is that of the goroutine that sends the body.
//   - If Broadcast wakes a waiter of a Cond, which finds its condition false and waits again, the wake was not the
//     cause: only the last wake counts. This does not hold for locks and Signal. A lock's waiter that was woken and
//     lost waited for a holder each time, and Signal wakes one chosen waiter: those waits are followed one by one.
//   - Likewise, if later arrivals woke a batcher that only queued them, and a timer ended its last wait in the same
//     select, the timer is the cause and not the arrivals. If the batcher waits there for the result as well, its wait ended by
//     the timer is known by the wake of the goroutine that it passes the batch on to.
type Walker struct {
	// FollowedWaits are the waits that the last walk followed.
	FollowedWaits []FollowedWait
	// Truncated reports that the last walk exceeded maxSteps and ended early.
	Truncated bool
	// VisitOwnStack, if not nil, is called with the stack of every span of the request's own goroutine: these stacks
	// name the request.
	VisitOwnStack func(stack tracefmt.StackID)
	// AnswersOf, if not nil, returns the requests of this process for which the given request waits over the network.
	AnswersOf func(g uint64, start int64) []Answer
	// RemoteAnswerTo, if not nil, returns the request of another process that answers the network wait of goroutine g from start
	// to end; nil if none is known. waiter is the goroutine that waits for g, or g.
	RemoteAnswerTo func(g, waiter uint64, start, end int64) *RemoteAnswer
	// IsClientWait, if not nil, reports whether a client of the process ends a network wait, if that is known of its stack.
	IsClientWait func(wait tracefmt.StackID) (isClient, isKnown bool)

	window        *timeline.Window
	symbols       *tracefmt.Symbols
	functions     knowledge.Index[tracefmt.StringID]
	stackRoles    []knowledge.Roles // by stack
	spans         []timeline.Span
	senderSpans   []timeline.Span // see heldUpSender
	frames        []walkFrame
	steps         []Step
	reasonClasses []waitReason // by string
	gapEnd, gap   int64        // of the last poll gap in the walk
	graphBuilder  graphBuilder
}

// A walkFrame is one goroutine on the stack of goroutines through which the walk went. The innermost frame, where the walk is,
// is the last one.
type walkFrame struct {
	g              uint64
	start          int64 // the walk leaves this goroutine at this time
	firstSpan      int   // spans[firstSpan:nextSpan+1] are not yet walked
	nextSpan       int   // the walk goes backward: the latest span not yet walked
	spanCount      int   // how many spans the frame had at first
	followedWait   int32
	isOwn          bool             // the request's own goroutine
	laterWaitStack tracefmt.StackID // stack of the previously walked wait, which is the next one in time
	// The answers for which the frame's request waits. answerDepth is how many answers lead from the walked request
	// to the frame's.
	answers     []Answer
	answerDepth int
}

// New returns a Walker over a window.
func New(window *timeline.Window, symbols *tracefmt.Symbols) *Walker {
	return &Walker{window: window, symbols: symbols, functions: knowledge.NewIndex(symbols.String)}
}

// Walk returns the critical path of what goroutine g did in [from, to): steps in order of time that cover the interval without
// gap or overlap. The slice is valid until the next call.
func (w *Walker) Walk(g uint64, from, to int64) []Step {
	w.steps, w.spans, w.frames, w.FollowedWaits = w.steps[:0], w.spans[:0], w.frames[:0], w.FollowedWaits[:0]
	w.Truncated, w.gapEnd = false, 0
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
			if first := frame.firstSpan; frame.spanCount > 0 && w.spans[first].Origin == timeline.OriginCreated && w.spans[first].Start > frame.start {
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
		if frame.isOwn && w.VisitOwnStack != nil && span.Stack != 0 && span.Origin != timeline.OriginCreated && start < cursor {
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

// followCreator continues the walk in the goroutine that created the frame's goroutine; first is the frame's first span. If a
// timer created it, the time before is a Sleep step instead, at the line that waited for the timer.
func (w *Walker) followCreator(frame walkFrame, first timeline.Span, cursor *int64) {
	w.popFrame()
	if first.Peer == 0 {
		// A timer created it: the time before its creation was the timer's.
		step := Step{G: frame.g, Kind: Sleep, Beginning: timeline.OriginCreated, Stack: w.window.StartOf(frame.g, first.Start), FollowedWait: frame.followedWait}
		if n := len(w.frames); n > 0 && frame.followedWait >= 0 && !w.rolesOf(step.Stack).Has(knowledge.NonStdlib) {
			followed := w.FollowedWaits[frame.followedWait]
			step.TimerStart = step.Stack
			step.G, step.Stack, step.FollowedWait = w.frames[n-1].g, followed.Stack, followed.Parent
		}
		w.emitStep(cursor, frame.start, step)
		return
	}
	// The creator may serve other requests as well: a connection, a dispatcher.
	w.pushFrame(first.Peer, frame.start, *cursor, frame.followedWait, false)
	w.inheritAnswers(frame)
}

// pushFrame enters goroutine g with its spans in [start, end). followedWait is the wait through which the walk got there, or
// -1. isOwn: it is the request's own goroutine.
func (w *Walker) pushFrame(g uint64, start, end int64, followedWait int32, isOwn bool) {
	firstSpan := len(w.spans)
	w.spans = w.window.SpansCoarse(g, start, end, w.spans)
	w.frames = append(w.frames, walkFrame{g: g, start: start, firstSpan: firstSpan, nextSpan: len(w.spans) - 1, spanCount: len(w.spans) - firstSpan, followedWait: followedWait, isOwn: isOwn})
}

// popFrame leaves the innermost frame.
func (w *Walker) popFrame() {
	f := w.frames[len(w.frames)-1]
	w.spans = w.spans[:f.firstSpan]
	w.frames = w.frames[:len(w.frames)-1]
}

// emitStep adds a step from start to the cursor (nothing if that is empty), and moves the cursor back to start.
func (w *Walker) emitStep(cursor *int64, start int64, step Step) {
	if start >= *cursor {
		return
	}
	step.Start, step.End = start, *cursor
	*cursor = start
	w.steps = append(w.steps, step)
}

// emitSpan adds the part of a span from start to the cursor as a step, and moves the cursor back to start. The span must not be
// a wait. The step is filled in place, because most steps come from here.
func (w *Walker) emitSpan(frame *walkFrame, span *timeline.Span, start int64, cursor *int64) {
	if start >= *cursor {
		return
	}
	w.steps = append(w.steps, Step{})
	step := &w.steps[len(w.steps)-1]
	step.Start, step.End = start, *cursor
	*cursor = start
	step.G, step.Beginning, step.Stack, step.FollowedWait = frame.g, span.Origin, span.Stack, frame.followedWait
	switch span.State {
	case timeline.Running:
		step.Kind, step.Preempted = CPU, span.Preempted
		if frame.nextSpan >= frame.firstSpan {
			if previous := &w.spans[frame.nextSpan]; previous.Origin != timeline.OriginCreated {
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
		step.WokenByPoller = span.Origin == timeline.OriginUnblocked && span.Waker == 0 && w.waitReason(span.Reason) == reasonNetwork && w.unreadTime(span.Start, span.WakeNoP) > 0
		if span.Assist {
			step.Kind = Assist
		}
	case timeline.Syscall:
		step.Kind = Syscall
	}
}

// followWait walks back from the end of a wait, which is at the cursor, and moves the cursor back to the start of each step
// that it adds. It enters the goroutine that caused the wake, or that served the awaited answer, limited to the time from start
// (earlier if vain waits are merged) to the cursor, and returns true. Otherwise it adds the wait, or the parts of another
// process's answer, as steps and returns false.
func (w *Walker) followWait(frame *walkFrame, span *timeline.Span, start int64, cursor *int64) (entered bool) {
	sender, heldUntil := w.heldUpSender(frame.g, span, start, *cursor)
	if sender != 0 && heldUntil == *cursor {
		return w.followSender(*frame, span, sender, start, *cursor)
	}
	v := w.judgeWait(frame, span, *cursor)
	if frame.followedWait >= 0 && w.endsEarlierRequest(span, &v) {
		// Earlier requests of the waker have no part in this wait.
		step := v.step
		if w.FollowedWaits[frame.followedWait].Kind == WaitLock {
			step = w.unknownHolderStep(frame)
		}
		w.emitStep(cursor, frame.start, step)
		return false
	}
	if remote := w.findRemoteAnswer(frame, &v, start, *cursor); remote != nil {
		return w.emitRemoteAnswer(*frame, &v, start, cursor, remote)
	}
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
	} else if v.endedByTimer && !frame.isOwn && (!hasSamePlace || w.handsOnAfter(frame, span)) {
		start = w.mergeVainWaits(frame, span, start, endedByGoroutine)
	}
	if !v.followWaker || len(w.frames) >= maxNesting {
		w.emitStep(cursor, start, v.step)
		return false
	}
	followedWait := frame.followedWait
	if followedWait >= 0 && (w.mayHaveOvertaken(w.FollowedWaits[followedWait].Stack, span.Stack) || w.rolesOf(span.Stack).Has(knowledge.EventLoop)) {
		start = frame.start
	}
	if v.kind != WaitCoroutine {
		followedWait = int32(len(w.FollowedWaits))
		w.FollowedWaits = append(w.FollowedWaits, FollowedWait{Kind: v.kind, Stack: span.Stack, WakerStack: span.WakerStack, Parent: frame.followedWait, G: frame.g, Waker: span.Waker, Start: min(span.Start, start), End: span.End})
	}
	if sender != 0 {
		start = heldUntil
	}
	outer, depth := *frame, len(w.frames)
	if !w.enterGoroutine(span.Waker, start, *cursor, followedWait) {
		w.emitStep(cursor, start, v.step) // the wait itself is the step
		return false
	}
	if sender != 0 {
		w.frames[depth-1].nextSpan++ // the rest of the wait is read again
	}
	w.inheritAnswers(outer)
	return true
}

// unknownHolderStep returns the step for the time in which an unknown goroutine held the lock that the frame's goroutine
// releases later: a wait for the lock. But the lock of a file is only held during system calls, so its earlier holder was in
// the same system call as the later one.
func (w *Walker) unknownHolderStep(frame *walkFrame) Step {
	waiting := &w.FollowedWaits[frame.followedWait]
	for i := len(w.steps) - 1; i >= 0 && w.steps[i].FollowedWait == frame.followedWait; i-- {
		if step := &w.steps[i]; w.isCallOnFile(waiting.Stack, step) {
			return Step{G: step.G, Kind: step.Kind, Stack: step.Stack, FollowedWait: frame.followedWait}
		}
	}
	return Step{G: waiting.G, Kind: Lock, Stack: waiting.Stack, FollowedWait: waiting.Parent}
}

// isCallOnFile reports whether a step is a system call during which the goroutine holds the lock of a file. lockStack is the
// stack of the goroutine that waits for this lock.
func (w *Walker) isCallOnFile(lockStack tracefmt.StackID, step *Step) bool {
	return (step.Kind == Syscall || step.Kind == Network) && w.rolesOf(lockStack).Has(knowledge.File) && w.rolesOf(step.Stack).Has(knowledge.File)
}

// endsEarlierRequest reports whether a wait separates two requests on one connection: a read of the next request from the
// client. What the goroutine did before belongs to an earlier request.
func (w *Walker) endsEarlierRequest(span *timeline.Span, v *waitVerdict) bool {
	return v.step.Inbound && w.rolesOf(span.Stack).Has(knowledge.RequestPeek)
}

// enterGoroutine continues the walk in goroutine g, limited to [start, end). It returns false if the window has no events of
// that goroutine in this time.
func (w *Walker) enterGoroutine(g uint64, start, end int64, followedWait int32) bool {
	spanCount := len(w.spans)
	w.pushFrame(g, start, end, followedWait, false)
	if len(w.spans) == spanCount {
		w.popFrame()
		return false
	}
	return true
}

// mayHaveOvertaken reports whether the waker may have received its own pool slot before goroutines that had waited longer: both
// its wait (stack) and the wait it ended (followedStack) are for a slot of a pool that serves waiters in any order. Before its
// wait another goroutine held the slot, so what the waker did then delayed no request.
func (w *Walker) mayHaveOvertaken(followedStack, stack tracefmt.StackID) bool {
	return w.rolesOf(followedStack).Has(knowledge.UnorderedPool) && w.rolesOf(stack).Has(knowledge.UnorderedPool)
}

// maxConditionCheckNS is how long a waiter of a Cond may run before it waits again for its wake to count as futile:
// it only checked its condition.
const maxConditionCheckNS = 100e3
