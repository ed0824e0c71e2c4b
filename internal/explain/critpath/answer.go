package critpath

import "github.com/whylate/whylate/internal/trace/timeline"

// An Answer is a request of this process for which another one of it waited over
// the network: a gateway that calls its own server. No event of the trace leads
// from one to the other; who has found out that they belong together says so.
type Answer struct {
	G          uint64
	Start, End int64
}

// maxAnswerDepth bounds how many requests may wait for each other in a row.
const maxAnswerDepth = 8

// findAnswers returns what a request waits for, in order of time.
func (w *Walker) findAnswers(g uint64, start int64) []Answer {
	if w.AnswersOf == nil {
		return nil
	}
	return w.AnswersOf(g, start)
}

// inheritAnswers says of the frame that was pushed last that it is work for the same
// request as f.
func (w *Walker) inheritAnswers(outer walkFrame) {
	last := &w.frames[len(w.frames)-1]
	last.answers, last.answerDepth = outer.answers, outer.answerDepth
}

// matchAnswer returns the last of the answers that a wait from start to hi is for, nil
// if it is for none. Before an answer has ended nobody could have polled for it.
func (f *walkFrame) matchAnswer(verdict *waitVerdict, start, end int64) *Answer {
	if verdict.step.Kind != Network || verdict.followWaker {
		return nil
	}
	if verdict.step.Inbound {
		verdict.step.Inbound = f.answerDepth == 0 // who asked for this sends: the way there
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

// followAnswer goes on in the goroutine that answers a wait of f. Whoever reads from a
// connection that many share may have been woken for others meanwhile, which is
// nothing to this request. What was before the answer is looked at afterwards:
// the way there.
func (w *Walker) followAnswer(frame *walkFrame, span *timeline.Span, start int64, cursor *int64, verdict *waitVerdict, answer *Answer) bool {
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

// listAnswerWait lists a wait for an answer: the way back and the answer itself.
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

// addAnswer puts what was asked for into the graph: it is work for the request, from
// when it began on.
func (b *graphBuilder) addAnswer(part *graphPart, wait *partItem) {
	b.link(part.g, wait.waker, wait.step.Start)
	b.addPart(&graphPart{g: wait.waker, start: wait.step.Start, end: wait.step.End, hasOrigin: true, answers: b.walker.findAnswers(wait.answer.G, wait.answer.Start), answerDepth: part.answerDepth + 1})
}
