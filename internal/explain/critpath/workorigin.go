package critpath

import (
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// isMember reports whether goroutine g worked for the graph's request at time t, as far as the parts found so far show.
func (b *graphBuilder) isMember(g uint64, t int64) bool {
	if g == b.rootG {
		return t >= b.start
	}
	return slices.ContainsFunc(b.parts, func(part *graphPart) bool {
		return part.g == g && part.hasOrigin && part.start <= t && (part.creator != 0 || t <= part.end)
	})
}

// addWaker adds to the graph what the goroutine that ended a wait of the part did until then. If the work is for the request
// (findOrigin), it adds that work from its origin on and returns true. Otherwise it adds only the time of the wait, as other
// work that begins with the wait (anchor), and returns false.
func (b *graphBuilder) addWaker(waker uint64, part *graphPart, wait *partItem) (worksForRequest bool) {
	waitStart, waitEnd := wait.step.Start, wait.step.End
	if waker == b.rootG {
		return true
	}
	if start, creator, ok := b.findOrigin(waker, part, wait.kind, waitStart, waitEnd, 0); ok {
		b.addPart(&graphPart{g: waker, start: start, end: waitEnd, hasOrigin: true, creator: creator, answers: part.answers, answerDepth: part.answerDepth})
		return true
	}
	b.addPart(&graphPart{g: waker, start: waitStart, end: waitEnd, anchor: instant{part.g, waitStart}, waitStack: wait.step.Stack, waitKind: wait.kind, deliversResult: (part.hasOrigin || part.deliversResult) && handsOverResult(wait.kind), answers: part.answers, answerDepth: part.answerDepth})
	return false
}

// handsOverResult reports whether the waker of a wait of this kind hands over a result. Otherwise it only releases a lock or a
// slot.
func handsOverResult(kind WaitKind) bool {
	return kind != WaitLock && kind != WaitOnce && kind != WaitSend
}

// findOrigin decides whether goroutine g, which ended a wait of the part (from waitStart to waitEnd, of this kind), works for
// the request, and since when: since a goroutine of the request created it or handed work over to it by a wake, or since g last
// woke a goroutine of the request itself. creator is the goroutine that created it in the first case, else 0. Wakers in between
// are followed up to three times (depth). For locks only the creation counts: the order in which goroutines get a lock does not
// show for which request they work.
func (b *graphBuilder) findOrigin(g uint64, part *graphPart, kind WaitKind, waitStart, waitEnd int64, depth int) (start int64, creator uint64, ok bool) {
	latest := int64(-1)
	for _, existing := range b.parts {
		if existing.g == g && existing.hasOrigin && existing.start < waitEnd && (existing.creator != 0 || existing.end >= waitEnd) && existing.start > latest {
			latest, creator = existing.start, existing.creator
		}
	}
	if latest >= 0 {
		return latest, creator, true
	}
	if b.originSearches++; b.originSearches > maxOriginSearches || depth > 3 {
		return 0, 0, false
	}
	if birth, hasBirth := b.walker.window.BirthBefore(g, waitEnd); hasBirth && birth.Time >= b.start && birth.Creator != 0 {
		if b.isMember(birth.Creator, birth.Time) {
			if writtenAt := b.writtenAt(birth.Creator, part.g, max(birth.Time, part.start), waitStart); writtenAt != 0 {
				b.addLink(part.g, g, writtenAt)
				return writtenAt, 0, true
			}
			b.addLink(birth.Creator, g, birth.Time)
			return birth.Time, birth.Creator, true
		}
	}
	if kind == WaitLock || kind == WaitOnce {
		return 0, 0, false // the order in which goroutines get a lock does not show for which request they work
	}
	// If it woke a member before, its work since then is for the request.
	for i := range b.links {
		if l := &b.links[i]; l.from.g == g && !l.soft && l.from.t < waitEnd && l.from.t <= waitStart+maxConditionCheckNS && l.from.t > latest && b.isMember(l.to.g, l.to.t) {
			latest = l.from.t
		}
	}
	searchStart := max(b.start, waitStart-originSearchWaits*(waitEnd-waitStart)-minOriginSearchNS, latest)
	wakeTime, waker := b.lastWake(g, searchStart, waitEnd)
	if latest >= 0 || waker != part.g && b.isMember(waker, wakeTime) {
		// Its work for others in between ended before the request was sent.
		if sentAt, ok := b.requestSentAt(g, part, max(latest, wakeTime), waitStart); ok {
			b.addLink(part.g, g, sentAt)
			return sentAt, 0, true
		}
	}
	if wakeTime > latest {
		if waker == 0 {
			return 0, 0, false
		}
		if b.isMember(waker, wakeTime) {
			b.addLink(waker, g, wakeTime)
			return wakeTime, 0, true
		}
		if start, wakerCreator, ok := b.findOrigin(waker, part, WaitChan, min(waitStart, wakeTime), wakeTime, depth+1); ok {
			b.addPart(&graphPart{g: waker, start: start, end: wakeTime, hasOrigin: true, creator: wakerCreator, answers: part.answers, answerDepth: part.answerDepth})
			b.addLink(waker, g, wakeTime)
			return wakeTime, 0, true
		}
		// Another goroutine, which does not work for the request, woke it from idleness. If the request had sent its
		// work earlier, this goroutine would have begun earlier.
		return 0, 0, false
	}
	return latest, 0, latest >= 0
}

// requestSentAt returns when the waiter of the part sent the request that goroutine g answers: the start of its last run in
// [from, to) that woke or started a goroutine or made a system call. ok is false unless g waited for the network at that time.
// Without this, predictions could not move a retry that follows a pause: g's work would seem to begin with the answer before.
func (b *graphBuilder) requestSentAt(g uint64, part *graphPart, from, to int64) (sentAt int64, ok bool) {
	if !part.hasOrigin {
		return 0, false
	}
	window := b.walker.window
	b.spanBuffer = window.Spans(part.g, from, to, b.spanBuffer[:0])
	b.cost += len(b.spanBuffer) / 8
	runStart := int64(-1)
	for i := len(b.spanBuffer) - 1; i >= 0 && runStart < 0; i-- {
		span := &b.spanBuffer[i]
		handedOver := span.State == timeline.Syscall
		if span.State == timeline.Running {
			window.EachWoken(part.g, max(span.Start, from), min(span.End, to), func(uint64, tracefmt.StackID) bool { handedOver = true; return false })
		}
		if handedOver {
			runStart = span.Start
		}
	}
	if runStart <= from || runStart < part.start {
		return 0, false
	}
	b.spanBuffer = window.Spans(g, runStart, runStart+1, b.spanBuffer[:0])
	for i := range b.spanBuffer {
		if span := &b.spanBuffer[i]; span.State == timeline.Waiting && span.Start < runStart && span.End > runStart {
			return runStart, b.walker.waitReason(span.Reason) == reasonNetwork && !b.walker.isClientWait(span.Stack)
		}
	}
	return 0, false
}

// writtenAt returns when, in [from, to), the writer of a connection last reported to the waiter that it has written the request; 0 if it did
// not. The reader of the answer, which the goroutine dialer created as well, does not wait for it before that: a body may be held back.
func (b *graphBuilder) writtenAt(dialer, waiter uint64, from, to int64) int64 {
	window := b.walker.window
	b.spanBuffer = window.Spans(waiter, from, to, b.spanBuffer[:0])
	b.cost += len(b.spanBuffer) / 8
	for _, span := range slices.Backward(b.spanBuffer) {
		if span.State != timeline.Waiting || !span.Woken || span.End > to || !b.walker.rolesOf(span.WakerStack).Has(knowledge.ClientWriter) {
			continue
		}
		if birth, ok := window.BirthBefore(span.Waker, span.End); ok && birth.Creator == dialer {
			return span.End
		}
	}
	return 0
}

// lastWake returns the last time in (from, to] at which goroutine g was woken from a wait that counts as a hand-over of work, and
// the goroutine that woke it; waker 0 is a client. wakeTime is -1 if there was none. Wakes that only released a lock do not
// count.
func (b *graphBuilder) lastWake(g uint64, from, to int64) (wakeTime int64, waker uint64) {
	walker := b.walker
	walker.pushFrame(g, from, to, -1, false)
	defer walker.popFrame()
	frame := &walker.frames[len(walker.frames)-1]
	b.cost += frame.spanCount / 4
	for n := 0; frame.nextSpan >= frame.firstSpan && n < originSearchSpans; n++ {
		span := &walker.spans[frame.nextSpan]
		frame.nextSpan--
		if span.State != timeline.Waiting || span.End > to || span.End <= from {
			continue
		}
		if verdict := walker.judgeWait(frame, span, to); verdict.followWaker && (verdict.kind != WaitLock && verdict.kind != WaitOnce || verdict.step.Kind == Unknown) {
			return span.End, span.Waker
		} else if verdict.step.Inbound {
			return span.End, 0
		}
	}
	return -1, 0
}
