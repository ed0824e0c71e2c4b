package timeline

import (
	"fmt"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Resume is what decoding one generation needs to know of those before it.
type Resume struct {
	First   bool     // nothing was before it
	Stopped []uint64 // goroutines that were stopping the world as it began
}

// Resume returns what is needed to decode this generation again by itself. The
// slice is the Gen's own.
func (g *Gen) Resume() Resume { return Resume{g.First, g.stwBefore} }

// NewSingle returns a Decoder for single generations of a trace whose symbols
// are known: see Again. It reads nothing by itself and needs no Close.
func NewSingle(syms *tracefmt.Symbols, workers int) *Decoder {
	d := newDecoder(workers)
	d.Symbols = syms
	return d
}

// Again decodes one generation by itself, with the same result as when it was
// decoded in its turn. It fails if the generation holds a string or stack that
// the symbols do not have: then the trace is not the one that was read before.
func (d *Decoder) Again(src *tracefmt.Generation, state Resume) (*Gen, error) {
	strings, stacks := d.Symbols.Strings(), d.Symbols.Stacks()
	d.first = state.First
	d.stopped = make(map[uint64]bool, len(state.Stopped))
	for _, g := range state.Stopped {
		d.stopped[g] = true
	}
	g, err := d.decode(src)
	if err != nil {
		return nil, err
	}
	if d.Symbols.Strings() != strings || d.Symbols.Stacks() != stacks {
		return nil, fmt.Errorf("generation %d is not what it was when the trace was first read", src.Num)
	}
	return g, nil
}

// Size estimates the memory that a decoded generation holds, in bytes.
func (g *Gen) Size() int64 {
	n := int64(len(g.slabs))*slabSize*8 + int64(cap(g.slots))*12 + int64(cap(g.base)+cap(g.starts)+cap(g.markBase)+cap(g.marked))*4
	n += int64(cap(g.ids.ids))*8 + int64(len(g.ids.pages)+len(g.ids.spare))*1100 + int64(cap(g.Marks))*16 + int64(cap(g.index))*16
	n += int64(cap(g.ProcEvents))*32 + int64(cap(g.nobody))*24 + int64(cap(g.polls))*24 + int64(cap(g.Heap))*24 + int64(cap(g.User))*112
	n += int64(cap(g.Samples))*40 + int64(cap(g.stacks.Dense())+cap(g.strings.Dense()))*4 + int64(len(g.idle.from))*24
	return n
}

// A Life is what a generation shows of a goroutine.
type Life struct {
	ID uint64
	// Born and Died are the instants of its creation and end, 0 for those that
	// lie outside of the generation.
	Born, Died int64
	// Start is the stack that it was created to run, 0 where the generation does
	// not show its creation; Stack is then the first stack of its own seen.
	Start, Stack tracefmt.StackID
	// Pieces are its runs and the events about it: a measure of how much happened.
	Pieces int
}

// Lives calls f for every goroutine that the generation knows.
func (g *Gen) Lives(f func(Life)) {
	for d := uint32(1); int(d)+1 < len(g.base); d++ {
		l := Life{ID: g.ids.ids[d], Pieces: int(g.base[d+1] - g.base[d])}
		if b, ok := g.birth(d); ok {
			l.Born = b.Time
			l.Start = g.stack(g.starts[d])
		}
		if l.Start == 0 {
			l.Stack = g.anyStack(d)
		}
		if t, ok := g.Death(l.ID); ok {
			l.Died = t
		}
		f(l)
	}
}

// EachStart calls f for every goroutine that the generation knows, with the
// function that it was created to run, 0 if it was not created in this
// generation, and the number of its pieces. It touches no record.
func (g *Gen) EachStart(f func(id uint64, start tracefmt.StackID, pieces int)) {
	for d := 1; d+1 < len(g.base); d++ {
		start := tracefmt.StackID(0)
		if g.starts[d] != 0 {
			start = g.stack(g.starts[d])
		}
		f(g.ids.ids[d], start, int(g.base[d+1]-g.base[d]))
	}
}

// AnyStack returns the first stack that a goroutine shows of itself in this
// generation, 0 if it shows none.
func (g *Gen) AnyStack(id uint64) tracefmt.StackID {
	if d := g.ids.lookup(id); d != 0 {
		return g.anyStack(d)
	}
	return 0
}

// anyStack returns the first stack that a goroutine shows of itself.
func (g *Gen) anyStack(d uint32) tracefmt.StackID {
	found := tracefmt.StackID(0)
	g.stacksOf(d, func(id tracefmt.StackID) bool {
		found = id
		return false
	})
	return found
}

// stacksOf calls f for the stacks that a goroutine shows of itself, until f
// returns false: not those of its creator or waker.
func (g *Gen) stacksOf(d uint32, f func(tracefmt.StackID) bool) {
	for _, s := range g.slots[g.base[d]:g.base[d+1]] {
		if s.rec == 0 {
			continue
		}
		r := g.record(s.rec)
		if r.is(repeats) && r.stack() != 0 && !f(g.stack(r.stack())) {
			return
		}
		if !opensRun(r) {
			continue
		}
		for r := range g.run(s.rec) {
			if r.is(repeats) {
				continue // another goroutine's
			}
			if st := r.stack(); st != 0 && !f(g.stack(st)) {
				return
			}
		}
	}
}

// WithStack calls f for every goroutine that shows a wanted stack of itself in
// this generation, or was created to run one. Wanted is indexed by stack.
func (g *Gen) WithStack(wanted []bool, f func(id uint64)) {
	is := func(id tracefmt.StackID) bool { return int(id) < len(wanted) && wanted[id] }
	if !g.stacks.Any(func(id uint32) bool { return is(tracefmt.StackID(id)) }) {
		return
	}
	for d := uint32(1); int(d)+1 < len(g.base); d++ {
		hit := g.starts[d] != 0 && is(g.stack(g.starts[d]))
		if !hit {
			g.stacksOf(d, func(id tracefmt.StackID) bool {
				hit = is(id)
				return !hit
			})
		}
		if hit {
			f(g.ids.ids[d])
		}
	}
}

// Carry returns, for a window whose first generation is not the trace's, what
// goroutines were doing when that began, nil for nothing. It is the window's own, and
// valid as long as that generation is and until DropFirst.
func (w *Window) Carry() *Carry { return w.carry }

// NewWindow returns a window of neighbouring generations that does not begin
// with the trace: carried tells what a goroutine was doing when the first of
// them began, as Carry had it. It may be called by many goroutines at once.
func NewWindow(gens []*Gen, carried func(id uint64) (Span, bool)) *Window {
	return &Window{Gens: gens, carried: carried}
}

// before returns what a goroutine was doing when the window began.
func (w *Window) before(id uint64) (Span, bool) {
	if w.carried != nil {
		return w.carried(id)
	}
	return w.carry.At(id)
}
