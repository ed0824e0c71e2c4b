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
		s := &spans[i]
		first := x.isFirst
		x.isFirst = false
		created := s.How == timeline.HowCreated
		waits := s.State == timeline.Waiting
		if s.Stack == 0 {
			if !first || !waits || !s.Woken {
				continue
			}
		} else if !waits && s.State != timeline.Syscall {
			stack := s.Stack
			if created {
				stack = ^stack
			}
			if (s.State != timeline.Running || x.hasRun) && slices.Contains(x.recentStacks[:], stack) {
				continue
			}
			x.hasRun = x.hasRun || s.State == timeline.Running
			x.recentCount++
			x.recentStacks[x.recentCount%len(x.recentStacks)] = stack
		}
		*x.states.extend() = observedState{s.Start, s.Stack, s.State, f.reasonOf(s.Reason), s.Woken, created}
		if waits {
			*x.waits.extend() = observedWait{s.End, s.Waker, s.WakerStack}
			x.hasRun, x.recentStacks, x.recentCount = false, [4]tracefmt.StackID{s.Stack}, 0
		}
	}
}

// collectObservations finds the visits of all candidates, several at once.
func (l *loopFinder) collectObservations(f *Finder, g *timeline.Gen) {
	runParallel(&l.collectors, f.opts.Workers, l.candidates, 1, func(own **observationCollector, list []*loopGoroutine) {
		x := *own
		for _, c := range list {
			c.collector, c.firstObservation, c.firstWait = x, x.states.length, x.waits.length
			x.reset()
			x.spans = f.window.EachSpans(c.id, g.Base, g.End+1, x.spans, func(spans []timeline.Span) { x.add(f, spans) })
			c.endObservation = x.states.length
		}
	})
}

// observations yields those of a candidate.
func (c *loopGoroutine) observations() iter.Seq[*observation] {
	return func(yield func(*observation) bool) {
		waits := c.firstWait
		var v observation
		for p := range c.collector.states.elements(c.firstObservation, c.endObservation) {
			v.observedState, v.observedWait = *p, observedWait{}
			if p.state == timeline.Waiting {
				v.observedWait = *c.collector.waits.element(waits)
				waits++
			}
			if !yield(&v) {
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
	at := c.length / chunkSize
	if at == len(c.chunks) {
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
	text string
	is   reason
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
	for i, known := range f.reasonIDs {
		if known == id && id != 0 {
			return reasonTexts[i].is
		}
	}
	return reasonOther
}
