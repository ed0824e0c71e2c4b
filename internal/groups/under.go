package groups

import (
	"slices"

	"github.com/whylate/whylate/internal/path"
	"github.com/whylate/whylate/internal/tracefmt"
)

// under adds up what was seen running under each function. Short runs have no
// stack of their own: all that a trace shows is the event that ended them, say an
// unlock in a function F, and F may have spent the time in something it called.
// Where longer runs, or CPU samples, did show what runs under F, the short ones
// are taken to be like them.
type under struct {
	stage  *path.Stage
	ns     map[underKey]int64
	owners map[tracefmt.StackID][]tracefmt.StringID // functions on a stack that a site can be in
}

// An underKey is a function and a site that was seen running under it.
type underKey struct {
	fn   tracefmt.StringID
	site tracefmt.FrameID
}

func newUnder(s *path.Stage) under {
	return under{stage: s, ns: make(map[underKey]int64), owners: make(map[tracefmt.StackID][]tracefmt.StringID)}
}

// add adds a request's running time that shows a stack.
func (u *under) add(w *path.Walked) {
	for i := range w.Segments {
		s := &w.Segments[i]
		if s.Stack == 0 {
			continue
		}
		for _, fn := range u.functions(s.Stack) {
			u.ns[underKey{fn, s.Site}] += (s.End - s.Start) * w.Weight
		}
	}
}

func (u *under) functions(stack tracefmt.StackID) []tracefmt.StringID {
	fns, ok := u.owners[stack]
	if !ok {
		for _, f := range u.stage.Syms.Stack(stack) {
			if fn := u.stage.Syms.Frame(f).Func; !u.stage.Sites.Std(fn) && !slices.Contains(fns, fn) {
				fns = append(fns, fn)
			}
		}
		u.owners[stack] = fns
	}
	return fns
}

func (u *under) merge(o *under) {
	for k, ns := range o.ns {
		u.ns[k] += ns
	}
}

// enough is how much of the time in short runs under a function must have been
// seen in runs with a stack for those to speak for it.
const enough = 0.1

// shares returns how the time seen under a function divides by function and,
// within it, site. It is nil if too little was seen for ns of time unseen.
func (u *under) shares(fn tracefmt.StringID, ns int64) (sums map[tracefmt.FrameID]int64, total int64) {
	sums = map[tracefmt.FrameID]int64{}
	for k, v := range u.ns {
		if k.fn == fn {
			sums[k.site] += v
			total += v
		}
	}
	if total == 0 || float64(total) < enough*float64(ns) {
		return nil, 0
	}
	return sums, total
}

// Under returns, by site, the time that was seen running under a function, and
// all of it; nil if there was none. Merge must have been called.
func (s *Sum) Under(fn tracefmt.StringID) (sums map[tracefmt.FrameID]int64, total int64) {
	return s.parts[0].under.shares(fn, 0)
}
