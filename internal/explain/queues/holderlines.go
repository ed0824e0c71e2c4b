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

// underKey is where a lock is waited for, where its holder is meanwhile, and the line that this one works below.
type underKey struct{ wait, site, line tracefmt.FrameID }

// addUnder takes note of the lines that holders work below.
func (p *part) addUnder(w *path.Walked, waits []critpath.FollowedWait) {
	for i := range w.Steps {
		st := &w.Steps[i]
		if st.FollowedWait < 0 || st.Kind == critpath.CPU || st.Kind == critpath.Runnable {
			continue // its stack is that of the event at its end
		}
		g, stack := st.G, st.Stack
		for v := st.FollowedWait; v >= 0; v = waits[v].Parent {
			x := &waits[v]
			if g == x.Waker {
				if line := p.parting(x.Stack, stack); line != 0 {
					p.under[underKey{p.stage.Sites.Of(x.Stack), p.stage.Sites.Of(st.Stack), line}] += (st.End - st.Start) * w.Weight
				}
			}
			g, stack = x.G, x.Stack
		}
	}
}

// parting returns the holder's line of the innermost function, no matter which of the standard library's are within, that it has in common with who waits;
// 0 if there is none, or if both are at one line of it.
func (p *part) parting(waiter, holder tracefmt.StackID) tracefmt.FrameID {
	k := [2]tracefmt.StackID{waiter, holder}
	line, known := p.partings[k]
	if known {
		return line
	}
	for _, f := range p.stage.Syms.Stack(holder) {
		of := p.stage.Syms.Frame(f)
		if p.stage.Sites.Std(of.Func) {
			continue
		}
		own := p.stage.Syms.Stack(waiter)
		if i := slices.IndexFunc(own, func(o tracefmt.FrameID) bool { return p.stage.Syms.Frame(o).Func == of.Func }); i >= 0 {
			if p.stage.Syms.Frame(own[i]).Line != of.Line {
				line = f
			}
			break
		}
	}
	p.partings[k] = line
	return line
}

// Under says below which line of the function that has taken a lock or a place its holders mostly are, while others wait for it.
type Under struct {
	Wait, Site *report.Site // where others wait, and where the holders are
	Line       *report.Site
}

// Under returns the lines of all waits. Merge must have been called.
func (s *Sum) Under(sp *spell.Speller) []Under {
	all := make(map[underKey]int64) // with any line
	for k, ns := range s.parts[0].under {
		all[underKey{wait: k.wait, site: k.site}] += ns
	}
	var out []Under
	for k, ns := range s.parts[0].under {
		if float64(ns) > scale.Half*float64(all[underKey{wait: k.wait, site: k.site}]) {
			out = append(out, Under{sp.Site(k.wait), sp.Site(k.site), sp.Site(k.line)})
		}
	}
	slices.SortFunc(out, func(a, b Under) int {
		return cmp.Or(a.Wait.Compare(b.Wait), a.Site.Compare(b.Site), a.Line.Compare(b.Line))
	})
	return out
}
