package process

import (
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

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
