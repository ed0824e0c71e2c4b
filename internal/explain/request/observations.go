package request

import (
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An observation is a state of a goroutine that may loop. All waits and system calls are observations. Between two
// waits each other stack is one only once, and the stack of the wait before is none.
type observation struct {
	observedState
	observedWait // if the state is a wait
}

type observedState struct {
	start          int64
	stack          tracefmt.StackID
	state          timeline.State
	reason         reason
	woken          bool
	isCreatorStack bool
}

type observedWait struct {
	end        int64
	waker      uint64
	wakerStack tracefmt.StackID
}

// An observationCollector turns the spans of goroutines into observations.
type observationCollector struct {
	spans  []timeline.Span
	states chunkedList[observedState]
	waits  chunkedList[observedWait]
	// Since the goroutine's last wait: whether it ran, and the stacks observed last.
	hasRun       bool
	recentStacks [4]tracefmt.StackID // bitwise complement if the stack is the creator's
	recentCount  int
	isFirst      bool // no span of the goroutine was added
	receives     bool // the goroutine waited for the network
}

func (x *observationCollector) reset() {
	x.isFirst, x.hasRun, x.recentStacks, x.receives = true, false, [4]tracefmt.StackID{}, false
}

func (x *observationCollector) add(c *collector, spans []timeline.Span) {
	for i := range spans {
		span := &spans[i]
		isFirst := x.isFirst
		x.isFirst = false
		isCreatorStack := span.Origin == timeline.OriginCreated
		isWait := span.State == timeline.Waiting
		if span.Stack == 0 {
			if !isFirst || !isWait || !span.Woken {
				continue
			}
		} else if !isWait && span.State != timeline.Syscall {
			stack := span.Stack
			if isCreatorStack {
				stack = ^stack
			}
			if (span.State != timeline.Running || x.hasRun) && slices.Contains(x.recentStacks[:], stack) {
				continue
			}
			x.hasRun = x.hasRun || span.State == timeline.Running
			x.recentCount++
			x.recentStacks[x.recentCount%len(x.recentStacks)] = stack
		}
		*x.states.extend() = observedState{span.Start, span.Stack, span.State, c.reasonOf(span.Reason), span.Woken, isCreatorStack}
		if isWait {
			x.receives = x.receives || c.reasonOf(span.Reason) == reasonNetwork
			*x.waits.extend() = observedWait{span.End, span.Waker, span.WakerStack}
			x.hasRun, x.recentStacks, x.recentCount = false, [4]tracefmt.StackID{span.Stack}, 0
		}
	}
}

// collectObservations collects the observations of all candidates in parallel.
func (l *loopSource) collectObservations(c *collector, g *timeline.Gen) {
	runParallel(&l.collectors, c.workers, l.candidates, 1, func(collectors **observationCollector, list []*loopGoroutine) {
		collector := *collectors
		for _, goroutine := range list {
			goroutine.collector = collector
			goroutine.firstObservation, goroutine.firstWait = collector.states.length, collector.waits.length
			collector.reset()
			spanCount, from := 0, goroutine.observedUntil
			goroutine.observedUntil = g.End
			collector.spans = c.window.EachSpans(goroutine.id, from, g.End+1, collector.spans, func(spans []timeline.Span) bool {
				collector.add(c, spans)
				if spanCount += len(spans); spanCount >= goroutine.maxSpans {
					goroutine.observedUntil = min(spans[len(spans)-1].End, g.End)
				}
				return goroutine.observedUntil == g.End
			})
			goroutine.endObservation = collector.states.length
			goroutine.receives = goroutine.receives || collector.receives
		}
	})
	// Whose turn it is to wait for data on a socket makes no difference.
	for _, collector := range l.collectors {
		for state := range collector.states.elements(0, collector.states.length) {
			if state.state == timeline.Waiting && state.reason == reasonSync && state.stack != 0 && c.stackInfo(state.stack).isReadTurn {
				state.reason = reasonNetwork
			}
		}
	}
}

// observations yields the goroutine's observations in the generation.
func (c *loopGoroutine) observations() iter.Seq[*observation] {
	return func(yield func(*observation) bool) {
		waitIndex := c.firstWait
		var obs observation
		for state := range c.collector.states.elements(c.firstObservation, c.endObservation) {
			obs.observedState, obs.observedWait = *state, observedWait{}
			if state.state == timeline.Waiting {
				obs.observedWait = *c.collector.waits.element(waitIndex)
				waitIndex++
			}
			if !yield(&obs) {
				return
			}
		}
	}
}

// chunkedList is a list that grows without copying.
type chunkedList[T any] struct {
	chunks []*[chunkSize]T
	length int
}

const chunkSize = 1 << 10

// extend appends a zero element and returns it.
func (c *chunkedList[T]) extend() *T {
	index := c.length / chunkSize
	if index == len(c.chunks) {
		c.chunks = append(c.chunks, new([chunkSize]T))
	}
	c.length++
	return c.element(c.length - 1)
}

func (c *chunkedList[T]) element(i int) *T { return &c.chunks[i/chunkSize][i%chunkSize] }

// deleteFunc deletes the elements for which del returns true.
func (c *chunkedList[T]) deleteFunc(del func(T) bool) {
	n := 0
	for i := range c.length {
		if e := c.element(i); !del(*e) {
			*c.element(n) = *e
			n++
		}
	}
	c.length = n
}

// elements yields the elements from index from up to end.
func (c *chunkedList[T]) elements(from, end int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := from; i < end; i++ {
			if !yield(c.element(i)) {
				return
			}
		}
	}
}

// A reason is why a goroutine waits.
type reason uint8

const (
	reasonOther reason = iota
	reasonNetwork
	reasonReceive // also select
	reasonCond
	reasonSync
	reasonSend
	reasonSleep
)

var reasonTexts = [...]struct {
	text   string
	reason reason
}{
	{"network", reasonNetwork}, {"chan receive", reasonReceive}, {"select", reasonReceive}, {"sync.(*Cond).Wait", reasonCond},
	{"sync", reasonSync}, {"chan send", reasonSend}, {"sleep", reasonSleep},
}

// resolveReasons looks up the texts of reasons that are not known yet.
func (sr *stackReader) resolveReasons() {
	for i := range reasonTexts {
		if sr.reasonIDs[i] == 0 {
			sr.reasonIDs[i] = sr.syms.Lookup(reasonTexts[i].text)
		}
	}
}

// reasonOf returns the reason that a text means. It is safe for concurrent use.
func (sr *stackReader) reasonOf(id tracefmt.StringID) reason {
	if id == 0 {
		return reasonOther
	}
	for i, textID := range sr.reasonIDs {
		if textID == id {
			return reasonTexts[i].reason
		}
	}
	return reasonOther
}
