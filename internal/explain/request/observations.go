package request

import (
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A visit is a place where a goroutine that may loop came by: what loops are
// found by of its spans. All waits and system calls are kept, of the rest
// between two waits each stack once, the wait's own before them included.
type observation struct {
	observedState
	observedWait // if it is one
}

type observedState struct {
	start          int64
	stack          tracefmt.StackID
	state          timeline.State
	reason         reason
	woken          bool
	isCreatorStack bool // the stack is the creator's
}

type observedWait struct {
	end        int64
	waker      uint64
	wakerStack tracefmt.StackID
}

// A visitor finds the visits of one goroutine after the other.
type observationCollector struct {
	spans  []timeline.Span
	states chunkedList[observedState]
	waits  chunkedList[observedWait]
	// Of the goroutine, since its last wait: whether it was seen to run, and the stacks seen last.
	hasRun       bool
	recentStacks [4]tracefmt.StackID // of those that are the creator's the complement
	recentCount  int
	isFirst      bool // nothing of it was seen
}

func (x *observationCollector) reset() {
	x.isFirst, x.hasRun, x.recentStacks = true, false, [4]tracefmt.StackID{}
}

func (x *observationCollector) add(f *Finder, spans []timeline.Span) {
	for i := range spans {
		span := &spans[i]
		isFirst := x.isFirst
		x.isFirst = false
		isCreatorStack := span.How == timeline.HowCreated
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
		*x.states.extend() = observedState{span.Start, span.Stack, span.State, f.reasonOf(span.Reason), span.Woken, isCreatorStack}
		if isWait {
			*x.waits.extend() = observedWait{span.End, span.Waker, span.WakerStack}
			x.hasRun, x.recentStacks, x.recentCount = false, [4]tracefmt.StackID{span.Stack}, 0
		}
	}
}

// collectObservations finds the visits of all candidates, several at once.
func (l *loopFinder) collectObservations(f *Finder, g *timeline.Gen) {
	runParallel(&l.collectors, f.opts.Workers, l.candidates, 1, func(collectors **observationCollector, list []*loopGoroutine) {
		collector := *collectors
		for _, goroutine := range list {
			goroutine.collector, goroutine.firstObservation, goroutine.firstWait = collector, collector.states.length, collector.waits.length
			collector.reset()
			collector.spans = f.window.EachSpans(goroutine.id, g.Base, g.End+1, collector.spans, func(spans []timeline.Span) { collector.add(f, spans) })
			goroutine.endObservation = collector.states.length
		}
	})
}

// observations yields those of a candidate.
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

// chunkedList is a list that need not be copied as it grows.
type chunkedList[T any] struct {
	chunks []*[chunkSize]T
	length int
}

const chunkSize = 1 << 10

// extend adds one to the list, to be filled in.
func (c *chunkedList[T]) extend() *T {
	index := c.length / chunkSize
	if index == len(c.chunks) {
		c.chunks = append(c.chunks, new([chunkSize]T))
	}
	c.length++
	return c.element(c.length - 1)
}

func (c *chunkedList[T]) element(i int) *T { return &c.chunks[i/chunkSize][i%chunkSize] }

// elements yields numbers from to end of the list.
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
	reasonReceive // or a select
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

// resolveReasons looks the texts up that are known by now.
func (f *Finder) resolveReasons() {
	for i := range reasonTexts {
		if f.reasonIDs[i] == 0 {
			f.reasonIDs[i] = f.syms.Lookup(reasonTexts[i].text)
		}
	}
}

// reasonOf tells what a text means. Several goroutines may ask.
func (f *Finder) reasonOf(id tracefmt.StringID) reason {
	for i, textID := range f.reasonIDs {
		if textID == id && id != 0 {
			return reasonTexts[i].reason
		}
	}
	return reasonOther
}
