package request

import (
	"iter"
	"math"
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

// An observedState is the part of an observation that all states have. isCreatorStack says that the stack is that of the
// goroutine's creation, not its own.
type observedState struct {
	start          int64
	stack          tracefmt.StackID
	state          timeline.State
	reason         reason
	woken          bool
	isCreatorStack bool
}

// An observedWait is the part of an observation that only waits have: when the wait ended, and which goroutine ended it where.
type observedWait struct {
	end        int64
	waker      uint64
	wakerStack tracefmt.StackID
}

// An observationCollector turns the spans of goroutines into observations.
type observationCollector struct {
	spans  []timeline.Span
	turns  timeline.TimerTurns             // of the goroutine
	times  chunkedList[timeline.TimerTurn] // of the turns of all goroutines
	states chunkedList[observedState]
	waits  chunkedList[observedWait]
	// Since the goroutine's last wait: whether it ran, and the stacks observed last.
	hasRun       bool
	recentStacks [4]tracefmt.StackID // bitwise complement if the stack is the creator's
	recentCount  int
	isFirst      bool // no span of the goroutine was added
	receives     bool // the goroutine waited for the network
}

// reset prepares the collector for another goroutine.
func (x *observationCollector) reset() {
	x.isFirst, x.hasRun, x.recentStacks, x.receives = true, false, [4]tracefmt.StackID{}, false
}

// add appends the observations in consecutive spans of one goroutine to states and waits. It leaves out spans without a stack,
// and stacks that were just observed (see observation).
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
		// Elements are filled in place: to copy a fresh struct, the CPU waits until the stores to its fields are done.
		state := x.states.append()
		state.start, state.stack, state.state, state.reason = span.Start, span.Stack, span.State, c.reasonOf(span.Reason)
		state.woken, state.isCreatorStack = span.Woken, isCreatorStack
		if isWait {
			x.receives = x.receives || state.reason == reasonNetwork
			wait := x.waits.append()
			wait.end, wait.waker, wait.wakerStack = span.End, span.Waker, span.WakerStack
			x.hasRun, x.recentStacks, x.recentCount = false, [4]tracefmt.StackID{}, 0
			x.recentStacks[0] = span.Stack
		}
	}
}

// collectObservations collects the observations of all candidates in parallel, up to each candidate's maxSpans.
func (l *loopSource) collectObservations(c *collector, g *timeline.Gen) {
	runParallel(&l.collectors, c.workers, l.candidates, 1, func(collectors **observationCollector, list []*loopGoroutine) {
		collector := *collectors
		for _, goroutine := range list {
			goroutine.collector = collector
			goroutine.firstObservation, goroutine.firstWait = collector.states.length, collector.waits.length
			collector.reset()
			spanCount, from := 0, goroutine.observedUntil
			goroutine.turns = collector.collectTurns(c, g, goroutine)
			goroutine.observedUntil = g.End
			if turns := &goroutine.turns; turns.count > 0 {
				collector.spans = c.window.EachSpans(goroutine.id, from, turns.at(0).Wake, collector.spans, func(spans []timeline.Span) bool {
					collector.add(c, spans)
					return true
				})
				from, turns.index = turns.at(turns.count-1).End, collector.states.length
			}
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

// observedTurns are turns of a goroutine that are observed in bulk: see timeline.TimerTurns. The observation before them is the wait
// that the first wake ended, the one after them the wait that the last turn began.
type observedTurns struct {
	observation  // of each wait, without times
	collector    *observationCollector
	first, count int // times.element(first) is the first of count turns
	index        int // of the observation after them
}

func (t *observedTurns) at(i int) *timeline.TimerTurn { return t.collector.times.element(t.first + i) }

// collectTurns returns the goroutine's turns of the generation.
func (x *observationCollector) collectTurns(c *collector, g *timeline.Gen, goroutine *loopGoroutine) (turns observedTurns) {
	if goroutine.maxSpans != math.MaxInt || goroutine.observedUntil != g.Base {
		return turns
	}
	g.SetTimerTurns(goroutine.id, &x.turns)
	reason := c.reasonOf(x.turns.Reason)
	if len(x.turns.List) == 0 || reason == reasonNetwork || reason == reasonSync {
		return turns
	}
	turns.stack, turns.wakerStack, turns.reason, turns.state, turns.woken = x.turns.Stack, x.turns.WakerStack, reason, timeline.Waiting, true
	turns.collector, turns.first, turns.count = x, x.times.length, len(x.turns.List)
	for _, turn := range x.turns.List {
		*x.times.append() = turn
	}
	return turns
}

// observations iterates over the goroutine's observations in the generation, in order of time. The pointer is valid for one step.
// Those of turns follow unless addTurns, which adds them in bulk and may be nil, returns true.
func (c *loopGoroutine) observations(addTurns func(*observedTurns) bool) iter.Seq[*observation] {
	return func(yield func(*observation) bool) {
		waitIndex, index := c.firstWait, c.firstObservation
		var obs observation
		for state := range c.collector.states.elements(c.firstObservation, c.endObservation) {
			if c.turns.count > 0 && index == c.turns.index && (addTurns == nil || !addTurns(&c.turns)) && !c.turns.yield(yield) {
				return
			}
			index++
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

// yield yields the observations of the turns: the run of each, and the waits between them.
func (t *observedTurns) yield(yield func(*observation) bool) bool {
	for i := range t.count {
		turn := t.at(i)
		if i > 0 {
			wait := t.observation
			wait.start, wait.end = t.at(i-1).End, turn.Wake
			if !yield(&wait) {
				return false
			}
		}
		if !yield(&observation{observedState: observedState{start: turn.Start, stack: t.stack, state: timeline.Running}}) {
			return false
		}
	}
	return true
}

// skipTurns adds nothing of turns: the wait before them shows all that is needed.
func skipTurns(*observedTurns) bool { return true }
