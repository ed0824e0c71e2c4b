package request

import "github.com/whylate/whylate/internal/trace/timeline"

// A source finds requests of one kind, or of kinds that one protocol has. To add one, write a type with these methods in
// a file for it, put it into a stage of NewFinder, and give its Kind a text in package report.
//
// No method is called for each event. In add, a source reads from the generation what concerns it:
//
//   - g.Births returns the goroutines that began, selected by the stack of their start function.
//   - g.EachMarked yields the events whose stack has a flag of Classifier, by goroutine. An event that no flag selects
//     needs a new one in stackflags.go.
//   - g.Death returns when a goroutine ended, g.NextWake when it was woken.
//   - c.window.Spans returns all states of one goroutine. Most goroutines are of no interest: call it for few.
//   - c.stackInfo describes a stack. It decides by roles of functions (package knowledge).
//
// State by goroutine remains until the goroutine ends: see removeEnded and removeUnknown. If workers process goroutines
// in parallel (runParallel), each has its own output and buffers; add appends the outputs in the end.
//
// The order of stages and of sources in them is the precedence. A later stage sees only what an earlier one left. Within
// a stage, a source that must know all the others' requests of the generation waits for finishGeneration. A source that depends on
// another one in any other way has it in a field, whose comment says why.
type source interface {
	// add processes g, the window's last generation. It emits the requests that ended.
	add(c *collector, g *timeline.Gen)
	// finishGeneration processes g after all sources of the stage have added it.
	finishGeneration(c *collector, g *timeline.Gen)
	// visitOpen calls visit with each open request. The Request has no bounds. Long requests are emitted in pieces, and
	// the window keeps the generations of the others.
	visitOpen(visit func(*openRequest, Request))
	// finishTrace processes the end of the trace. Requests that are open after it are emitted as such.
	finishTrace(c *collector, end int64)
}

// sourceStubs has empty methods for a source that does not need them.
type sourceStubs struct{}

func (sourceStubs) add(*collector, *timeline.Gen)              {}
func (sourceStubs) finishGeneration(*collector, *timeline.Gen) {}
func (sourceStubs) visitOpen(func(*openRequest, Request))      {}
func (sourceStubs) finishTrace(*collector, int64)              {}

// An annotation is a source whose requests the service's code delimits by user events. It has precedence over protocols.
type annotation interface {
	source
	// addEvent processes a user event, before add. Finder.eventSources selects the kinds.
	addEvent(c *collector, event *timeline.UserEvent)
	// isOpenAt reports whether a request that is open on a goroutine had begun at t.
	isOpenAt(goroutine uint64, t int64) bool
	// emitInstead emits the source's requests within a request of a protocol. It returns true if they represent that
	// request, or if finishGeneration will decide and emit. Workers may call it concurrently for different goroutines.
	emitInstead(out *[]Request, begin *openRequest, served Request) bool
}

// A protocol is a source of requests that clients send. It emits them by collector.emitServed.
type protocol interface {
	source
	// serves reports whether a goroutine serves the protocol. Its work, and goroutines that it starts, are parts of requests.
	serves(goroutine uint64) bool
	// openOn returns the open request on a goroutine, nil if there is none or if annotations need not wait for its end.
	openOn(goroutine uint64) *openRequest
}
