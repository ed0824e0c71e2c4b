package request

import (
	"iter"
	"slices"

	"github.com/whylate/whylate/internal/trace/stdlib"
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
func (l *loops) look(f *Finder, g *timeline.Gen, ids []candidate) {
	n := f.workersFor(len(ids), 1)
	for len(l.visitors) < n {
		l.visitors = append(l.visitors, new(visitor))
	}
	eachPart(n, len(ids), 1, func(worker, from, to int) {
		x := l.visitors[worker]
		for i := from; i < to; i++ {
			c := &ids[i]
			c.by, c.from, c.waits = worker, x.places.n, x.waits.n
			x.begin()
			x.spans = f.win.EachSpans(c.id, g.Base, g.End+1, x.spans, func(spans []timeline.Span) { x.add(f, spans) })
			c.to = x.places.n
		}
	})
}

// visits yields those of a candidate.
func (l *loops) visits(c *candidate) iter.Seq[*visit] {
	return func(yield func(*visit) bool) {
		x, waits := l.visitors[c.by], c.waits
		var v visit
		for p := range x.places.part(c.from, c.to) {
			v.place, v.wait = *p, wait{}
			if p.state == timeline.Waiting {
				v.wait = *x.waits.at(waits)
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

// A waitPlace is what a stack says about a wait at it.
type waitPlace struct {
	known bool
	// bare is a stack that stands for all that differ from this one in the
	// runtime's own frames alone: those of a goroutine that waited when the trace
	// began show more of these.
	bare  tracefmt.StackID
	depth int // frames that are not the runtime's
	// around is how many of the service's own functions lie around the wait: the fewer, the nearer is it to the loop.
	around int
	// call is the frame of the call in which it waits, the innermost that is not the standard library's, -1 for none;
	// callOwned says that this is the service's own.
	call      int
	callOwned bool
	own       int  // the innermost frame of the service's own, -1 for none
	asks      bool // somebody is asked for something
	writes    bool // to a connection
	library   bool // that lets it wait, called by the service
	delays    bool // and is not asked for the next thing to do
	lock      bool // a Mutex
	called    bool // by a library's loop
	// sleeps says that a sleep here is no pause between two turns.
	sleeps bool
	pauses bool // and that it is the loop's own
}

// waitPlace returns what a stack says about waits. It is valid until the next call.
func (l *loops) waitPlace(f *Finder, id tracefmt.StackID) *waitPlace {
	if int(id) >= len(l.places) {
		l.places = append(l.places, make([]waitPlace, max(int(id)+1, f.syms.Stacks())-len(l.places))...)
	}
	p := &l.places[id]
	if !p.known {
		*p = l.placeOf(f, id)
	}
	return p
}

func (l *loops) placeOf(f *Finder, id tracefmt.StackID) waitPlace {
	p := waitPlace{known: true, bare: l.bareOf(f, id), call: -1, own: -1}
	n := f.namer
	frames := f.syms.Stack(id)
	own, called := false, new(function)
	for i, fr := range frames {
		fn, owned := n.of(fr), n.owned(f.syms.Frame(fr))
		if !fn.is(inRuntime) {
			p.depth++
		}
		if p.call < 0 && !fn.is(std) {
			p.call, p.callOwned = i, owned
		}
		if owned {
			if !own {
				p.own = i
			}
			own = true
			p.around++
		}
		if own {
			continue // what it calls is further in
		}
		p.asks = p.asks || fn.is(asks)
		p.library = p.library || !fn.is(std)
		p.writes = p.writes || fn.is(writes)
		called = fn
	}
	p.delays = own && p.library && !AsksForNext(called.name)
	if len(frames) > 0 {
		p.lock = stdlib.IsMutex(n.of(frames[0]).name)
		// Where a library's loop calls the service, what that does is work.
		outer := frames[len(frames)-1]
		p.pauses = own && p.around == 1 && !p.library
		p.called = own && !n.owned(f.syms.Frame(outer)) && !n.of(outer).is(std)
		p.sleeps = p.called || p.around >= deepSleep
	}
	return p
}

// bareOf finds what waitPlace.bare is.
func (l *loops) bareOf(f *Finder, id tracefmt.StackID) tracefmt.StackID {
	frames := f.syms.Stack(id)
	for len(frames) > 1 && f.namer.of(frames[0]).is(inRuntime) {
		frames = frames[1:]
	}
	key := make([]byte, 0, 8*len(frames))
	for _, fr := range frames {
		frame := f.syms.Frame(fr)
		key = appendID(appendID(key, uint32(frame.Func)), frame.Line)
	}
	if l.byBare == nil {
		l.byBare = make(map[string]tracefmt.StackID)
	}
	if _, ok := l.byBare[string(key)]; !ok {
		l.byBare[string(key)] = id
	}
	return l.byBare[string(key)]
}
