package queues

import (
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
)

// A connection that has one call at a time makes the next ones queue before they are sent, whatever its library waits in. The waker is
// then no holder: a goroutine of the connection ends all waits. But the waiter has sent nothing that could be answered.

// answerReaders returns, for each followed wait, the goroutine that last read an answer of a peer during it; 0 if none did.
func (p *workerSum) answerReaders(w *path.WalkResult) []uint64 {
	waits := w.FollowedWaits()
	p.readers = append(p.readers[:0], make([]uint64, len(waits))...)
	for i := range w.Steps {
		if step := &w.Steps[i]; step.Kind == critpath.Network && !step.Inbound {
			for k := step.FollowedWait; k >= 0; k = waits[k].Parent {
				p.readers[k] = step.G
			}
		}
	}
	return p.readers
}

// isBeforeCall reports whether wait i of a path is for the end of another call: an answer ended it, although the waiter had sent no request
// since it last got one. The waiter then sends a request, and the same goroutine reads the answer.
func (p *workerSum) isBeforeCall(w *path.WalkResult, readers []uint64, i int) bool {
	waits := w.FollowedWaits()
	wait, reader, sentAfter := &waits[i], readers[i], w.Start
	if reader == 0 || reader == wait.G {
		return false
	}
	var next *critpath.FollowedWait
	for k := range waits[:min(len(waits), 4*maxRequestWaits)] {
		switch o := &waits[k]; {
		case o.G != wait.G || readers[k] != reader:
		case o.End <= wait.Start:
			sentAfter = max(sentAfter, o.End)
		case o.Start >= wait.End && (next == nil || o.Start < next.Start):
			next = o
		}
	}
	return next != nil && !p.hasSentRequest(wait.G, sentAfter, wait) && p.hasSentRequest(wait.G, wait.End, next)
}
