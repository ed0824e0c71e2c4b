package process

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A SampledFunc counts the CPU samples of a function of the service, with those of the standard library's functions that it calls.
type SampledFunc struct {
	Samples int64
	ByCall  map[string]int64 // by the exported function that it calls, if that is the standard library's
}

// MainCall returns the function of the standard library in which a function of the service is in most CPU samples; "" if there is
// none, or too few samples show it.
func (f *SampledFunc) MainCall() (most string) {
	if f == nil || f.Samples < threshold.SmallSample {
		return ""
	}
	for call, n := range f.ByCall {
		if float64(n) > threshold.HalfShare*float64(f.Samples) { // so it is one at most
			most = call
		}
	}
	return most
}

// addCall counts n CPU samples with the stack id for the innermost of the service's functions, which calls the standard library there.
func (s *Stats) addCall(sp *spell.Speller, id tracefmt.StackID, n int64) {
	call := ""
	for _, f := range sp.Syms.Stack(id) {
		fr := sp.Syms.Frame(f)
		fn := sp.Syms.String(fr.Func)
		if sp.Sites.IsStdlib(fr.Func) {
			call = fn
			continue
		}
		if s.SampledFuncs[fn] == nil {
			s.SampledFuncs[fn] = &SampledFunc{ByCall: map[string]int64{}}
		}
		s.SampledFuncs[fn].Samples += n
		if isExported(call) {
			s.SampledFuncs[fn].ByCall[call] += n
		}
		return
	}
}

// isExported reports whether a program can call a function of the standard library by its name.
func isExported(fn string) bool {
	p := stdlib.Package(fn)
	name, _, _ := strings.Cut(strings.TrimPrefix(fn, p), "[")
	first, _ := utf8.DecodeRuneInString(name[strings.LastIndexByte(name, '.')+1:])
	return p != "runtime" && !strings.HasPrefix(p, "internal/") && unicode.IsUpper(first)
}

// addSamples adds n CPU samples with the stack id to the activity that the stack shows: tracing, scheduling, garbage collection, or
// the program. Tracing has precedence, then scheduling.
func (s *Samples) addSamples(sp *spell.Speller, id tracefmt.StackID, n int64) {
	s.All += n
	sched, gc, tracing := false, false, false
	for _, f := range sp.Syms.Stack(id) {
		roles := sp.Sites.RolesOf(f)
		sched, gc, tracing = sched || roles.Has(knowledge.Scheduler), gc || roles.Has(knowledge.GCWork), tracing || roles.Has(knowledge.Tracing)
	}
	// Tracing inside the scheduler counts as tracing, and scheduling inside a mark worker as scheduling.
	switch {
	case tracing:
		s.Tracing += n
	case sched:
		s.Scheduler += n
	case gc:
		s.GC += n
	}
}
