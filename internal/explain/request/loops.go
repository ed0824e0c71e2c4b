package request

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// loops finds workers: goroutines that come back to the same idle wait
// repeatedly. A turn, from the wake to the next such wait, is one request.
type loops struct {
	clients map[tracefmt.StackID]bool // waits for what a client asks next
	roots   map[tracefmt.StringID]*root
	// loopers are the goroutines that may loop, list those of the current generation.
	loopers map[uint64]*looper
	list    []*looper
	// after holds, by function, which functions follow it on loopers' paths. One that is
	// followed by several only launches goroutines, as errgroup.Group.Go does: the loop is
	// what it calls.
	after    map[tracefmt.StringID]map[tracefmt.StringID]bool
	visitors []*visitor
	outer    []tracefmt.FrameID // scratch
	spans    []timeline.Span    // scratch
	// ended are turns of the current generation of which it is not known what they are before all others are.
	ended chunks[turned]
	// expected is how many idle waits there are in the current generation, and so turns, at most.
	expected int
	// accepts says that the process accepts connections which no known server serves; scanned is how many stacks were looked at for that.
	accepts bool
	scanned int
}

func newLoops(workers int) loops {
	l := loops{
		clients: make(map[tracefmt.StackID]bool), roots: make(map[tracefmt.StringID]*root), loopers: make(map[uint64]*looper),
		after: make(map[tracefmt.StringID]map[tracefmt.StringID]bool),
	}
	for range max(workers, 1) {
		l.visitors = append(l.visitors, new(visitor))
	}
	return l
}

// listens looks whether the process accepts connections for a protocol of its own: then data from the network may be what somebody
// asks it for, and else it is the answer to what it asked.
func (l *loops) listens(f *Finder) {
	for ; l.scanned < f.syms.Stacks() && !l.accepts; l.scanned++ {
		seen := trait(0)
		for _, fr := range f.syms.Stack(tracefmt.StackID(l.scanned)) {
			seen |= f.namer.of(fr).traits
		}
		l.accepts = seen&(accepts|knownServer) == accepts
	}
}

// A looper is a goroutine that may loop.
type looper struct {
	id uint64
	// path is what all stacks of its waits have in common, outermost first; nil as long as no several are known.
	path []tracefmt.FrameID
	// own is, where a library's function runs in it, the outermost frame of the service's own: the loop is called by that.
	own   tracefmt.FrameID
	turn  *turn   // nil: no idle wait was seen
	group *origin // in which it had turns

	// Of the current generation.
	pieces int
	loops  bool // it waits somewhere where work may be waited for
	// by is who looked at it, and found places from:to and waits from there on.
	by              *visitor
	from, to, waits int
	// of is the last stack for which at was asked, root and frame what it said.
	of    tracefmt.StackID
	root  *root
	frame tracefmt.FrameID
}

// A root is a function that goroutines were started with.
type root struct {
	waits map[tracefmt.StackID]*waitStat
	seen  int              // goroutines that were looked at
	idle  tracefmt.StackID // the idle wait, once chosen
	// busy says that the wait is no idle one: there is none, as the goroutines
	// always have work, and it comes once in a turn and is a part of it.
	busy bool
	// rests are, of busy goroutines, the waits for work where they wait now and
	// then: a turn ends there, too.
	rests map[tracefmt.StackID]bool
	// bench says that it is the function of a benchmark, whose iterations do
	// not wait for work: what each does once tells them apart.
	bench  bool
	cycles cycles
	wakers map[tracefmt.StringID]wakes // by the function that ended idle waits
	served bool                        // see waitStat, of the idle wait
	// handed counts the turns that were handed out, asked those that a client's words began.
	handed, asked int
}

type waitStat struct {
	count int
	total int64 // ns; says nothing of a benchmark, whose system calls count too: their visits have no end
	// delays says that the service's own code called a library that let it wait;
	// timer is how often a timer ended that.
	delays bool
	timer  int
	own    int // ended by goroutines that the waiting one started: it waits for its own work, unless a library that was asked for the next started them
	// served says that a client may ask here for the next thing. It does not before it has its answer, so this ends the turn however
	// many other waits lie in it.
	served bool
	asks   bool // others, where a library's loop calls the service
	rank   int
}

type turn struct {
	start int64            // 0: idle, or not known
	last  int64            // when the last idle wait seen began
	count int              // turns so far
	begin visit            // the idle wait that ended
	from  tracefmt.StackID // of a busy one: the wait that it begins with
	by    uint64           // ... and who ended its last rest
	inner
}

