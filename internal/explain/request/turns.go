package request

import (
	"encoding/binary"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/scale"
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
	wrote bool // to a connection
	// own is the outermost function of the service's own that was seen.
	own tracefmt.FrameID
}

type innerWait struct {
	stack      tracefmt.StackID
	start, ran int64
}

// maxInner bounds the waits of a turn that are kept.
const maxInner = 1 << 10

// turned is a turn that has ended.
type turned struct {
	start, end int64
	g          uint64
	entry      tracefmt.StackID
	frame      tracefmt.FrameID // of the function that loops
	root       *root
	origin     *origin
	inner
	cycle string // see loops.cycle
}

// see takes note of a visit inside of a turn.
func (in *inner) see(l *loops, f *Finder, v *visit) {
	if !in.worked {
		in.worked = in.idle == 0 || l.outside(f, in.idle, v.stack)
	}
	if in.own == 0 && !v.created {
		in.own = f.stackInfo(v.stack).own
	}
	switch v.state {
	case timeline.Syscall:
		in.wrote = in.wrote || f.stackInfo(v.stack).writes
	case timeline.Running:
		if in.again {
			in.waits[len(in.waits)-1].ran = v.start
			in.again = false
		}
	case timeline.Waiting:
		switch v.reason {
		case reasonOther, reasonSync:
			return // it may, or may not, have to wait there
		}
		wait := f.bare(v.stack)
		if n := len(in.waits); n > 0 && in.waits[n-1].start == v.start {
			return // seen with the generation before
		}
		if in.long = in.long || len(in.waits) == maxInner; in.long {
			in.waits = nil
			in.again = false
			return
		}
		in.waits = append(in.waits, innerWait{stack: wait, start: v.start})
		in.again = true
	}
}

// outside reports whether a stack leaves the call in which a goroutine waits for
// work: the innermost function that is not the standard library's. Where that is
// the service's own, its other lines are work.
func (l *loops) outside(f *Finder, idle, id tracefmt.StackID) bool {
	if id == idle {
		return false
	}
	p := f.stackInfo(idle)
	wait, stack, at := f.syms.Stack(idle), f.syms.Stack(id), p.call
	if at < 0 || len(stack) < len(wait)-at {
		return true
	}
	stack = stack[len(stack)-(len(wait)-at):]
	if !slices.Equal(stack[1:], wait[at+1:]) {
		return true
	}
	a, b := f.syms.Frame(wait[at]), f.syms.Frame(stack[0])
	return a.Func != b.Func || p.callOwned && a.Line != b.Line
}

// wakes counts what followed the wakes by one function.
type wakes struct {
	worked int // turns in which something was done
	idle   int // others
}

// over hands out a turn that has ended, as soon as it is known what pieces of work it is.
func (l *loops) over(f *Finder, t turned) {
	if t.root.busy {
		l.hand(f, &t, t.start, t.end, 0) // no wake began it
		return
	}
	t.cycle = l.cycle(f, &t)
	t.root.cycles.add(t.cycle, len(t.waits))
	w := t.root.wakers[t.waker]
	if t.worked {
		w.worked++
	} else {
		w.idle++
	}
	t.root.wakers[t.waker] = w
	if t.cycle == "" && (t.worked || t.waker == 0) {
		l.hand(f, &t, t.start, t.end, t.start)
	} else {
		*l.ended.add() = t
	}
}

// settle hands out the other turns that ended in a generation, as pieces of work.
func (l *loops) settle(f *Finder) {
	for t := range l.ended.part(0, l.ended.n) {
		if t.worked || !t.root.idles(t.waker) {
			l.pieces(f, t)
		}
	}
	l.ended.n = 0
}

// idles reports whether wakes by a function bring no work: what followed them
// never was any, while others brought some.
func (r *root) idles(waker tracefmt.StringID) bool {
	w := r.wakers[waker]
	if waker == 0 || w.idle < scale.Few || 20*w.worked > w.idle {
		return false
	}
	for fn, o := range r.wakers {
		if fn != waker && o.worked >= scale.Few && o.worked > o.idle {
			return true
		}
	}
	return false
}

// hand hands out a turn, or a piece of one.
func (l *loops) hand(f *Finder, t *turned, start, end, ready int64) {
	t.origin.n++
	t.origin.total++
	t.origin.ns += end - start
	asked := t.root.served && t.wrote
	if t.root.handed++; asked {
		t.root.asked++
	}
	f.out = append(f.out, Request{
		Kind: Loop, Start: start, began: start, End: end, G: t.g, Ready: ready, Entry: t.entry, Root: t.frame, Asked: asked,
	})
}

// cycles counts turns by the waits that each piece of work has: by those of a turn
// that does not come to the same ones again.
type cycles struct {
	turns  int // that had any
	once   map[string]int
	repeat map[string]int
}

// maxCycles bounds the kinds of work that are distinguished.
const maxCycles = 64

func (c *cycles) add(key string, waits int) {
	if key == "" {
		return
	}
	c.turns++
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
	return c.once[key] >= scale.Few && 10*(c.once[key]+c.repeat[key]) >= 9*c.turns
}

// cycle returns the waits that a turn comes to repeatedly, until it ends: all,
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
		key = appendID(key, uint32(w.stack))
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

func appendID(key []byte, id uint32) []byte { return binary.LittleEndian.AppendUint32(key, id) }

// together reports whether the first n waits of a turn have their innermost common
// caller in the function that waits for work.
func (l *loops) together(f *Finder, t *turned, n int) bool {
	wait, at := f.syms.Stack(t.idle), f.stackInfo(t.idle).at
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
	start, ready := t.start, t.start
	if key := t.cycle; key != "" && len(key) < 4*len(t.waits) && t.root.cycles.holds(key) {
		n := len(key) / 4
		for at := n; at < len(t.waits); at += n {
			border := t.waits[at-1].ran
			if border <= start || border >= t.end {
				continue
			}
			l.hand(f, t, start, border, ready)
			start, ready = border, 0 // it was there: nothing began it
		}
	}
	l.hand(f, t, start, t.end, ready)
}
