package critpath

import "github.com/whylate/whylate/internal/trace/timeline"

// An Answer is a request of this process that answers a network call of another request of this process: a gateway
// that calls its own server. No event of the trace connects the two; Walker.AnswersOf supplies the connection.
type Answer struct {
	G          uint64
	Start, End int64
}

// maxAnswerDepth bounds how many answers the walk enters one inside the other.
const maxAnswerDepth = 8

// findAnswers returns the requests of this process for whose answers a request waits (see Answer), in order of time. The
// request is given by its goroutine and start.
func (w *Walker) findAnswers(g uint64, start int64) []Answer {
	if w.AnswersOf == nil {
		return nil
	}
	return w.AnswersOf(g, start)
}

// inheritAnswers copies the awaited answers of frame outer to the innermost frame, which works for the same request.
func (w *Walker) inheritAnswers(outer walkFrame) {
	last := &w.frames[len(w.frames)-1]
	last.answers, last.answerDepth = outer.answers, outer.answerDepth
}

// matchAnswer returns the last of the frame's answers that overlaps the network wait from start to end, or nil. It also
// corrects the verdict: inside an answer, an inbound wait is not for an outside client, and a poll gap cannot begin before the
// answer ended.
func (f *walkFrame) matchAnswer(verdict *waitVerdict, start, end int64) *Answer {
	if verdict.step.Kind != Network || verdict.followWaker {
		return nil
	}
	if verdict.step.Inbound {
		// Below an answer, the client is a request of this process: the wait is the call on its way.
		verdict.step.Inbound = f.answerDepth == 0
		return nil
	}
	if f.answerDepth >= maxAnswerDepth {
		return nil
	}
	for i := len(f.answers) - 1; i >= 0; i-- {
		if answer := &f.answers[i]; answer.G != f.g && answer.Start < end && answer.End > start {
			if verdict.pollGapStart != 0 {
				verdict.pollGapStart = max(verdict.pollGapStart, min(answer.End, end))
			}
			return answer
		}
	}
	return nil
}

// followAnswer continues the walk in the goroutine that served the request which answers a network wait, and returns true;
// false if that goroutine has no events in this time. The time after the answer is the network wait, and the cursor moves back
// over it; the time before the answer, when the call was on its way, is walked afterwards. The connection's reader is not
// followed: other requests may have woken it.
func (w *Walker) followAnswer(frame *walkFrame, span *timeline.Span, start int64, cursor *int64, verdict *waitVerdict, answer *Answer) (entered bool) {
	w.emitStep(cursor, max(answer.End, start), verdict.step)
	from := max(answer.Start, frame.start)
	if from >= *cursor {
		return false
	}
	frame.nextSpan++
	followedWait, depth := int32(len(w.FollowedWaits)), frame.answerDepth
	w.FollowedWaits = append(w.FollowedWaits, FollowedWait{Kind: WaitPeer, Stack: span.Stack, Parent: frame.followedWait})
	if !w.enterGoroutine(answer.G, from, *cursor, followedWait) {
		w.FollowedWaits = w.FollowedWaits[:followedWait]
		w.frames[len(w.frames)-1].nextSpan--
		return false
	}
	w.inheritAnswers(walkFrame{answers: w.findAnswers(answer.G, answer.Start), answerDepth: depth + 1})
	return true
}

// listAnswerWait adds two items for a network wait that an answer of this process ends: the way back, which is the wait itself,
// and the answer, which is followed. It moves the cursor back to the answer's start. start is the wait's start, fullLength its
// whole length in ns.
func (b *graphBuilder) listAnswerWait(part *graphPart, answer *Answer, verdict *waitVerdict, start int64, cursor *int64, fullLength int64) {
	b.addLeaf(part, cursor, max(answer.End, start), verdict.step, fullLength)
	from := max(answer.Start, part.start)
	if from >= *cursor {
		return
	}
	if !b.hasEvents(answer.G, *cursor) {
		b.addLeaf(part, cursor, from, verdict.step, fullLength)
		return
	}
	wait := partItem{step: verdict.step, waker: answer.G, kind: WaitPeer, answer: answer}
	wait.step.Start, wait.step.End = from, *cursor
	*cursor = from
	part.items = append(part.items, wait)
}

// addAnswer adds the goroutine that serves an answer to the graph, from the answer's start to its end: all of that is work for
// the request.
func (b *graphBuilder) addAnswer(part *graphPart, wait *partItem) {
	b.addLink(part.g, wait.waker, wait.step.Start)
	b.addPart(&graphPart{g: wait.waker, start: wait.step.Start, end: wait.step.End, hasOrigin: true, answers: b.walker.findAnswers(wait.answer.G, wait.answer.Start), answerDepth: part.answerDepth + 1})
}
