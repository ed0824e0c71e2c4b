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
	symbols     *tracefmt.Symbols
	functions   knowledge.Index[tracefmt.StringID]
	rolesMemo   map[tracefmt.StackID]knowledge.Roles
	spanScratch []timeline.Span
}

// NewAnswerFinder returns an AnswerFinder for the requests of a window.
func NewAnswerFinder(window *timeline.Window, symbols *tracefmt.Symbols) *AnswerFinder {
	return &AnswerFinder{window: window, symbols: symbols, functions: knowledge.NewIndex(symbols.String), rolesMemo: make(map[tracefmt.StackID]knowledge.Roles)}
}

// rolesOf returns the union of the roles of all functions of a stack. It caches the result.
func (f *AnswerFinder) rolesOf(stack tracefmt.StackID) (roles knowledge.Roles) {
	roles, ok := f.rolesMemo[stack]
	if !ok {
		for _, frame := range f.symbols.Stack(stack) {
			roles = roles.Union(f.functions.Of(f.symbols.Frame(frame).Func))
		}
		f.rolesMemo[stack] = roles
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
		roles := f.rolesOf(s.Stack)
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
