package request

import (
	"slices"

	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
)

// funcs finds calls of functions that the user names: the time from the first
// sign of the function on a goroutine's stack to the last. Calls that follow
// each other with no sign of their caller in between count as one.
type funcs struct {
	match  func(string) bool
	fns    []int8 // by function: 0 not known yet, 1 yes, -1 no
	stacks []int8 // by stack
	spans  []timeline.Span
	calls  map[uint64]*call
}

type call struct {
	open
	end   int64
	entry tracefmt.StackID
}

func newFuncs(match func(string) bool) *funcs {
	return &funcs{match: match, calls: make(map[uint64]*call)}
}

func (fs *funcs) has(syms *tracefmt.Symbols, id tracefmt.StackID) bool {
	for int(id) >= len(fs.stacks) {
		fs.stacks = append(fs.stacks, 0)
	}
	if fs.stacks[id] == 0 {
		fs.stacks[id] = -1
		for _, fr := range syms.Stack(id) {
			fn := syms.Frame(fr).Func
			for int(fn) >= len(fs.fns) {
				fs.fns = append(fs.fns, 0)
			}
			if fs.fns[fn] == 0 {
				fs.fns[fn] = -1
				if fs.match(syms.String(fn)) {
					fs.fns[fn] = 1
				}
			}
			if fs.fns[fn] == 1 {
				fs.stacks[id] = 1
				break
			}
		}
	}
	return fs.stacks[id] == 1
}

func (fs *funcs) add(f *Finder, g *timeline.Gen) {
	var ids []uint64
	g.Goroutines(func(id uint64) { ids = append(ids, id) })
	slices.Sort(ids)
	for _, id := range ids {
		fs.spans = f.win.Spans(id, g.Base, g.End+1, fs.spans[:0])
		c := fs.calls[id]
		for i := range fs.spans {
			s := &fs.spans[i]
			if s.Stack == 0 && s.State != timeline.Gone {
				continue // a coroutine switch, or a run whose end has no stack
			}
			if s.State != timeline.Gone && s.How != timeline.HowCreated && fs.has(f.syms, s.Stack) {
				if c == nil {
					from := max(s.Start, f.win.Start())
					c = &call{open: open{start: from, from: from, cut: s.Start < f.win.Start()}, entry: s.Stack}
					fs.calls[id] = c
				}
				c.end = s.End
				continue
			}
			if c != nil {
				end := c.end
				if s.State == timeline.Gone {
					end = s.Start
				}
				f.emit(&c.open, Request{Kind: Func, End: end, G: id, Entry: c.entry})
				delete(fs.calls, id)
				c = nil
			}
		}
	}
	for id := range fs.calls {
		if !g.Knows(id) {
			delete(fs.calls, id)
		}
	}
}