// idleRank orders the waits in which a worker may wait for work; a worker
// sleeps or waits for a lock while it works, and for what it asks others for.
func (l *loops) idleRank(f *Finder, v *visit) (rank int, delays bool) {
	p := f.stackInfo(v.stack)
	if p.asks {
		return 0, false
	}
	switch v.reason {
	case reasonNetwork:
		if p.library && (p.around > 0 || !l.accepts) || p.writes {
			return 1, p.delays // a client's wait for an answer, more often than not
		}
		if !l.accepts {
			return 2, p.delays // it asks: all who could ask this process are known
		}
		return idleMost, false
	case reasonReceive, reasonCond:
		return idleMost, p.delays
	case reasonSync:
		if p.lock { // somebody works, and comes there while he does
			return 0, false
		}
		return 2, p.delays
	case reasonSend:
		return 1, p.delays
	case reasonSleep:
		if p.pauses {
			return 2, p.delays || p.sleeps // the loop's own pause
		}
		return 1, p.delays || p.sleeps
	}
	return 0, false
}

// idleMost is the rank of waits in which nearly every worker waits for work.
const idleMost = 3

// Clients returns whether a wait for the network is one for what a client of the process asks next, by a protocol of its own. What is returned
// holds nothing else of the finder, and is not to be called beside Add.
func (f *Finder) Clients() func(wait tracefmt.StackID) bool {
	known := f.loops.clients
	return func(wait tracefmt.StackID) bool { return known[wait] }
}

func (l *loops) add(f *Finder, g *timeline.Gen) {
	l.expected = 0
	forgetGone(l.loopers, g)
	l.listens(f)
	l.candidates(f, g)
	l.look(f, g)
	for _, c := range l.list {
		if c.pieces > 2*scale.Few {
			l.path(f, c)
		}
	}
	for _, c := range l.list {
		l.own(f, c)
		l.waits(f, g, c)
	}
	for _, r := range l.roots {
		if r != nil && r.idle == 0 {
			if r.choose(f); r.idle != 0 {
				l.expected += r.waits[r.idle].count
			}
		}
	}
	f.out = slices.Grow(f.out, l.expected+min(l.expected, len(f.born))) // jobs come behind the turns
	for _, c := range l.list {
		if c.loops {
			l.follow(f, g, c)
		}
	}
	l.settle(f)
	for _, r := range l.roots {
		if r != nil && 2*r.asked > r.handed {
			l.clients[r.idle] = true
		}
	}
	for _, x := range l.visitors {
		x.places.n, x.waits.n = 0, 0
	}
}

// candidates lists the goroutines that may loop, in order: those that came
// back from a wait in the generation, and that nothing else claims.
func (l *loops) candidates(f *Finder, g *timeline.Gen) {
	l.list = l.list[:0]
	g.EachStart(func(id uint64, start tracefmt.StackID, pieces int) {
		// One that is older has a status, and is woken or runs; what is born has
		// its creation, and runs: it did not wait yet.
		if pieces < 2 || pieces == 2 && start != 0 || f.role(g, id, start) != roleFree || start != 0 && f.jobs.areParts(f, start) {
			return
		}
		c := l.loopers[id]
		if c != nil && c.group != nil && c.group.settled {
			// Only counted, in the proportion that was seen before.
			o := c.group
			o.total += pieces * o.n / max(o.pieces, 1)
			return
		}
		if j := f.jobs.lives[id]; f.work.annotated[id] || f.messages.readers[id] != nil || j != nil && (j.part || j.kind.jobs) {
			return
		}
		c = entry.In(l.loopers, id)
		c.id, c.pieces, c.loops = id, pieces, false
		l.list = append(l.list, c)
	})
	slices.SortFunc(l.list, func(a, b *looper) int { return cmp.Compare(a.id, b.id) })
}

// own looks for the service's own function that a goroutine runs.
func (l *loops) own(f *Finder, c *looper) {
	if c.own != 0 {
		return
	}
	for v := range c.visits() {
		if v.stack != 0 && !v.created {
			if c.own = f.stackInfo(v.stack).own; c.own != 0 {
				return
			}
		}
	}
}

