package process

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A SampledFunc counts the CPU samples of a function of the service, with those of the standard library's functions that it calls.
type SampledFunc struct {
	Samples int64
	ByCall  map[string]CallSamples // by the exported functions of the standard library that it is in
}

// CallSamples counts CPU samples of a function of the standard library.
type CallSamples struct {
	Samples int64
	Depth   int64 // sum over the samples: functions of the standard library that lead to it, with itself
}

// MainCall returns the innermost function of the standard library in which a function of the service is in most CPU samples; "" if
// there is none, or too few samples show it.
func (f *SampledFunc) MainCall() (mainCall string) {
	if f == nil || f.Samples < threshold.SmallSample {
		return ""
	}
	depthOfMost := 0.0
	for call, n := range f.ByCall {
		if float64(n.Samples) <= threshold.HalfShare*float64(f.Samples) {
			continue
		}
		if depth := float64(n.Depth) / float64(n.Samples); depth > depthOfMost || depth == depthOfMost && call < mainCall {
			mainCall, depthOfMost = call, depth
		}
	}
	return mainCall
}

// addCalls counts n CPU samples with the stack id for the innermost of the service's functions, and for the functions of the standard
// library that it calls there.
func (s *Stats) addCalls(sp *spell.Speller, id tracefmt.StackID, n int64) {
	var calls []string // innermost first
	for _, f := range sp.Syms.Stack(id) {
		fr := sp.Syms.Frame(f)
		fn := sp.Syms.String(fr.Func)
		if sp.Sites.IsStdlib(fr.Func) {
			if isExported(fn) && !slices.Contains(calls, fn) {
				calls = append(calls, fn)
			}
			continue
		}
		sampled := entry.GetOrMake(s.SampledFuncs, fn, func() *SampledFunc { return &SampledFunc{ByCall: map[string]CallSamples{}} })
		sampled.Samples += n
		for i, call := range calls {
			count := sampled.ByCall[call]
			sampled.ByCall[call] = CallSamples{count.Samples + n, count.Depth + n*int64(len(calls)-i)}
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
