package critpath

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// mergeVainWaits merges repeated waits at one place into the last one, span. It removes each earlier wait whose wake
// was in vain from the frame, and returns the start of the first one.
func (w *Walker) mergeVainWaits(frame *walkFrame, span *timeline.Span, start int64, endedInVain func(*timeline.Span) bool) int64 {
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

// endedByBroadcast reports whether a Broadcast ended a wait: the waiter may find its condition still false.
func (w *Walker) endedByBroadcast(span *timeline.Span) bool {
	return span.Waker != 0 && w.rolesOf(span.WakerStack).Has(knowledge.Broadcast)
}

// endedByGoroutine reports whether a goroutine ended a wait that a timer could have ended as well: it handed over
// something to keep until the timer fires.
func endedByGoroutine(span *timeline.Span) bool { return span.Woken && span.Waker != 0 }
