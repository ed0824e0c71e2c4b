package critpath

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A waitVerdict is the result of judgeWait: whether the walk follows the waker of a wait, and what the wait is otherwise.
type waitVerdict struct {
	step         Step     // the step for the wait, if it is not followed
	kind         WaitKind // the kind of the wait, if it is followed
	followWaker  bool     // the waker caused the end of the wait, so the walk continues there
	mayBeFutile  bool     // earlier wakes on the same Cond may have been in vain, see mergeVainWaits
	endedByTimer bool     // a timer ended it; goroutines could have ended it as well
	pollGapStart int64    // time since which no P had polled the network at the wait's end; 0 if unknown or if the network was polled
}

// judgeWait decides for what a wait was and whether its waker is trusted, from the recorded reason, the roles of the functions
// on its stack, and the waker's stack. frame.nextSpan must be the index before the wait's span. A wake after end does not
// count: the walk needs nothing after end.
func (w *Walker) judgeWait(frame *walkFrame, span *timeline.Span, end int64) waitVerdict {
	v := waitVerdict{step: Step{G: frame.g, Beginning: span.Origin, Stack: span.Stack, FollowedWait: frame.followedWait}}
	step := &v.step
	hasEnded := span.Woken && span.End <= end
	roles := w.rolesOf(span.Stack)
	reason := w.waitReason(span.Reason)
	if span.Origin == timeline.OriginStatus && span.Reason == 0 {
		reason = w.waitReasonByStack(span.Stack) // a status event has no reason
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
		step.Kind, step.Inbound = Network, w.isClientWait(span.Stack)
		if waker := w.rolesOf(span.WakerStack); hasEnded && span.Waker != 0 && waker.Has(knowledge.Poller) && !waker.Has(knowledge.WorldStart) {
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
		if roles.Has(knowledge.FlowControlWait) && !roles.Has(knowledge.AnswerWrite) {
			step.Kind, v.kind, v.endedByTimer = FlowControl, WaitOther, false
		}
	case reasonSend:
		step.Kind, v.kind = Chan, WaitSend
	case reasonCond:
		step.Kind, v.kind = Lock, WaitCond
		v.mayBeFutile = hasEnded && span.Waker != 0 && span.Waker != frame.g
		if roles.Has(knowledge.FlowControlWait) {
			step.Kind, v.kind, v.mayBeFutile = FlowControl, WaitOther, false
		}
	case reasonSync:
		step.Kind, v.kind = Lock, WaitLock
		switch {
		case roles.Has(knowledge.WorldStop):
			step.Kind, v.kind = StopWorld, WaitOther
		case roles.Has(knowledge.GCSemaphore):
			step.Kind, v.kind = GCWait, WaitOther
		case roles.Has(knowledge.WaitGroup):
			v.kind = WaitGroup
		case roles.Has(knowledge.Once):
			v.kind = WaitOnce
		case roles.Has(knowledge.FDReadLock):
			step.Kind, step.Inbound, v.kind = Network, w.isClientWait(span.Stack), WaitOther
		}
	case reasonCoroutineSwitch:
		step.Kind, v.kind = Chan, WaitCoroutine
	default:
		step.Kind = Unknown
		switch {
		case hasEnded && span.Waker != 0:
			v.kind = WaitLock
		case hasEnded && span.Origin == timeline.OriginStatus:
			// The wait began before the trace, so its reason and place are unknown. A goroutine that first reads from
			// the poller afterwards waited for it.
			if next := w.stackAfterWait(frame); w.rolesOf(next).Has(knowledge.Poller) && !w.rolesOf(next).Has(knowledge.SocketWrite) {
				step.Kind, step.Stack, step.Inbound = Network, next, w.isClientWait(next)
			}
		}
	}
	if span.Assist || roles.Has(knowledge.MarkAssist) {
		step.Kind, v.kind = Assist, WaitOther
	}
	v.followWaker = v.kind != WaitOther && hasEnded && span.Waker != 0 && span.Waker != frame.g
	return v
}

// isClientWait reports whether a network wait with this stack is for a client of the process, not for a peer's answer.
func (w *Walker) isClientWait(stack tracefmt.StackID) bool {
	if w.IsClientWait != nil {
		if isClient, isKnown := w.IsClientWait(stack); isKnown {
			return isClient
		}
	}
	return w.rolesOf(stack).Has(knowledge.ClientWait)
}

// stackAfterWait returns the stack of the first run after the wait that was just taken from the frame; 0 if the walk does not
// contain it.
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