// waits adds up which waits there are.
func (l *loops) waits(f *Finder, g *timeline.Gen, c *looper) {
	var last *root
	c.begin()
	for v := range c.visits() {
		if v.stack == 0 || v.state != timeline.Syscall && v.state != timeline.Waiting {
			continue
		}
		r, _ := l.at(f, c, v.stack)
		if r == nil || v.state == timeline.Syscall && !r.bench {
			continue
		}
		p, bare := f.stackInfo(v.stack), f.bare(v.stack)
		c.loops = c.loops || r.idle == 0 || r.idle == bare
		if r.idle == bare {
			l.expected++
		}
		if r.idle != 0 && r.rests == nil {
			continue
		}
		w := r.waits[bare]
		if w == nil {
			w = &waitStat{asks: p.asks && p.called}
			r.waits[bare] = w
		}
		if w.rank == 0 { // of one that had begun before the trace the reason is not known
			w.rank, w.delays = l.idleRank(f, v)
			if w.asks = w.asks || p.called && w.delays && v.reason == reasonNetwork; w.asks {
				w.rank = 0
			}
			w.served = w.rank == idleMost && v.reason == reasonNetwork
		}
		if v.waker == 0 && v.reason != reasonNetwork {
			w.timer++
		}
		if b, ok := g.BirthOf(v.waker); ok && b.By == c.id && !p.next {
			w.own++
		}
		if last != r {
			last = r
			r.seen++
		}
		w.count++
		w.total += v.end - max(v.start, g.Base)
		if r.idle != 0 { // a busy one's first rest may come late
			r.rests[bare] = w.rests()
		}
	}
}

// follow hands out the turns of a goroutine: from each idle wait's end to the
// next one's beginning.
func (l *loops) follow(f *Finder, g *timeline.Gen, c *looper) {
	t := c.turn
	var o *origin
	var first visit // a wait that had begun before the trace
	next, rested := 0, 0
	c.begin()
	for v := range c.visits() {
		if v.stack == 0 {
			if t == nil {
				first = *v
			}
			continue
		}
		if o != nil && !o.own && f.stackInfo(v.stack).own != 0 && !v.created {
			o.own = true
		}
		r, idle := l.idle(f, c, v)
		if !idle {
			switch {
			case t == nil || t.start == 0 || v.start < t.start:
			case r != nil && r.busy && v.state == timeline.Waiting && r.rests[f.bare(v.stack)]:
				if o == nil {
					o = l.origin(f, g, c, t.from)
				}
				l.end(f, c, v.start, t.from, r, o)
				if v.waker != 0 {
					t.by = v.waker
				}
				rested++
				t.start, t.inner = 0, inner{}
			default:
				t.see(l, f, v)
			}
			continue
		}
		if t == nil {
			t = &turn{last: math.MinInt64}
			c.turn = t
			if r.seen >= manySeen && !r.busy {
				// Where it waited before the trace is not known. Of many goroutines
				// nearly all waited where they wait most.
				t.start = first.end
			}
		}
		// What lies between two generations' borders is seen with both.
		if v.start < t.last || v.start == t.last && t.start != 0 {
			continue
		}
		t.last = v.start
		if o == nil {
			o = l.origin(f, g, c, v.stack)
		}
		if t.start != 0 && t.start == first.end {
			first.reason = v.reason // as with where it waited
			l.begun(f, o, &first)
			t.begin, first.end = first, 0
		}
		if t.start != 0 {
			l.end(f, c, v.start, v.stack, r, o)
			if r.busy && f.stackInfo(v.stack).called {
				next++
			}
		}
		t.start, t.inner = 0, inner{}
		switch {
		case r.busy:
			t.start, t.from = v.start, v.stack
		case v.woken:
			t.start, t.begin, t.idle = v.end, *v, v.stack
			t.waker = f.stackInfo(v.wakerStack).acting
			l.begun(f, o, v)
		}
	}
	if next+rested > 0 && t.by != 0 {
		o.next += next
		o.rested += rested
		o.arrived += l.arrived(f, g, t.by)
	}
}

// arrived counts how often a goroutine came by with something in a generation: after a wait for it.
func (l *loops) arrived(f *Finder, g *timeline.Gen, id uint64) (n int) {
	l.spans = f.win.EachSpans(id, g.Base, g.End+1, l.spans, func(spans []timeline.Span) {
		for i := range spans {
			switch s := &spans[i]; f.reason(s.Reason) {
			case reasonNetwork, reasonReceive, reasonCond:
				if s.State == timeline.Waiting && s.Woken {
					n++
				}
			}
		}
	})
	return n
}

