package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// The holder of a lock, or of a slot of a pool, has acquired it in a function, and a later line of the same function works
// while it is held, in however many nested calls. That function is the innermost one that the stacks of a waiter and of the
// holder have in common, if the two are at different lines. A holder of a lock may have acquired it in another function than its
// waiters, as a writer among readers: then it is the one that the stacks of the holder and of its unlocking have in common. Below
// it, helper packages may do the work: the innermost line of the function's own package says more about it.

// A holderLineKey is the site where a goroutine waits, the site where the holder is during the wait, and the holder's position.
type holderLineKey struct {
	waitSite, holderSite tracefmt.FrameID
	holderPosition
}

// A holderPosition is the line of the common function below which the holder works, and the innermost line of the same package
// on the holder's stack.
type holderPosition struct{ line, work tracefmt.FrameID }

// addHolderLines adds up, for waits for locks and slots on a request's path, how long the holder was below which line of the
// acquiring function. Running time is left out, because its stack is that of the event at its end.
func (p *workerSum) addHolderLines(w *path.WalkResult, waits []critpath.FollowedWait) {
	for step := range entry.Each(w.Steps) {
		if step.FollowedWait < 0 || step.Kind == critpath.CPU || step.Kind == critpath.Runnable {
			continue // its stack is that of the event at its end
		}
		g, stack := step.G, step.Stack
		for index := step.FollowedWait; index >= 0; index = waits[index].Parent {
			wait := &waits[index]
			if g == wait.Waker {
				position := holderPosition{}
				if wait.Kind == critpath.WaitLock {
					position = p.unlockingPosition(wait.Stack, wait.WakerStack, stack)
				}
				if position.line == 0 {
					position = p.divergingPosition(wait.Stack, stack)
				}
				if position.line != 0 {
					key := holderLineKey{p.stage.Sites.SiteOf(wait.Stack), p.stage.Sites.SiteOf(step.Stack), position}
					p.holderLines[key] += (step.End - step.Start) * w.Weight
				}
			}
			g, stack = wait.G, wait.Stack
		}
	}
}

// addSharedLockLines does so for locks that processes share, which requests try to take repeatedly: all of their holders in this process
// have taken the lock on their own path, and hold it below later lines of that function, until they call the library again.
func (p *workerSum) addSharedLockLines(w *path.WalkResult, waits []critpath.FollowedWait) {
	lock := tracefmt.StackID(0) // of the last try
	for step := range entry.Each(w.Steps) {
		stack := step.Stack
		for index := step.FollowedWait; index >= 0; index = waits[index].Parent {
			stack = waits[index].Stack
		}
		switch {
		case p.stage.Sites.HasRole(stack, knowledge.SharedLock):
			lock = stack
		case lock != 0 && step.Kind != critpath.CPU && step.Kind != critpath.Runnable:
			if position := p.divergingPosition(lock, stack); position.line != 0 {
				p.holderLines[holderLineKey{p.stage.Sites.SiteOf(lock), p.stage.Sites.SiteOf(step.Stack), position}] += (step.End - step.Start) * w.Weight
			}
		}
	}
}

// divergingPosition finds the line of the acquiring function at which the holder is: its line in the innermost function
// (outside of the standard library) that is on both stacks. It is 0 if the stacks share no function or are at the same line of
// it.
func (p *workerSum) divergingPosition(waiter, holder tracefmt.StackID) holderPosition {
	key := [2]tracefmt.StackID{waiter, holder}
	position, cached := p.divergingPositions[key]
	if cached {
		return position
	}
	frames := p.stage.Syms.Stack(holder)
	for _, frame := range frames {
		holderFrame := p.stage.Syms.Frame(frame)
		if p.stage.Sites.IsStdlib(holderFrame.Func) {
			continue
		}
		waiterFrames := p.stage.Syms.Stack(waiter)
		isSameFunc := func(o tracefmt.FrameID) bool { return p.stage.Syms.Frame(o).Func == holderFrame.Func }
		if i := slices.IndexFunc(waiterFrames, isSameFunc); i >= 0 {
			if p.stage.Syms.Frame(waiterFrames[i]).Line != holderFrame.Line {
				isSamePackage := func(o tracefmt.FrameID) bool { return p.packageAt(o) == p.packageAt(frame) }
				position = holderPosition{frame, frames[slices.IndexFunc(frames, isSamePackage)]}
			}
			break
		}
	}
	p.divergingPositions[key] = position
	return position
}

// unlockingPosition returns the holder's position in the function that unlocks; 0 if that is not on the holder's stack, or if the
// waiter is in that function as well: then the holder is at the waiter's line.
func (p *workerSum) unlockingPosition(waiter, unlocking, holder tracefmt.StackID) holderPosition {
	position := p.divergingPosition(unlocking, holder)
	unlocker := p.stage.Syms.Frame(p.stage.Sites.SiteOf(unlocking)).Func
	isUnlocker := func(f tracefmt.FrameID) bool { return p.stage.Syms.Frame(f).Func == unlocker }
	if p.stage.Syms.Frame(position.line).Func != unlocker || slices.ContainsFunc(p.stage.Syms.Stack(waiter), isUnlocker) {
		return holderPosition{}
	}
	return position
}

// A HolderLine is the source line below which the holders of a lock or slot spend most of the time while others wait for it.
type HolderLine struct {
	WaitSite, HolderSite *report.Site // where the waiters and the holders are
	Line                 *report.Site
	Work                 *report.Site // the innermost line of the same package on the holder's stack
}

// HolderLines returns, for each pair of waiting and holding sites, the line that covers more than half of the waiting time;
// pairs without such a line are left out. Merge must have been called.
func (s *Sum) HolderLines(sp *spell.Speller) (out []HolderLine) {
	// A goroutine that waits at a line at which others wait for the same work of a holder has queued for the same lock.
	lines, positions := s.workers[0].holderLines, map[holderLineKey][]holderPosition{} // positions by waiting and holding site
	for k := range lines {
		sites := holderLineKey{waitSite: k.waitSite, holderSite: k.holderSite}
		positions[sites] = append(positions[sites], k.holderPosition)
	}
	isQueue := func(k holderLineKey) bool {
		return slices.ContainsFunc(positions[holderLineKey{waitSite: k.line, holderSite: k.holderSite}], func(p holderPosition) bool {
			return lines[holderLineKey{k.waitSite, k.holderSite, p}] > 0
		})
	}
	totals := make(map[holderLineKey]int64) // over all lines
	for k, ns := range lines {
		if !isQueue(k) {
			totals[holderLineKey{waitSite: k.waitSite, holderSite: k.holderSite}] += ns
		}
	}
	for k, ns := range lines {
		if !isQueue(k) && float64(ns) > threshold.HalfShare*float64(totals[holderLineKey{waitSite: k.waitSite, holderSite: k.holderSite}]) {
			out = append(out, HolderLine{sp.Site(k.waitSite), sp.Site(k.holderSite), sp.Site(k.line), sp.Site(k.work)})
		}
	}
	slices.SortFunc(out, func(a, b HolderLine) int {
		return cmp.Or(a.WaitSite.Compare(b.WaitSite), a.HolderSite.Compare(b.HolderSite), a.Line.Compare(b.Line), a.Work.Compare(b.Work))
	})
	return out
}
