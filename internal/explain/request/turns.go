package request

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Two things make the turns from one idle wait to the next others than the pieces
// of work that were done. A worker that finds the next piece when it is done with
// one does not wait in between: several pieces are one turn. And some wakes bring no
// work: client-go's work queue wakes a worker also when the last item is done, which
// looks at the queue and waits again.

// inner is what was seen inside of a turn.
type inner struct {
	idle  tracefmt.StackID  // the wait that began it
	waker tracefmt.StringID // the function that ended that, 0 for none
	// worked says that something was seen outside of the call that waits.
	worked bool
	// waits are those inside of the turn, with when each was over and its
	// goroutine ran again; long says that there were too many.
	waits []innerWait
	long  bool
	again bool // the last wait is over, but the goroutine has not run
}

type innerWait struct {
	stack      tracefmt.StackID
	start, ran int64
}

// maxInner bounds the waits of a turn that are kept.
const maxInner = 1 << 10

// turned is a turn that has ended.
type turned struct {
	Request
	root   *root
	origin *origin
	inner
}

// see takes note of a span inside of a turn.
func (in *inner) see(l *loops, f *Finder, s *timeline.Span) {
	if !in.worked {
		in.worked = in.idle == 0 || f.outside(in.idle, s.Stack)
	}
	switch s.State {
	case timeline.Running:
		if in.again {
			in.waits[len(in.waits)-1].ran = s.Start
			in.again = false
		}
	case timeline.Waiting:
		switch f.syms.String(s.Reason) {
		case "network", "chan receive", "chan send", "select", "sleep", "sync.(*Cond).Wait":
		default:
			return // it may, or may not, have to wait there
		}
		wait := l.bare(f, s.Stack)
		if n := len(in.waits); n > 0 && in.waits[n-1].start == s.Start {
			return // seen with the generation before
		}
		if in.long = in.long || len(in.waits) == maxInner; in.long {
			in.waits = nil
			in.again = false
			return
		}
		in.waits = append(in.waits, innerWait{stack: wait, start: s.Start})
		in.again = true
	}
}

// outside reports whether a stack leaves the call in which a goroutine waits for
// work: the innermost function that is not the standard library's. Where that is
// the service's own, its other lines are work.
func (f *Finder) outside(idle, id tracefmt.StackID) bool {
	if id == idle {
		return false
	}
	wait, stack := f.syms.Stack(idle), f.syms.Stack(id)
	at := slices.IndexFunc(wait, func(fr tracefmt.FrameID) bool { return !f.work.namer.fn(f.syms.Frame(fr).Func).std })
	if at < 0 || len(stack) < len(wait)-at {
		return true
	}
	stack = stack[len(stack)-(len(wait)-at):]
	if !slices.Equal(stack[1:], wait[at+1:]) {
		return true
	}
	a, b := f.syms.Frame(wait[at]), f.syms.Frame(stack[0])
	return a.Func != b.Func || f.work.namer.owned(a) && a.Line != b.Line
}

// wakerOf returns the function that ended a wait: the innermost of the waker's
// that is not the standard library's.
func (f *Finder) wakerOf(s *timeline.Span) tracefmt.StringID {
	for _, fr := range f.syms.Stack(s.WakerStack) {
		if fn := f.syms.Frame(fr).Func; !f.work.namer.fn(fn).std {
			return fn
		}
	}
	return 0
}

// wakes counts what followed the wakes by one function.
type wakes struct {
	worked int // turns in which something was done
	idle   int // others
}

// settle hands out the turns that ended in a generation, as pieces of work.
func (l *loops) settle(f *Finder) {
	for i := range l.ended {
		t := &l.ended[i]
		if t.root.busy {
			continue
		}
		t.root.cycles.add(l.cycle(f, t), len(t.waits))
		if t.root.wakers == nil {
			t.root.wakers = make(map[tracefmt.StringID]*wakes)
		}
		w := t.root.wakers[t.waker]
		if w == nil {
			w = &wakes{}
			t.root.wakers[t.waker] = w
		}
		if t.worked {
			w.worked++
		} else {
			w.idle++
		}
	}
	for i := range l.ended {
		t := &l.ended[i]
		switch {
		case t.root.busy:
			l.hand(f, t, t.Request)
		case !t.worked && t.root.idles(t.waker):
		default:
			l.pieces(f, t)
		}
	}
	l.ended = l.ended[:0]
}

