package request

import (
	"iter"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An observation is a state of a goroutine that may loop. All waits and system calls are observations. Between two
// waits each other stack is one only once, and neither the stack of the wait before nor, after the first run, of a system call is one.
type observation struct {
	observedState
	observedWait       // if the state is a wait
	skipsRepeated bool // set by the consumer of a wait: the repeated observations are left out
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

// An observedWait is the part of an observation that only waits have: when the wait ended, and which goroutine ended it where. repeated
// is the number of observations from there to the next wait if they equal those since the wait before, except for their times; else 0.
type observedWait struct {
	end        int64
	waker      uint64
	wakerStack tracefmt.StackID
	repeated   uint32
}

// An observationCollector turns the spans of goroutines into observations.
type observationCollector struct {
	spans      []timeline.Span
	last       timeline.Span                        // that was added last
	iterations timeline.TimerIterations             // of the goroutine
	times      chunkedList[timeline.TimerIteration] // of the iterations of all goroutines
	states     chunkedList[observedState]
	waits      chunkedList[observedWait]
	waitStacks []tracefmt.StackID // of the waits of all goroutines, none that is one of the last four of its goroutine
	// Since the goroutine's last wait: whether it ran, and the stacks observed last.
	hasRun          bool
	recentStacks    [4]tracefmt.StackID // bitwise complement if the stack is the creator's
	recentCount     int
	isFirst         bool // no span of the goroutine was added
	waitsForNetwork bool // the goroutine waited for the network
	firstWaitStack  int  // index of the goroutine's first wait in waitStacks
	readinessWaits  map[tracefmt.StackID]bool
	end             int64 // of the generation
	// The index in states of the goroutine's last wait, and the number of states between it and the one before.
	waitIndex, statesBefore int
}

// reset prepares the collector for another goroutine.
func (x *observationCollector) reset() {
	x.last, x.isFirst, x.hasRun, x.recentStacks, x.waitsForNetwork = timeline.Span{}, true, false, [4]tracefmt.StackID{}, false
	x.firstWaitStack, x.waitIndex, x.statesBefore = len(x.waitStacks), x.states.length-1, -1
}

// add appends the observations in consecutive spans of one goroutine to states and waits. It leaves out spans without a stack,
// and stacks that were just observed (see observation).
func (x *observationCollector) add(c *collector, spans []timeline.Span) {
	if len(spans) > 0 {
		x.last = spans[len(spans)-1]
	}
	for i := range spans {
		span := &spans[i]
		isFirst := x.isFirst
		x.isFirst = false
		isCreatorStack := span.Origin == timeline.OriginCreated
		isReadinessWait := span.State == timeline.Syscall && x.readinessWaits[span.Stack]
		isWait := span.State == timeline.Waiting || isReadinessWait
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
			x.recentCount++
			x.recentStacks[x.recentCount%len(x.recentStacks)] = stack
			if x.hasRun && i+1 < len(spans) && spans[i+1].State == timeline.Syscall && spans[i+1].Stack == span.Stack && !x.readinessWaits[span.Stack] {
				continue
			}
			x.hasRun = x.hasRun || span.State == timeline.Running
		}
		// Elements are filled in place: to copy a fresh struct, the CPU waits until the stores to its fields are done.
		state := x.states.append()
		state.start, state.stack, state.state, state.reason = span.Start, span.Stack, span.State, c.reasonOf(span.Reason)
		state.woken, state.isCreatorStack = span.Woken, isCreatorStack
		if isReadinessWait {
			state.state, state.reason, state.woken = timeline.Waiting, reasonNetwork, span.End < x.end
		}
		if isWait {
			x.waitsForNetwork = x.waitsForNetwork || state.reason == reasonNetwork && !isReadinessWait // an event loop handles its messages itself
			x.markRepeated()
			wait := x.waits.append()
			wait.end, wait.waker, wait.wakerStack = span.End, span.Waker, span.WakerStack
			x.hasRun, x.recentStacks, x.recentCount = false, [4]tracefmt.StackID{}, 0
			x.recentStacks[0] = span.Stack
			if known := x.waitStacks[max(x.firstWaitStack, len(x.waitStacks)-4):]; span.Stack != 0 && !slices.Contains(known, span.Stack) {
				x.waitStacks = append(x.waitStacks, span.Stack)
			}
		}
	}
}

// markRepeated records at the goroutine's last wait, before another one is appended, whether the states since then repeat those before it.
func (x *observationCollector) markRepeated() {
	index := x.states.length - 1
	count := index - x.waitIndex - 1
	isRepeated := count == x.statesBefore
	for k := x.waitIndex + 1; isRepeated && k < index; k++ {
		state, before := x.states.element(k), *x.states.element(k - count - 1)
		before.start = state.start
		isRepeated = before == *state
	}
	if isRepeated {
		x.waits.element(x.waits.length - 1).repeated = uint32(count)
	}
	x.waitIndex, x.statesBefore = index, count
}

// collectObservations collects the observations of all candidates in parallel, up to each candidate's maxSpans.
func (l *loopSource) collectObservations(c *collector, g *timeline.Gen) {
	runParallel(&l.collectors, c.workers, l.candidates, 1, func(collectors **observationCollector, list []*loopGoroutine) {
		collector := *collectors
		for _, goroutine := range list {
			goroutine.collector = collector
			goroutine.firstObservation, goroutine.firstWait = collector.states.length, collector.waits.length
			collector.reset()
			collector.end = g.End
			spanCount, from := 0, goroutine.observedUntil
			goroutine.iterations = collector.collectIterations(c, g, goroutine)
			goroutine.observedUntil = g.End
			iterations := &goroutine.iterations
			if iterations.count > 0 {
				collector.addBefore(c, g, goroutine, from)
				from, iterations.index = iterations.at(iterations.count-1).End, collector.states.length
			}
			if iterations.count > 0 && collector.iterations.AtEnd {
				collector.addWait(c, timeline.Span{Start: from, End: g.End + 1, State: timeline.Waiting, Stack: iterations.stack, Reason: collector.iterations.Reason})
			} else {
				collector.spans = c.window.EachSpans(goroutine.id, from, g.End+1, collector.spans, func(spans []timeline.Span) bool {
					collector.add(c, spans)
					if spanCount += len(spans); spanCount >= goroutine.maxSpans {
						goroutine.observedUntil = min(spans[len(spans)-1].End, g.End)
					}
					return goroutine.observedUntil == g.End
				})
			}
			if goroutine.lastSpan = collector.last; collector.last.End > g.End {
				goroutine.generation = g.Num
			}
			goroutine.endObservation, goroutine.firstWaitStack, goroutine.endWaitStack = collector.states.length, collector.firstWaitStack, len(collector.waitStacks)
			goroutine.waitsForNetwork = goroutine.waitsForNetwork || collector.waitsForNetwork
		}
	})
	// Which of several goroutines waits for data on a socket makes no difference.
	for _, collector := range l.collectors {
		if !l.hasReadLocks {
			break
		}
		for state := range collector.states.elements(0, collector.states.length) {
			if state.state == timeline.Waiting && state.reason == reasonSync && state.stack != 0 && c.stackInfo(state.stack).isFDReadLock {
				state.reason = reasonNetwork
			}
		}
	}
}

// addBefore appends the observations from a time until the first of the goroutine's equal iterations. If there is only the wait that
// began in the generation before, it is known.
func (x *observationCollector) addBefore(c *collector, g *timeline.Gen, goroutine *loopGoroutine, from int64) {
	iterations, wait := &goroutine.iterations, goroutine.lastSpan
	if x.iterations.AtStart && goroutine.generation+1 == g.Num && wait.State == timeline.Waiting && !wait.Woken && wait.Stack != 0 {
		wait.End, wait.Woken, wait.Waker, wait.WakerStack = iterations.at(0).Wake, true, 0, 0
		x.addWait(c, wait)
		return
	}
	x.spans = c.window.EachSpans(goroutine.id, from, iterations.at(0).Wake, x.spans, func(spans []timeline.Span) bool {
		x.add(c, spans)
		return true
	})
}

func (x *observationCollector) addWait(c *collector, wait timeline.Span) {
	x.spans = append(x.spans[:0], wait)
	x.add(c, x.spans)
}

// timerIterations are iterations of a goroutine that are observed in bulk: see timeline.TimerIterations. The observation before them
// is the wait that the first wake ended, the one after them the wait that the last iteration began.
type timerIterations struct {
	observation  // of each wait, without times
	collector    *observationCollector
	first, count int // times.element(first) is the first of count iterations
	index        int // of the observation after them
}

func (t *timerIterations) at(i int) *timeline.TimerIteration {
	return t.collector.times.element(t.first + i)
}

// collectIterations returns the goroutine's equal iterations in the generation.
func (x *observationCollector) collectIterations(c *collector, g *timeline.Gen, goroutine *loopGoroutine) (iterations timerIterations) {
	if goroutine.maxSpans != math.MaxInt || goroutine.observedUntil != g.Base {
		return iterations
	}
	g.SetTimerIterations(goroutine.id, &x.iterations)
	reason := c.reasonOf(x.iterations.Reason)
	if len(x.iterations.List) == 0 || reason == reasonNetwork || reason == reasonSync {
		return iterations
	}
	iterations.stack, iterations.reason, iterations.state, iterations.woken = x.iterations.Stack, reason, timeline.Waiting, true
	iterations.collector, iterations.first, iterations.count = x, x.times.length, len(x.iterations.List)
	for _, times := range x.iterations.List {
		*x.times.append() = times
	}
	return iterations
}

// observations iterates over the goroutine's observations in the generation, in order of time. The pointer is valid for one step.
// If addIterations is not nil, it is called with the iterations in bulk. If it returns true, their observations are left out.
func (c *loopGoroutine) observations(addIterations func(*timerIterations) bool) iter.Seq[*observation] {
	return func(yield func(*observation) bool) {
		waitIndex := c.firstWait
		var obs observation
		for index := c.firstObservation; index < c.endObservation; index++ {
			if c.iterations.count > 0 && index == c.iterations.index && !c.iterations.yield(addIterations, yield) {
				return
			}
			state := c.collector.states.element(index)
			obs.observedState, obs.observedWait = *state, observedWait{}
			if state.state == timeline.Waiting {
				obs.observedWait = *c.collector.waits.element(waitIndex)
				waitIndex++
			}
			obs.skipsRepeated = false
			if !yield(&obs) {
				return
			}
			if obs.skipsRepeated {
				index += int(obs.repeated)
			}
		}
	}
}

// yield passes the iterations to add. If add refuses them, it yields the run of the first iteration and the wait after it, which may
// differ because the trace does not show the wait before, and passes the others again, or yields them too.
func (t timerIterations) yield(add func(*timerIterations) bool, yield func(*observation) bool) bool {
	for tries := 0; t.count > 0; tries++ {
		if add != nil && tries < 2 && add(&t) {
			return true
		}
		if !yield(&observation{observedState: observedState{start: t.at(0).Start, stack: t.stack, state: timeline.Running}}) {
			return false
		}
		if t.count > 1 {
			wait := t.observation
			wait.start, wait.end = t.at(0).End, t.at(1).Wake
			if !yield(&wait) {
				return false
			}
		}
		t.first, t.count = t.first+1, t.count-1
	}
	return true
}

// skipIterations leaves out iterations: the wait before them shows all that is needed.
func skipIterations(*timerIterations) bool { return true }