// turn returns what is known of a goroutine's turns; nil if it was not seen to wait for work.
func (l *loops) turn(id uint64) *turn {
	if c := l.loopers[id]; c != nil {
		return c.turn
	}
	return nil
}

// origin returns the facts about the goroutines that loop where one does, which waits at a stack there.
func (l *loops) origin(f *Finder, g *timeline.Gen, c *looper, wait tracefmt.StackID) *origin {
	_, frame := l.at(f, c, wait)
	o := f.origin(Loop, f.syms.Frame(frame).Func, f.stackInfo(wait).root)
	o.own = o.own || f.stackInfo(wait).own != 0
	o.pieces += g.Pieces(c.id)
	c.group = o
	return o
}

// end ends a goroutine's turn, if it took any time.
func (l *loops) end(f *Finder, c *looper, at int64, wait tracefmt.StackID, r *root, o *origin) {
	t := c.turn
	if at <= t.start {
		return
	}
	t.count++
	_, frame := l.at(f, c, wait)
	if t.own != 0 && f.stackInfo(wait).own == 0 { // a library's loop calls what it has been given, another function each time
		if of := f.origin(Loop, f.syms.Frame(t.own).Func, f.stackInfo(wait).root); of != o {
			if of.own = true; t.begin.end == t.start {
				l.begun(f, of, &t.begin)
			}
			o = of
		}
		frame = t.own
	}
	l.over(f, turned{start: t.start, end: at, g: c.id, entry: wait, frame: frame, root: r, origin: o, inner: t.inner})
}

// idle reports whether a goroutine waits for work, and the facts about the
// function that loops.
func (l *loops) idle(f *Finder, c *looper, v *visit) (*root, bool) {
	if v.state != timeline.Waiting && v.state != timeline.Syscall {
		return nil, false
	}
	r, _ := l.at(f, c, v.stack)
	return r, r != nil && r.idle == f.bare(v.stack) && (v.state == timeline.Waiting || r.bench)
}

// begun notes the waker of an idle wait.
func (l *loops) begun(f *Finder, o *origin, v *visit) {
	switch {
	case v.reason == reasonNetwork:
		o.network++
	case v.waker == 0:
		o.timer++
	default:
		was := o.serving
		o.begun(f, v.waker, v.wakerStack)
		if o.serving > was && o.waited+o.left < manyAsked {
			l.asked(f, o, v)
		}
	}
}

// asked looks whether a handler that handed something over waits until it is
// done, or goes on.
func (l *loops) asked(f *Finder, o *origin, v *visit) {
	const lookahead = 2e9
	f.span = f.win.SpansCoarse(v.waker, v.end, v.end+lookahead, f.span[:0])
	for i := range f.span {
		w := &f.span[i]
		switch {
		case w.State == timeline.Gone:
			o.left++
			return
		case w.State == timeline.Waiting && w.Start >= v.end:
			if f.reason(w.Reason) == reasonNetwork {
				o.left++
			} else {
				o.waited++
			}
			return
		}
	}
}

// forgetGone drops the goroutines that a generation does not know any more. Unlike gone, it keeps those that end in the generation.
func forgetGone[V any](of map[uint64]V, g *timeline.Gen) {
	maps.DeleteFunc(of, func(id uint64, _ V) bool { return !g.Knows(id) })
}

// rests reports whether a goroutine that nearly always has work waits there for more.
func (w *waitStat) rests() bool { return w.rank == idleMost && !w.delays && 2*w.own < w.count }

