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

// underKey is where a lock is waited for, and where its holder is meanwhile.
type underKey struct{ wait, site tracefmt.FrameID }

// addUnder takes note of the lines that holders work below.
func (p *part) addUnder(w *path.Walked, waits []critpath.Via) {
	if w.Req.End >= p.turns.until {
		return
	}
	for i := range w.Steps {
		st := &w.Steps[i]
		if st.Via < 0 || st.Kind == critpath.CPU || st.Kind == critpath.Runnable {
			continue // its stack is that of the event at its end
		}
		g, stack := st.G, st.Stack
		for v := st.Via; v >= 0; v = waits[v].Parent {
			x := &waits[v]
			if g == x.Waker {
				if line := p.parting(x.Stack, stack); line != 0 {
					k := underKey{p.stage.Sites.Of(x.Stack), p.stage.Sites.Of(st.Stack)}
					if p.under[k] == nil {
						p.under[k] = make(map[tracefmt.FrameID]int64)
					}
					p.under[k][line] += (st.End - st.Start) * w.Weight
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

// mergeUnder adds up what another worker has seen.
func (p *part) mergeUnder(o *part) {
	for k, lines := range o.under {
		if p.under[k] == nil {
			p.under[k] = lines
			continue
		}
		for line, ns := range lines {
			p.under[k][line] += ns
		}
	}
}

// Under says below which line of the function that has taken a lock or a place its holders mostly are, while others wait for it.
type Under struct {
	Wait, Site *report.Site // where others wait, and where the holders are
	Line       *report.Site
}

// Under returns the lines of all waits. Merge must have been called.
func (s *Sum) Under(sp *spell.Speller) []Under {
	var out []Under
	for k, lines := range s.parts[0].under {
		all, most, line := int64(0), int64(0), tracefmt.FrameID(0)
		for l, ns := range lines {
			if all += ns; ns > most {
				line, most = l, ns
			}
		}
		if float64(most) > scale.Half*float64(all) {
			out = append(out, Under{sp.Site(k.wait), sp.Site(k.site), sp.Site(line)})
		}
	}
	slices.SortFunc(out, func(a, b Under) int {
		return cmp.Or(a.Wait.Compare(b.Wait), a.Site.Compare(b.Site), a.Line.Compare(b.Line))
	})
	return out
}
