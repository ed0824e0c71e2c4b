package queues

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Who holds a lock, or a place, has taken it in a function whose later line works with it held, however many calls below that is. It is the innermost
// function that the stacks of one who waits for it and of its holder have in common, where both are at different lines of it.

// holderLineKey is where a lock is waited for, where its holder is meanwhile, and the line that this one works below.
type holderLineKey struct{ waitSite, holderSite, line tracefmt.FrameID }

// addHolderLines takes note of the lines that holders work below.
func (p *workerSum) addHolderLines(w *path.WalkResult, waits []critpath.FollowedWait) {
	for i := range w.Steps {
		step := &w.Steps[i]
		if step.FollowedWait < 0 || step.Kind == critpath.CPU || step.Kind == critpath.Runnable {
			continue // its stack is that of the event at its end
		}
		g, stack := step.G, step.Stack
		for index := step.FollowedWait; index >= 0; index = waits[index].Parent {
			wait := &waits[index]
			if g == wait.Waker {
				if line := p.divergingLine(wait.Stack, stack); line != 0 {
					p.holderLines[holderLineKey{p.stage.Sites.SiteOf(wait.Stack), p.stage.Sites.SiteOf(step.Stack), line}] += (step.End - step.Start) * w.Weight
				}
			}
			g, stack = wait.G, wait.Stack
		}
	}
}

// divergingLine returns the holder's line of the innermost function, no matter which of the standard library's are within, that it has in common with who waits;
// 0 if there is none, or if both are at one line of it.
func (p *workerSum) divergingLine(waiter, holder tracefmt.StackID) tracefmt.FrameID {
	key := [2]tracefmt.StackID{waiter, holder}
	line, cached := p.divergingLines[key]
	if cached {
		return line
	}
	for _, frame := range p.stage.Syms.Stack(holder) {
		holderFrame := p.stage.Syms.Frame(frame)
		if p.stage.Sites.IsStdlib(holderFrame.Func) {
			continue
		}
		waiterFrames := p.stage.Syms.Stack(waiter)
		if i := slices.IndexFunc(waiterFrames, func(o tracefmt.FrameID) bool { return p.stage.Syms.Frame(o).Func == holderFrame.Func }); i >= 0 {
			if p.stage.Syms.Frame(waiterFrames[i]).Line != holderFrame.Line {
				line = frame
			}
			break
		}
	}
	p.divergingLines[key] = line
	return line
}

// HolderLine says below which line of the function that has taken a lock or a place its holders mostly are, while others wait for it.
type HolderLine struct {
	WaitSite, HolderSite *report.Site // where others wait, and where the holders are
	Line                 *report.Site
}

// HolderLines returns the lines of all waits. Merge must have been called.
func (s *Sum) HolderLines(sp *spell.Speller) []HolderLine {
	totals := make(map[holderLineKey]int64) // with any line
	for k, ns := range s.workers[0].holderLines {
		totals[holderLineKey{waitSite: k.waitSite, holderSite: k.holderSite}] += ns
	}
	var out []HolderLine
	for k, ns := range s.workers[0].holderLines {
		if float64(ns) > scale.Half*float64(totals[holderLineKey{waitSite: k.waitSite, holderSite: k.holderSite}]) {
			out = append(out, HolderLine{sp.Site(k.waitSite), sp.Site(k.holderSite), sp.Site(k.line)})
		}
	}
	slices.SortFunc(out, func(a, b HolderLine) int {
		return cmp.Or(a.WaitSite.Compare(b.WaitSite), a.HolderSite.Compare(b.HolderSite), a.Line.Compare(b.Line))
	})
	return out
}
