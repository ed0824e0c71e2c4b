package request

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// callSource finds calls of functions that the user names. A call lasts from the first event with the function on the
// goroutine's stack to the last. Calls from one line with no event of their caller in between count as one. The
// outermost function that matches counts, and its callees are part of it.
type callSource struct {
	sourceStubs
	matchName     func(string) bool
	matches       []int8        // by function: 0 unknown, 1 matches, -1 does not
	byStack       []matchedFunc // by stack
	calls         map[uint64]*userCall
	repeatedCalls int // calls that may be several
}

// A userCall is an open call of a function that the user named.
type userCall struct {
	openRequest
	end        int64
	entryStack tracefmt.StackID
	function   matchedFunc
	// lastWaitStack is the stack of the last wait or system call, and lastWaitEnd its end. A call that reached the same
	// stack again, or an earlier line of the function, has a loop or is several calls. The last of them began at
	// latestStart or before.
	lastWaitStack tracefmt.StackID
	lastLine      int
	lastWaitEnd   int64
	latestStart   int64
}

// addWait records a wait or a system call within the call. If the goroutine reached the same stack again, or an earlier line of
// the function, another call may have begun at the end of the last wait (latestStart).
func (c *userCall) addWait(syms *tracefmt.Symbols, s *timeline.Span, match matchedFunc) {
	if s.State != timeline.Waiting && s.State != timeline.Syscall {
		return
	}
	line := int(syms.Frame(match.frame).Line)
	if c.lastWaitStack != 0 && (line < c.lastLine || s.Stack == c.lastWaitStack) {
		c.latestStart = c.lastWaitEnd
	}
	c.lastWaitStack, c.lastLine, c.lastWaitEnd = s.Stack, line, s.End
}

// matchedFunc is a frame of a function that the user named.
type matchedFunc struct {
	frame       tracefmt.FrameID // the outermost that matches, 0 for none
	callerFrame tracefmt.FrameID // 0 for none
	isResolved  bool
}

// isSameCall reports whether two stacks may belong to one call: the same function matches in both, and the same frame called it.
func (c matchedFunc) isSameCall(o matchedFunc, syms *tracefmt.Symbols) bool {
	return o.frame != 0 && syms.Frame(c.frame).Func == syms.Frame(o.frame).Func && c.callerFrame == o.callerFrame
}

// matchIn returns the outermost frame of a stack whose function the user named, and its caller; frames are 0 if there are none.
// It caches the result.
func (fs *callSource) matchIn(syms *tracefmt.Symbols, id tracefmt.StackID) matchedFunc {
	match := entry.GetOrGrow(&fs.byStack, id)
	if match.isResolved {
		return *match
	}
	match.isResolved = true
	frames := syms.Stack(id)
	for i := len(frames) - 1; i >= 0; i-- {
		fn := syms.Frame(frames[i]).Func
		verdict := entry.GetOrGrow(&fs.matches, fn)
		if *verdict == 0 {
			*verdict = -1
			if fs.matchName(syms.String(fn)) {
				*verdict = 1
			}
		}
		if *verdict == 1 {
			match.frame = frames[i]
			if i+1 < len(frames) {
				match.callerFrame = frames[i+1]
			}
			break
		}
	}
	return *match
}

// toRequest returns the call on goroutine id as a request.
func (c *userCall) toRequest(id uint64) Request {
	return Request{Kind: Func, End: c.end, G: id, EntryStack: c.entryStack, RootFrame: c.function.frame}
}

// add follows each goroutine and emits the calls that ended: when the function is no longer on the stack, or is called from
// another line.
func (fs *callSource) add(c *collector, g *timeline.Gen) {
	var ids []uint64
	g.Goroutines(func(id uint64) { ids = append(ids, id) })
	slices.Sort(ids)
	for _, id := range ids {
		call := fs.calls[id]
		for _, span := range c.spans(id, g.Base, g.End+1) {
			if span.Stack == 0 && span.State != timeline.NotAlive {
				continue // a coroutine switch, or a run whose end has no stack
			}
			var match matchedFunc
			if span.State != timeline.NotAlive && span.Origin != timeline.OriginCreated {
				match = fs.matchIn(c.syms, span.Stack)
			}
			// The end of one call may be the beginning of another.
			if call != nil && !call.function.isSameCall(match, c.syms) {
				if span.State == timeline.NotAlive {
					call.end = span.Start
				}
				if call.latestStart != 0 {
					fs.repeatedCalls++
				}
				c.emit(&call.openRequest, call.toRequest(id))
				delete(fs.calls, id)
				call = nil
			}
			if match.frame == 0 {
				continue
			}
			if call == nil {
				start := max(span.Start, c.window.Start())
				call = &userCall{
					openRequest: openRequest{start: start, pieceStart: start, cutAtStart: span.Start < c.window.Start()},
					entryStack:  span.Stack, function: match,
				}
				fs.calls[id] = call
			}
			call.end = span.End
			call.addWait(c.syms, &span, match)
		}
	}
	removeUnknown(fs.calls, g)
}

// visitOpen visits the calls that have not returned.
func (fs *callSource) visitOpen(visit func(*openRequest, Request)) {
	for id, c := range fs.calls {
		visit(&c.openRequest, c.toRequest(id))
	}
}

// finishTrace moves the start of each open call to latestStart, if the call may be several: else many calls in succession would
// look like one call that hangs.
func (fs *callSource) finishTrace(*collector, int64) {
	for _, c := range fs.calls {
		switch {
		case c.latestStart == 0:
		case c.pieceKey == 0:
			c.start, c.pieceStart, c.cutAtStart = c.latestStart, c.latestStart, false
		default: // pieces of it were emitted
			c.cutAtStart = true
		}
	}
}

// RepeatedCalls returns how many calls reached the same line again. Each has a loop or is several calls with no event
// between them.
func (f *Finder) RepeatedCalls() int { return f.calls.repeatedCalls }
