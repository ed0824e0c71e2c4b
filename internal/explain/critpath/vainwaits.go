package critpath

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// mergeVainWaits joins repeated waits at one place to one wait: it removes earlier waits from the frame that have the same
// stack as span, if endedInVain reports that their wake was not the awaited one and the goroutine only checked its condition in
// between. It returns the start of the first one (start if there is none).
func (w *Walker) mergeVainWaits(frame *walkFrame, span *timeline.Span, start int64, endedInVain func(*timeline.Span) bool) (firstStart int64) {
	nextWaitStart := span.Start
	for i := frame.nextSpan; i >= frame.firstSpan && start > frame.start; i-- {
		previous := &w.spans[i]
		switch {
		case previous.State == timeline.Waiting && previous.Stack == span.Stack && previous.Reason == span.Reason && endedInVain(previous):
			start, nextWaitStart = max(previous.Start, frame.start), previous.Start
			frame.nextSpan = i - 1
			continue
		case previous.State == timeline.Running && nextWaitStart-previous.Start <= maxConditionCheckNS:
			continue
		case previous.State == timeline.Runnable && previous.Origin != timeline.OriginCreated:
			nextWaitStart = previous.Start
			continue
		case previous.State == timeline.Waiting && w.rolesOf(previous.Stack).Has(knowledge.CondWait) && w.rolesOf(previous.Stack).Has(knowledge.Mutex):
			nextWaitStart = previous.Start // takes the lock again
			continue
		}
		break
	}
	return start
}

// endedByBroadcast reports whether a Broadcast ended a wait, after which the waiter may find its condition still false.
func (w *Walker) endedByBroadcast(span *timeline.Span) bool {
	return span.Waker != 0 && w.rolesOf(span.WakerStack).Has(knowledge.Broadcast)
}

// endedByGoroutine reports whether a goroutine ended a wait. Before a wait at the same place that a timer ended, it handed over
// something that is kept until the timer fires.
func endedByGoroutine(span *timeline.Span) bool { return span.Woken && span.Waker != 0 }

// handsOnAfter reports whether the frame's goroutine woke another one between a wait that was just taken from the frame and its next one.
func (w *Walker) handsOnAfter(frame *walkFrame, span *timeline.Span) (found bool) {
	for i := frame.nextSpan + 2; i < len(w.spans); i++ {
		if next := &w.spans[i]; next.State == timeline.Waiting {
			found, _ = w.window.HasWoken(frame.g, span.End, next.Start, func(uint64, tracefmt.StackID) bool { return true })
			break
		}
	}
	return found
}