// idles reports whether wakes by a function bring no work: what followed them
// never was any, while others brought some.
func (r *root) idles(waker tracefmt.StringID) bool {
	w := r.wakers[waker]
	if waker == 0 || w.idle < manyTurns || 20*w.worked > w.idle {
		return false
	}
	for fn, o := range r.wakers {
		if fn != waker && o.worked >= manyTurns && o.worked > o.idle {
			return true
		}
	}
	return false
}

// hand hands out a turn, or a piece of one.
func (l *loops) hand(f *Finder, t *turned, r Request) {
	t.origin.n++
	t.origin.total++
	t.origin.ns += r.End - r.Start
	f.out = append(f.out, r)
}

// cycles counts turns by the waits that each piece of work has: by those of a turn
// that does not come to the same ones again.
type cycles struct {
	turns  int // that had any
	once   map[string]int
	repeat map[string]int
}

// maxCycles bounds the kinds of work that are told apart.
const maxCycles = 64

func (c *cycles) add(key string, waits int) {
	if key == "" {
		return
	}
	c.turns++
	if c.once == nil {
		c.once, c.repeat = make(map[string]int), make(map[string]int)
	}
	of := c.once
	if len(key) < 4*waits {
		of = c.repeat
	}
	if _, ok := of[key]; ok || len(of) < maxCycles {
		of[key]++
	}
}

// holds reports whether a turn that comes several times to the waits of key is
// several pieces of work: nearly all turns have just those, and many have them
// once.
func (c *cycles) holds(key string) bool {
	return c.once[key] >= manyTurns && 10*(c.once[key]+c.repeat[key]) >= 9*c.turns
}

// cycle returns the waits that a turn comes to again and again, until it ends: all,
// if it comes to none again. It is "" if that says nothing: of one wait alone it is
// not known whether a piece of work has it once (it may be a loop over what one
// piece holds, or a second try), nor of waits in a function that the one which
// waits for work calls.
func (l *loops) cycle(f *Finder, t *turned) string {
	n := len(t.waits)
	if t.long || n < 2 {
		return ""
	}
	key := make([]byte, 0, 4*n)
	for _, w := range t.waits {
		key = binary.LittleEndian.AppendUint32(key, uint32(w.stack))
	}
	all := string(key)
	for d := 1; d <= n/2; d++ {
		if n%d == 0 && all == strings.Repeat(all[:4*d], n/d) {
			n = d
			break
		}
	}
	if n < 2 || !l.together(f, t, n) {
		return ""
	}
	return all[:4*n]
}

// together reports whether the first n waits of a turn have their innermost common
// caller in the function that waits for work.
func (l *loops) together(f *Finder, t *turned, n int) bool {
	wait := f.syms.Stack(t.idle)
	at := slices.IndexFunc(wait, func(fr tracefmt.FrameID) bool { return f.work.namer.owned(f.syms.Frame(fr)) })
	if at < 0 {
		return false
	}
	first := f.syms.Stack(t.waits[0].stack)
	common := len(first)
	for _, w := range t.waits[1:n] {
		o := f.syms.Stack(w.stack)
		k := 0
		for k < common && k < len(o) && f.syms.Frame(first[len(first)-1-k]).Func == f.syms.Frame(o[len(o)-1-k]).Func {
			k++
		}
		common = k
	}
	return common == len(wait)-at && f.syms.Frame(first[len(first)-common]).Func == f.syms.Frame(wait[at]).Func
}

// pieces hands out the pieces of work that a turn consists of.
func (l *loops) pieces(f *Finder, t *turned) {
	if key := l.cycle(f, t); key != "" && len(key) < 4*len(t.waits) && t.root.cycles.holds(key) {
		n := len(key) / 4
		for at := n; at < len(t.waits); at += n {
			border := t.waits[at-1].ran
			if border <= t.Start || border >= t.End {
				continue
			}
			piece := t.Request
			piece.End = border
			l.hand(f, t, piece)
			t.Start, t.Ready = border, 0 // it was there: nothing began it
		}
	}
	l.hand(f, t, t.Request)
}
