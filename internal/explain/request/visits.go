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
type visit struct {
	place
	wait // if it is one
}

type place struct {
	start   int64
	stack   tracefmt.StackID
	state   timeline.State
	reason  reason
	woken   bool
	created bool // the stack is the creator's
}

type wait struct {
	end        int64
	waker      uint64
	wakerStack tracefmt.StackID
}

// A visitor finds the visits of one goroutine after the other.
type visitor struct {
	spans  []timeline.Span
	places chunks[place]
	waits  chunks[wait]
	// Of the goroutine, since its last wait: whether it was seen to run, and the stacks seen last.
	running bool
	stacks  [4]tracefmt.StackID // of those that are the creator's the complement
	n       int
	first   bool // nothing of it was seen
}

func (x *visitor) begin() { x.first, x.running, x.stacks = true, false, [4]tracefmt.StackID{} }

func (x *visitor) add(f *Finder, spans []timeline.Span) {
	for i := range spans {
		s := &spans[i]
		first := x.first
		x.first = false
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
			if (s.State != timeline.Running || x.running) && slices.Contains(x.stacks[:], stack) {
				continue
			}
			x.running = x.running || s.State == timeline.Running
			x.n++
			x.stacks[x.n%len(x.stacks)] = stack
		}
		*x.places.add() = place{s.Start, s.Stack, s.State, f.reason(s.Reason), s.Woken, created}
		if waits {
			*x.waits.add() = wait{s.End, s.Waker, s.WakerStack}
			x.running, x.stacks, x.n = false, [4]tracefmt.StackID{s.Stack}, 0
		}
	}
}

// look finds the visits of all candidates, several at once.
func (l *loops) look(f *Finder, g *timeline.Gen) {
	share(&l.visitors, f.opts.Workers, l.list, 1, func(own **visitor, list []*looper) {
		x := *own
		for _, c := range list {
			c.by, c.from, c.waits = x, x.places.n, x.waits.n
			x.begin()
			x.spans = f.win.EachSpans(c.id, g.Base, g.End+1, x.spans, func(spans []timeline.Span) { x.add(f, spans) })
			c.to = x.places.n
		}
	})
}

// visits yields those of a candidate.
func (c *looper) visits() iter.Seq[*visit] {
	return func(yield func(*visit) bool) {
		waits := c.waits
		var v visit
		for p := range c.by.places.part(c.from, c.to) {
			v.place, v.wait = *p, wait{}
			if p.state == timeline.Waiting {
				v.wait = *c.by.waits.at(waits)
				waits++
			}
			if !yield(&v) {
				return
			}
		}
	}
}

// chunks is a list that need not be copied as it grows.
type chunks[T any] struct {
	list []*[chunk]T
	n    int
}

const chunk = 1 << 10

// add adds one to the list, to be filled in.
func (c *chunks[T]) add() *T {
	at := c.n / chunk
	if at == len(c.list) {
		c.list = append(c.list, new([chunk]T))
	}
	c.n++
	return c.at(c.n - 1)
}

func (c *chunks[T]) at(i int) *T { return &c.list[i/chunk][i%chunk] }

// part yields numbers from to end of the list.
func (c *chunks[T]) part(from, end int) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for i := from; i < end; i++ {
			if !yield(c.at(i)) {
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

// findReasons looks the texts up that are known by now.
func (f *Finder) findReasons() {
	for i := range reasonTexts {
		if f.reasons[i] == 0 {
			f.reasons[i] = f.syms.Lookup(reasonTexts[i].text)
		}
	}
}

// reason tells what a text means. Several goroutines may ask.
func (f *Finder) reason(id tracefmt.StringID) reason {
	for i, known := range f.reasons {
		if known == id && id != 0 {
			return reasonTexts[i].is
		}
	}
	return reasonOther
}
