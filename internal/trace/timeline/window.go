package timeline

import (
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Window is a sequence of consecutive generations, oldest first.
type Window struct {
	Gens []*Gen
	// carry holds the states of goroutines when the first of Gens began, as far as the dropped generations
	// showed them; nil if there are none.
	carry *Carry
	spare *Carry // the previous carry, to reuse its memory
	// carried, if not nil, is used instead of carry.
	carried func(id uint64) (Span, bool)
	// Passed, if not nil, counts the events that queries visited. Tests check with it how costs grow.
	Passed *atomic.Int64
}

// DropFirst removes the oldest generation from the window, which must have one, and returns it. The window keeps, for each
// goroutine whose state continues into the next generation, this state with its beginning and stack (Carry).
func (w *Window) DropFirst() *Gen {
	first := w.Gens[0]
	if len(w.Gens) == 1 {
		w.Gens, w.carry, w.spare = w.Gens[:0], nil, nil
		return first
	}
	next := w.Gens[1]
	carry := w.spare
	if carry == nil {
		carry = new(Carry)
	}
	carry.reset(next, w.carry)
	one := Window{Gens: w.Gens[:1], carry: w.carry, carried: w.carried}
	var buf []Span
	for d := uint32(1); int(d)+1 < len(next.slotBase); d++ {
		lo := next.slotBase[d]
		if lo == next.slotBase[d+1] || next.slots[lo].rec == 0 {
			continue
		}
		r := next.record(next.slots[lo].rec)
		if !r.hasTrait(repeatsState) {
			continue
		}
		state := statusState(r.status())
		buf = one.Spans(next.ids.ids[d], first.End, first.End+1, buf[:0])
		if n := len(buf); n > 0 && buf[n-1].State == state {
			s := &buf[n-1]
			s.End, s.Woken = 0, false
			if state != Runnable {
				s.Waker, s.WakerStack = 0, 0
			}
			carry.set(d, s)
		}
	}
	w.carry, w.spare, w.carried = carry, w.carry, nil
	w.Gens = append(w.Gens[:0], w.Gens[1:]...)
	return first
}

// Start returns the begin of the window's first generation; 0 for an empty window.
func (w *Window) Start() int64 {
	if len(w.Gens) == 0 {
		return 0
	}
	return w.Gens[0].Base
}

// overlap bounds how long generations overlap: the last events of a thread in one generation may be later than the
// base of the next one. The longest overlap seen was 1.1 ms; the bound is generous because it only costs a lookup.
const overlap = 20e6

// genAt returns the index of the last generation whose base is at or before t; 0 if none is. No event of a generation is before
// its base, but events of the generation before may be after it.
func (w *Window) genAt(t int64) int {
	i := len(w.Gens) - 1
	for i > 0 && w.Gens[i].Base > t {
		i--
	}
	return max(i, 0)
}

// genReaching returns the index of the first generation that may have events at time t (the trace's clock) or later: the last
// events of a generation may be later than the bases of generations after it. If all end before t, it is the last generation. It
// is 0 for an empty window.
func (w *Window) genReaching(t int64) int {
	i := w.genAt(t)
	for i > 0 && w.Gens[i-1].End >= t {
		i--
	}
	return i
}

// GenIndex returns the index of the last generation whose base is at or before t; 0 if none is.
func (w *Window) GenIndex(t int64) int { return w.genAt(t) }

// StartOf returns the stack of the start function of a goroutine created at time t; 0 if it is not known.
func (w *Window) StartOf(id uint64, t int64) tracefmt.StackID {
	if len(w.Gens) == 0 {
		return 0
	}
	for i := w.genAt(t + overlap); i >= 0; i-- {
		if b, ok := w.Gens[i].BirthOf(id); ok {
			return b.Start
		}
		if w.Gens[i].Base < t-overlap {
			break
		}
	}
	return 0
}

// Carry returns the states of goroutines when the window's first generation began; nil if it is the trace's first
// generation. The result belongs to the window and is valid until DropFirst, and as long as that generation is.
func (w *Window) Carry() *Carry { return w.carry }

// NewWindow returns a window of consecutive generations that does not begin with the trace: carried returns the
// state of a goroutine when the first of them began, like Carry.SpanOf. Many goroutines may call carried
// concurrently.
func NewWindow(gens []*Gen, carried func(id uint64) (Span, bool)) *Window {
	return &Window{Gens: gens, carried: carried}
}

// carriedSpan returns the state of a goroutine when the window began; false if it is not known.
func (w *Window) carriedSpan(id uint64) (Span, bool) {
	if w.carried != nil {
		return w.carried(id)
	}
	return w.carry.SpanOf(id)
}

// Death returns when a goroutine ended; false if it did not end in the window at t or later.
func (w *Window) Death(id uint64, t int64) (endTime int64, ok bool) {
	for i := max(w.genAt(t)-1, 0); i < len(w.Gens); i++ {
		if d, ok := w.Gens[i].Death(id); ok && d >= t {
			return d, true
		}
	}
	return 0, false
}

// BirthBefore returns the creation of a goroutine that was alive at time t. ok is false if the creation is not in the window or is later
// than t.
func (w *Window) BirthBefore(id uint64, t int64) (birth Birth, ok bool) {
	if len(w.Gens) == 0 {
		return Birth{}, false
	}
	for i := w.genAt(t); i >= 0; i-- {
		if b, ok := w.Gens[i].BirthOf(id); ok {
			return b, b.Time <= t
		}
		if !w.Gens[i].Knows(id) && w.Gens[i].Base+overlap <= t {
			break
		}
	}
	return Birth{}, false
}
