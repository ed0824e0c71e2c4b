package critpath

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
)

// maxLaunchNS is how long before its wait for an answer a goroutine starts the one that sends the request, at most.
const maxLaunchNS = 10e6

// heldUpSender returns the goroutine that sends the request for whose answer span waits, and until when flow control held it up in
// [start, end]: no answer can come before that. It returns 0 if flow control did not.
func (w *Walker) heldUpSender(g uint64, span *timeline.Span, start, end int64) (sender uint64, heldUntil int64) {
	if !w.rolesOf(span.Stack).Has(knowledge.HTTP2ClientWait) {
		return 0, 0
	}
	w.window.Children(g, span.Start-maxLaunchNS, span.Start, func(child timeline.Birth) bool {
		if w.rolesOf(child.Start).Has(knowledge.HTTP2ClientStream) {
			sender = child.G // the last one
		}
		return true
	})
	if sender == 0 {
		return 0, 0
	}
	w.senderSpans = w.window.Spans(sender, start, end, w.senderSpans[:0])
	for i := len(w.senderSpans) - 1; i >= 0; i-- {
		s := &w.senderSpans[i]
		if s.State == timeline.Waiting && s.Woken && s.End <= end && s.End > start && w.rolesOf(s.Stack).Has(knowledge.FlowControlWait) {
			return sender, s.End
		}
	}
	return 0, 0
}

// followSender continues the walk in the goroutine that sends a request, for the part of the wait for the answer (span) in which flow
// control held it up.
func (w *Walker) followSender(outer walkFrame, span *timeline.Span, sender uint64, start, end int64) (entered bool) {
	wait := FollowedWait{Kind: WaitSelect, Stack: span.Stack, Parent: outer.followedWait, G: outer.g, Waker: sender, Start: span.Start, End: end}
	w.FollowedWaits = append(w.FollowedWaits, wait)
	w.enterGoroutine(sender, start, end, int32(len(w.FollowedWaits)-1)) // heldUpSender has found events of it
	w.inheritAnswers(outer)
	return true
}