// choose takes the idle wait: the most likely kind of wait, then the one
// nearest to the function that loops, then the longest. Of a benchmark's iterations it
// takes what they do most often and nearest to its own function.
func (r *root) choose(f *Finder) {
	top := 0
	for _, w := range r.waits {
		top = max(top, w.count)
	}
	if top < scale.Few {
		return
	}
	var idle, busy []tracefmt.StackID
	for id, w := range r.waits {
		often := w.count*4 >= top
		switch {
		case r.bench:
			if often {
				busy = append(busy, id)
			}
		case w.count < scale.Few || !often && !w.served || 2*w.own >= w.count:
		case w.asks:
			busy = append(busy, id) // a library that always has work called what asks others
		case w.rank == 0:
		case w.delays && 2*w.timer > w.count:
			busy = append(busy, id) // a library made it wait: a limiter, a backoff
		default:
			idle = append(idle, id)
		}
	}
	if len(idle)+len(busy) == 0 {
		return
	}
	if len(idle) == 0 {
		idle, r.busy = busy, true
	}
	r.idle = slices.MinFunc(idle, func(a, b tracefmt.StackID) int {
		v, w := r.waits[a], r.waits[b]
		p, q := *f.stackInfo(a), f.stackInfo(b)
		if r.bench {
			return cmp.Or(p.depth-q.depth, w.count-v.count, cmp.Compare(a, b))
		}
		return cmp.Or(w.rank-v.rank, p.around-q.around, p.depth-q.depth, cmp.Compare(w.total, v.total), cmp.Compare(a, b))
	})
	if r.bench {
		return
	}
	r.served = r.waits[r.idle].served
	if r.busy {
		r.rests = make(map[tracefmt.StackID]bool)
		for id, w := range r.waits {
			r.rests[id] = w.rests()
		}
	}
}

// at returns the function that loops where a goroutine waits at a stack, nil if loops there are of no interest, and its frame.
func (l *loops) at(f *Finder, c *looper, id tracefmt.StackID) (*root, tracefmt.FrameID) {
	if c.of == id || c.of != 0 && len(c.path) > 0 { // with a path those of all stacks are the same
		return c.root, c.frame
	}
	path, frames := c.path, f.syms.Stack(id)
	if len(frames) == 0 {
		return nil, 0
	}
	if len(path) == 0 { // no several waits of it are known
		l.outer = outermost(frames, l.outer[:0])
		path = l.outer
	}
	k := 0
	for k+1 < len(path) && len(l.after[f.syms.Frame(path[k]).Func]) > 1 {
		k++
	}
	c.of, c.frame = id, path[k]
	if c.own != 0 && !f.namer.owned(f.syms.Frame(path[k])) {
		c.frame = c.own
	}
	c.root = l.rootOf(f, f.syms.Frame(c.frame).Func, frames)
	return c.root, c.frame
}

// begin forgets what at has said.
func (c *looper) begin() { c.of, c.root, c.frame = 0, nil, 0 }

// rootOf returns a function that loops, nil if loops there are of no interest.
func (l *loops) rootOf(f *Finder, fn tracefmt.StringID, frames []tracefmt.FrameID) *root {
	r, ok := l.roots[fn]
	if !ok {
		if !f.namer.fn(fn).is(std) {
			r = &root{
				waits: make(map[tracefmt.StackID]*waitStat), wakers: make(map[tracefmt.StringID]wakes),
				cycles: cycles{once: make(map[string]int), repeat: make(map[string]int)},
			}
			r.bench = f.namer.of(frames[len(frames)-1]).is(benchmark)
		}
		l.roots[fn] = r
	}
	if e := f.jobs.kinds[jobKey{fn: fn}]; e != nil && e.jobs {
		return nil // its goroutines are the unit, not what they do repeatedly
	}
	return r
}

// path narrows what the stacks of a goroutine's waits have in common.
func (l *loops) path(f *Finder, c *looper) {
	last := tracefmt.StackID(0)
	for v := range c.visits() {
		if v.state != timeline.Waiting || v.stack == 0 || v.stack == last {
			continue
		}
		last = v.stack
		frames := f.syms.Stack(v.stack)
		if c.path == nil {
			c.path = outermost(frames, nil)
			continue
		}
		path, n := c.path, 0
		for n < len(path) && n < len(frames) && f.syms.Frame(path[n]).Func == f.syms.Frame(frames[len(frames)-1-n]).Func {
			n++
		}
		c.path = path[:n]
	}
	for k := 0; k+1 < len(c.path); k++ {
		fn, next := f.syms.Frame(c.path[k]).Func, f.syms.Frame(c.path[k+1]).Func
		if f.namer.fn(next).is(std) {
			break
		}
		if l.after[fn] == nil {
			l.after[fn] = make(map[tracefmt.StringID]bool)
		}
		l.after[fn][next] = true
	}
}

// maxPath bounds how deep launchers are looked for.
const maxPath = 8

// outermost appends a stack's outermost frames to a list, from outside inwards.
func outermost(frames, to []tracefmt.FrameID) []tracefmt.FrameID {
	for k := len(frames) - 1; k >= 0 && len(to) < maxPath; k-- {
		to = append(to, frames[k])
	}
	return to
}
