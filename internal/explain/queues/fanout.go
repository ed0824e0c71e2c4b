package queues

import (
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// findFanOut measures the goroutines that a request started in parallel and waited for until time resumed. lastG is the one
// that ended last; the others have the same start function, or had ended by then. It returns their number, the lifetime of the last one, and
// the mean lifetime of the others; 0 if there are fewer than two, or if they ran one after the other.
func (p *workerSum) findFanOut(w *path.WalkResult, lastG uint64, resumed int64) (goroutines, lastNS, othersNS int64) {
	win := p.stage.Win
	lastBirth, ok := win.BirthBefore(lastG, resumed)
	if !ok || lastBirth.Creator != w.Req.G || lastBirth.Time < w.Req.Start {
		return 0, 0, 0
	}
	firstEnd, children := resumed, 0 // firstEnd is when the first of them ended
	win.Children(w.Req.G, w.Req.Start, resumed, func(child timeline.Birth) bool {
		if children++; children > 4*maxRequestWaits {
			return false
		}
		isOther := child.Start != lastBirth.Start
		if isOther && p.startsInStdlib(child.Start) {
			return true
		}
		done, ended := win.Death(child.G, child.Time)
		if ended = ended && done <= resumed; !ended {
			done = resumed
		}
		if isOther && !ended {
			return true
		}
		if child.Time >= firstEnd {
			goroutines = 0 // one after the other, not in parallel
			return false
		}
		goroutines, othersNS = goroutines+1, othersNS+done-child.Time
		firstEnd = min(firstEnd, done)
		return true
	})
	if goroutines < 2 {
		return 0, 0, 0
	}
	lastNS = resumed - lastBirth.Time
	return goroutines, lastNS, max(0, othersNS-lastNS) / (goroutines - 1)
}

// startsInStdlib reports whether a goroutine starts with a function of the standard library.
func (p *workerSum) startsInStdlib(start tracefmt.StackID) bool {
	frames := p.stage.Syms.Stack(start)
	return len(frames) == 0 || p.stage.Sites.RolesOf(frames[0]).Has(knowledge.Stdlib)
}
