package summary

import (
	"slices"

	"github.com/whylate/whylate/internal/tracefmt"
)

// Short runs have no stack of their own: all that is known is the event that
// ended them, say an unlock in a function F, and F may have spent the time in
// something it called. Where longer runs, or CPU samples, did show what runs
// under F, the short ones are taken to be like them.

// An underKey is a function and a site that was seen running under it.
type underKey struct {
	fn   tracefmt.StringID
	site tracefmt.FrameID
}

// seenUnder takes note of running time at a site, seen with a stack.
func (t *Tables) seenUnder(stack tracefmt.StackID, site tracefmt.FrameID, ns int64) {
	fns, ok := t.owners[stack]
	if !ok {
		for _, f := range t.syms.Stack(stack) {
			if fn := t.syms.Frame(f).Func; !t.class.Sites.Std(fn) && !slices.Contains(fns, fn) {
				fns = append(fns, fn)
			}
		}
		t.owners[stack] = fns
	}
	for _, fn := range fns {
		t.under[underKey{fn, site}] += ns
	}
}

// enough is how much of the time in short runs under a function must have been
// seen in runs with a stack for those to speak for it.
const enough = 0.1

// shares returns how the time seen under a function divides by function and,
// within it, site. It is nil if too little was seen for ns of time unseen.
func (t *Tables) shares(fn tracefmt.StringID, ns int64) (sums map[tracefmt.FrameID]int64, total int64) {
	sums = map[tracefmt.FrameID]int64{}
	for k, v := range t.under {
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
