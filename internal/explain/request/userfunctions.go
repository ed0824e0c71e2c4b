package request

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// funcs finds calls of functions that the user names: the time from the first
// sign of the function on a goroutine's stack to the last. Calls that follow
// each other from one line with no sign of their caller in between count as one. A call is of
// the outermost function that matches: what that calls is part of it.
type funcs struct {
	match  func(string) bool
	fns    []int8   // by function: 0 not known yet, 1 yes, -1 no
	stacks []called // by stack
	known  []bool   // by stack
	spans  []timeline.Span
	calls  map[uint64]*call
	again  int // calls that may be several
}

type call struct {
	open
	end   int64
	entry tracefmt.StackID
	root  called
	// last is the stack of the last wait or system call, lastEnd its end. A call
	// that came to one again, or to a line of its own before it, has a loop, or is
	// several calls: the last of them began at again, or before.
	last    tracefmt.StackID
	line    int
	lastEnd int64
	again   int64
}

// sign takes note of a wait or a system call.
func (c *call) sign(syms *tracefmt.Symbols, s *timeline.Span, at called) {
	if s.State != timeline.Waiting && s.State != timeline.Syscall {
		return
	}
	line := int(syms.Frame(at.frame).Line)
	if c.last != 0 && (line < c.line || s.Stack == c.last) {
		c.again = c.lastEnd
	}
	c.last, c.line, c.lastEnd = s.Stack, line, s.End
}

// called is a function that the user named, as it stands in a stack.
type called struct {
	frame tracefmt.FrameID // the outermost that matches; 0: none
	from  tracefmt.FrameID // the line that called it
}

// same reports whether two stacks can be of one call: two functions, or one that
// two lines called, are two calls.
func (c called) same(o called, syms *tracefmt.Symbols) bool {
	return o.frame != 0 && syms.Frame(c.frame).Func == syms.Frame(o.frame).Func && c.from == o.from
}

func newFuncs(match func(string) bool) *funcs {
	return &funcs{match: match, calls: make(map[uint64]*call)}
}

// in returns the function of a stack that the user named.
func (fs *funcs) in(syms *tracefmt.Symbols, id tracefmt.StackID) called {
	c := entry.At(&fs.stacks, id)
	known := entry.At(&fs.known, id)
	if *known {
		return *c
	}
	*known = true
	frames := syms.Stack(id)
	for i := len(frames) - 1; i >= 0; i-- {
		fn := syms.Frame(frames[i]).Func
		is := entry.At(&fs.fns, fn)
		if *is == 0 {
			*is = -1
			if fs.match(syms.String(fn)) {
				*is = 1
			}
		}
		if *is == 1 {
			c.frame = frames[i]
			if i+1 < len(frames) {
				c.from = frames[i+1]
			}
			break
		}
	}
	return *c
}

func (c *call) request(id uint64) Request {
	return Request{Kind: Func, End: c.end, G: id, Entry: c.entry, Root: c.root.frame}
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
			var root called
			if s.State != timeline.Gone && s.How != timeline.HowCreated {
				root = fs.in(f.syms, s.Stack)
			}
			// The end of one call may be the beginning of another.
			if c != nil && !c.root.same(root, f.syms) {
				if s.State == timeline.Gone {
					c.end = s.Start
				}
				if c.again != 0 {
					fs.again++
				}
				f.emit(&c.open, c.request(id))
				delete(fs.calls, id)
				c = nil
			}
			if root.frame == 0 {
				continue
			}
			if c == nil {
				from := max(s.Start, f.win.Start())
				c = &call{open: open{start: from, from: from, cut: s.Start < f.win.Start()}, entry: s.Stack, root: root}
				fs.calls[id] = c
			}
			c.end = s.End
			c.sign(f.syms, s, root)
		}
	}
	for id := range fs.calls {
		if !g.Knows(id) {
			delete(fs.calls, id)
		}
	}
}

// settle gives calls that have not ended the latest start that they can have, so
// that many calls, one after the other, are not one that hangs.
func (fs *funcs) settle() {
	for _, c := range fs.calls {
		switch {
		case c.again == 0:
		case c.key == 0:
			c.start, c.from, c.cut = c.again, c.again, false
		default: // parts of it were handed out
			c.cut = true
		}
	}
}

// Accepts reports whether the process accepts connections for a protocol that is not known.
func (f *Finder) Accepts() bool { return f.loops.accepts }

// Again returns how many calls of functions that the user named came to a line
// again: each has a loop, or is several calls with no event between them.
func (f *Finder) Again() int {
	if f.funcs == nil {
		return 0
	}
	return f.funcs.again
}
