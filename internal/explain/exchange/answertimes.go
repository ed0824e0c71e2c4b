package exchange

import (
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An AnswerFinder finds when requests were answered. It is for one goroutine.
type AnswerFinder struct {
	window      *timeline.Window
	stacks      stackRoles
	spanScratch []timeline.Span
}

// NewAnswerFinder returns an AnswerFinder for the requests of a window.
func NewAnswerFinder(window *timeline.Window, symbols *tracefmt.Symbols) *AnswerFinder {
	return &AnswerFinder{window: window, stacks: newStackRoles(symbols)}
}

// stackRoles are the roles of the functions of stacks.
type stackRoles struct {
	symbols *tracefmt.Symbols
	memo    map[tracefmt.StackID]knowledge.Roles
}

// newStackRoles returns the roles of stacks in a table of symbols.
func newStackRoles(symbols *tracefmt.Symbols) stackRoles {
	return stackRoles{symbols, make(map[tracefmt.StackID]knowledge.Roles)}
}

// rolesOf returns the union of the roles of all functions of a stack. It caches the result.
func (s *stackRoles) rolesOf(stack tracefmt.StackID) knowledge.Roles {
	roles, ok := s.memo[stack]
	if !ok {
		for _, frame := range s.symbols.Stack(stack) {
			roles = roles.Union(knowledge.Of(s.symbols.String(s.symbols.Frame(frame).Func)))
		}
		s.memo[stack] = roles
	}
	return roles
}

// hasBoth reports whether a stack has a function with role outer and one with role inner.
func (s *stackRoles) hasBoth(stack tracefmt.StackID, outer, inner knowledge.Role) bool {
	roles := s.rolesOf(stack)
	return roles.Has(outer) && roles.Has(inner)
}

// ofStart returns the roles of the outermost function of a stack, none if it is empty.
func (s *stackRoles) ofStart(stack tracefmt.StackID) (roles knowledge.Roles) {
	if frames := s.symbols.Stack(stack); len(frames) > 0 {
		roles = knowledge.Of(s.symbols.String(s.symbols.Frame(frames[len(frames)-1]).Func))
	}
	return roles
}

// answerTime returns a time at or before which the first bytes of the answer to a request were written: the first write of the
// answer or, for a unary gRPC call, the end of its last wait, after which it has the answer. If neither is seen, it is the start
// of the request. Over HTTP/2 (isStream) the goroutine passes the answer to another one that writes it.
func (f *AnswerFinder) answerTime(r *request.Request, isStream bool) int64 {
	f.spanScratch = f.window.Spans(r.G, r.Start, r.End+1, f.spanScratch[:0])
	busySince, isUnary := r.Start, false
	for i := range f.spanScratch {
		s := &f.spanScratch[i]
		roles := f.stacks.rolesOf(s.Stack)
		isUnary = isUnary || roles.Has(knowledge.GRPCUnary)
		switch writes := roles.Has(knowledge.AnswerWrite) || roles.Has(knowledge.GRPCUnaryAnswer); {
		case writes && (isStream || s.State == timeline.Syscall):
			return max(s.Start, r.Start)
		case s.State == timeline.Waiting && !writes:
			busySince = max(busySince, min(s.End, r.End))
		}
	}
	if isUnary {
		return busySince
	}
	return r.Start
}
