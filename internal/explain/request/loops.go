package request

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// manyTurns is how often a goroutine must come back to a wait before it
// counts as a loop.
const manyTurns = 5

// loops finds workers: goroutines that come back to the same idle wait again
// and again. A turn, from the wake to the next such wait, is one request.
type loops struct {
	roots map[tracefmt.StringID]*root
	// Under which functions goroutines wait: what all wait stacks of one have
	// in common, outermost first; and, by function, which functions follow it
	// there. One that is followed by several only launches goroutines, as
	// errgroup.Group.Go does: the loop is what it calls.
	paths map[uint64][]tracefmt.FrameID
	after map[tracefmt.StringID]map[tracefmt.StringID]bool
	turns map[uint64]*turn
	// owns are, for goroutines that a library's function runs in, the outermost
	// frame of the service's own: the loop is called by that.
	owns map[uint64]tracefmt.FrameID
	// groups are those in which goroutines had turns.
	groups map[uint64]*origin
	ids    []candidate
	bares  []tracefmt.StackID // by stack: see bare
	byBare map[string]tracefmt.StackID
	outer  []tracefmt.FrameID // scratch
	spans  []timeline.Span
	// ended are turns of the current generation.
	ended []turned
	// accepts says that the process accepts connections which no known server serves; scanned is how many stacks were looked at for that.
	accepts bool
	scanned int
}

// listens looks whether the process accepts connections for a protocol of its own: then data from the network may be what somebody
// asks it for, and else it is the answer to what it asked.
func (l *loops) listens(syms *tracefmt.Symbols) {
	for ; l.scanned < syms.Stacks() && !l.accepts; l.scanned++ {
		accepts, known := false, false
		for _, fr := range syms.Stack(tracefmt.StackID(l.scanned)) {
			fn := syms.String(syms.Frame(fr).Func)
			accepts = accepts || strings.HasPrefix(fn, "net.(*") && strings.HasSuffix(fn, "Listener).Accept")
			known = known || strings.HasPrefix(fn, "net/http.(*Server).") || strings.HasPrefix(fn, "google.golang.org/grpc.(*Server).")
		}
		l.accepts = accepts && !known
	}
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
	wakers map[tracefmt.StringID]*wakes // by the function that ended idle waits
}

type waitStat struct {
	count int
	total int64
	// delays says that the service's own code called a library that let it wait;
	// timer is how often a timer ended that.
	delays bool
	timer  int
	own    int // ended by goroutines that the waiting one started: it waits for its own work
	rank   int
	depth  int
}

type turn struct {
	start int64            // 0: idle, or not known
	last  int64            // when the last idle wait seen began
	count int              // turns so far
	from  tracefmt.StackID // of a busy one: the wait that it begins with
	inner
}

// idleRank orders the waits in which a worker may wait for work; a worker
// sleeps or waits for a lock while it works, and for what it asks others for.
func (l *loops) idleRank(f *Finder, s *timeline.Span) (rank int, delays bool) {
	asks, library, own := false, false, false
	called, deep := "", 0
	for _, id := range f.syms.Stack(s.Stack) {
		fr := f.syms.Frame(id)
		name := f.syms.String(fr.Func)
		if f.work.namer.owned(fr) {
			own = true
			deep++
		}
		if own {
			continue // what it calls is further in
		}
		asks = asks || isAsking(name)
		library = library || !stdlib.Is(name)
		called = name
	}
	delays = own && library && !AsksForNext(called)
	if asks {
		return 0, false
	}
	switch f.syms.String(s.Reason) {
	case "network":
		if library {
			return 1, delays // a client's wait for an answer, more often than not
		}
		if !l.accepts {
			return 2, delays // it asks: all who could ask this process are known
		}
		return idleMost, false
	case "chan receive", "select", "sync.(*Cond).Wait":
		return idleMost, delays
	case "sync":
		if isLock(f.syms, s.Stack) {
			return 0, false
		}
		return 2, delays
	case "chan send":
		return 1, delays
	case "sleep":
		if frames := f.syms.Stack(s.Stack); own && len(frames) > 0 {
			// Where a library's loop calls the service, what that does is work.
			outer := f.syms.Frame(frames[len(frames)-1])
			delays = delays || !f.work.namer.owned(outer) && !stdlib.Is(f.syms.String(outer.Func))
		}
		if own && deep == 1 && !library {
			return 2, delays // the loop's own pause
		}
		return 1, delays || deep >= deepSleep
	}
	return 0, false
}

// isLock reports whether a wait is for a mutex: somebody works, and comes there while he does.
func isLock(syms *tracefmt.Symbols, id tracefmt.StackID) bool {
	frames := syms.Stack(id)
	if len(frames) == 0 {
		return false
	}
	return stdlib.IsMutex(syms.String(syms.Frame(frames[0]).Func))
}

// idleMost is the rank of waits in which nearly every worker waits for work.
const idleMost = 3

// deepSleep is how many functions of the service's own lie around a sleep that
// is a part of the work, not the pause between two turns.
const deepSleep = 4

// isAsking reports whether a function asks somebody for something and waits for
// the answer.
func isAsking(fn string) bool {
	for _, p := range []string{
		"net/http.", "database/sql.(*", "os/exec.(*Cmd).", "net.(*Resolver).", "net.(*Dialer).", "google.golang.org/grpc.(*ClientConn).Invoke",
		"runtime.stopTheWorld", "runtime.gcStart", "runtime.gcMarkDone",
	} {
		if strings.HasPrefix(fn, p) {
			return !strings.HasPrefix(fn, "net/http.(*Server).")
		}
	}
	return false
}

// AsksForNext reports whether a library's function is asked for the next thing to
// do, by its name: how long that takes is nobody's latency.
func AsksForNext(fn string) bool {
	fn = fn[strings.LastIndexByte(fn, '.')+1:]
	for _, p := range []string{"Poll", "Fetch", "Receive", "Recv", "Next", "Consume", "Accept", "Read", "Get", "Pop", "Dequeue", "Take"} {
		if strings.HasPrefix(fn, p) {
			return true
		}
	}
	return false
}

func (l *loops) add(f *Finder, g *timeline.Gen) {
	if l.roots == nil {
		l.roots = make(map[tracefmt.StringID]*root)
		l.turns = make(map[uint64]*turn)
		l.groups = make(map[uint64]*origin)
		l.owns = make(map[uint64]tracefmt.FrameID)
		l.paths = make(map[uint64][]tracefmt.FrameID)
		l.after = make(map[tracefmt.StringID]map[tracefmt.StringID]bool)
	}
	l.forget(g)
	l.listens(f.syms)
	ids := l.candidates(f, g)
	from, to := g.Base, g.End+1
	for _, c := range ids {
		if c.pieces > 2*manyTurns {
			l.spans = f.win.Spans(c.id, from, to, l.spans[:0])
			l.path(f, c.id)
		}
	}
	for i := range ids {
		l.spans = f.win.Spans(ids[i].id, from, to, l.spans[:0])
		l.own(f, ids[i].id)
		l.waits(f, g, &ids[i], from)
	}
	for _, r := range l.roots {
		if r != nil && r.idle == 0 {
			r.choose()
		}
	}
	for _, c := range ids {
		if c.loops {
			l.spans = f.win.Spans(c.id, from, to, l.spans[:0])
			l.follow(f, g, c.id)
		}
	}
	l.settle(f)
}

// A candidate is a goroutine that may loop.
type candidate struct {
	id     uint64
	pieces int
	loops  bool // it waits somewhere where work may be waited for
}

// candidates returns the goroutines that may loop, in order: those that came
// back from a wait in the generation, and that nothing else claims.
func (l *loops) candidates(f *Finder, g *timeline.Gen) []candidate {
	l.ids = l.ids[:0]
	g.EachStart(func(id uint64, start tracefmt.StackID, pieces int) {
		// One that is older has a status, and is woken or runs; what is born has
		// its creation, and runs: it did not wait yet.
		if pieces < 2 || pieces == 2 && start != 0 || f.role(g, id, start) != roleFree || start != 0 && f.jobs.areParts(f, start) {
			return
		}
		if o := l.groups[id]; o != nil && o.settled {
			// Only counted, in the proportion that was seen before.
			o.total += pieces * o.n / max(o.pieces, 1)
			return
		}
		if f.work.annotated[id] || f.messages.readers[id] != nil {
			return
		}
		if j := f.jobs.lives[id]; j == nil || !j.part && !j.entry.jobs {
			l.ids = append(l.ids, candidate{id: id, pieces: pieces})
		}
	})
	slices.SortFunc(l.ids, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return l.ids
}

// bare returns a stack that stands for all that differ from one in the runtime's
// own frames alone: those of a goroutine that waited when the trace began show
// more of these.
func (l *loops) bare(f *Finder, id tracefmt.StackID) tracefmt.StackID {
	for int(id) >= len(l.bares) {
		l.bares = append(l.bares, 0)
	}
	if l.bares[id] == 0 {
		frames := f.syms.Stack(id)
		for len(frames) > 1 && strings.HasPrefix(f.syms.String(f.syms.Frame(frames[0]).Func), "runtime.") {
			frames = frames[1:]
		}
		key := make([]byte, 0, 8*len(frames))
		for _, fr := range frames {
			frame := f.syms.Frame(fr)
			key = binary.LittleEndian.AppendUint32(key, uint32(frame.Func))
			key = binary.LittleEndian.AppendUint32(key, uint32(frame.Line))
		}
		if l.byBare == nil {
			l.byBare = make(map[string]tracefmt.StackID)
		}
		if _, ok := l.byBare[string(key)]; !ok {
			l.byBare[string(key)] = id
		}
		l.bares[id] = l.byBare[string(key)]
	}
	return l.bares[id]
}

// own looks for the service's own function that a goroutine runs.
func (l *loops) own(f *Finder, id uint64) {
	if l.owns[id] != 0 {
		return
	}
	for i := range l.spans {
		if s := &l.spans[i]; s.Stack != 0 && s.How != timeline.HowCreated {
			if own := f.stackInfo(s.Stack).own; own != 0 {
				l.owns[id] = own
				return
			}
		}
	}
}

// waits adds up which waits there are.
func (l *loops) waits(f *Finder, g *timeline.Gen, c *candidate, from int64) {
	var last *root
	for i := range l.spans {
		s := &l.spans[i]
		if s.Stack == 0 || s.State != timeline.Syscall && s.State != timeline.Waiting {
			continue
		}
		r, depth := l.root(f, c.id, s.Stack)
		if r == nil || s.State == timeline.Syscall && !r.bench {
			continue
		}
		if r.idle != 0 {
			c.loops = c.loops || r.idle == l.bare(f, s.Stack)
			continue
		}
		c.loops = true
		wait := l.bare(f, s.Stack)
		w := r.waits[wait]
		if w == nil {
			w = &waitStat{depth: depth}
			r.waits[wait] = w
		}
		if w.rank == 0 { // of one that had begun before the trace the reason is not known
			w.rank, w.delays = l.idleRank(f, s)
		}
		if s.Waker == 0 && f.syms.String(s.Reason) != "network" {
			w.timer++
		}
		if b, ok := g.BirthOf(s.Waker); ok && b.By == c.id {
			w.own++
		}
		if last != r {
			last = r
			r.seen++
		}
		w.count++
		w.total += s.End - max(s.Start, from)
	}
}

// follow hands out the turns of a goroutine: from each idle wait's end to the
// next one's beginning.
func (l *loops) follow(f *Finder, g *timeline.Gen, id uint64) {
	t := l.turns[id]
	var o *origin
	var first timeline.Span // a wait that had begun before the trace
	for i := range l.spans {
		s := &l.spans[i]
		if s.Stack == 0 {
			if t == nil && i == 0 && s.State == timeline.Waiting && s.Woken {
				first = *s
			}
			continue
		}
		if o != nil && !o.own && f.stackInfo(s.Stack).own != 0 && s.How != timeline.HowCreated {
			o.own = true
		}
		r, idle := l.idle(f, id, s)
		if !idle {
			switch {
			case t == nil || t.start == 0 || s.Start < t.start:
			case r != nil && r.busy && s.State == timeline.Waiting && r.rests[l.bare(f, s.Stack)]:
				if o == nil {
					o = l.origin(f, g, id, t.from)
				}
				l.end(f, id, t, s.Start, t.from, r, o)
				t.start, t.inner = 0, inner{}
			default:
				t.see(l, f, s)
			}
			continue
		}
		if t == nil {
			t = &turn{last: math.MinInt64}
			l.turns[id] = t
			if r.seen >= manySeen && !r.busy {
				// Where it waited before the trace is not known. Of many goroutines
				// nearly all waited where they wait most.
				t.start = first.End
			}
		}
		// What lies between two generations' borders is seen with both.
		if s.Start < t.last || s.Start == t.last && t.start != 0 {
			continue
		}
		t.last = s.Start
		if o == nil {
			o = l.origin(f, g, id, s.Stack)
		}
		if t.start != 0 && t.start == first.End {
			first.Reason = s.Reason // as with where it waited
			l.begun(f, o, &first)
			first.End = 0
		}
		if t.start != 0 {
			l.end(f, id, t, s.Start, s.Stack, r, o)
		}
		t.start, t.inner = 0, inner{}
		switch {
		case r.busy:
			t.start, t.from = s.Start, s.Stack
		case s.Woken:
			t.start, t.idle = s.End, s.Stack
			t.waker = f.wakerOf(s)
			l.begun(f, o, s)
		}
	}
}

// origin returns the facts about the goroutines that loop where one does, which waits at a stack there.
func (l *loops) origin(f *Finder, g *timeline.Gen, id uint64, wait tracefmt.StackID) *origin {
	root := l.rootFrame(f, id, wait)
	o := f.origin(Loop, f.syms.Frame(root).Func, f.stackInfo(wait).root)
	o.own = o.own || f.stackInfo(wait).own != 0
	o.pieces += g.Pieces(id)
	l.groups[id] = o
	return o
}

// end ends a goroutine's turn, if it took any time.
func (l *loops) end(f *Finder, id uint64, t *turn, at int64, entry tracefmt.StackID, r *root, o *origin) {
	if at <= t.start {
		return
	}
	t.count++
	turn := Request{Kind: Loop, Start: t.start, End: at, G: id, Ready: t.start, Entry: entry, Root: l.rootFrame(f, id, entry)}
	if r.busy {
		turn.Ready = 0 // no wake began it
	}
	l.ended = append(l.ended, turned{turn, r, o, t.inner})
}

// idle reports whether a goroutine waits for work, and the facts about the
// function that loops.
func (l *loops) idle(f *Finder, id uint64, s *timeline.Span) (*root, bool) {
	if s.State != timeline.Waiting && s.State != timeline.Syscall {
		return nil, false
	}
	r, _ := l.root(f, id, s.Stack)
	return r, r != nil && r.idle == l.bare(f, s.Stack) && (s.State == timeline.Waiting || r.bench)
}

// begun notes the waker of an idle wait.
func (l *loops) begun(f *Finder, o *origin, s *timeline.Span) {
	switch {
	case f.syms.String(s.Reason) == "network":
		o.network++
	case s.Waker == 0:
		o.timer++
	default:
		was := o.serving
		o.begun(f, s.Waker, s.WakerStack)
		if o.serving > was && o.waited+o.left < manyAsked {
			l.asked(f, o, s)
		}
	}
}

// asked looks whether a handler that handed something over waits until it is
// done, or goes on.
func (l *loops) asked(f *Finder, o *origin, s *timeline.Span) {
	const lookahead = 2e9
	f.span = f.win.SpansCoarse(s.Waker, s.End, s.End+lookahead, f.span[:0])
	for i := range f.span {
		w := &f.span[i]
		switch {
		case w.State == timeline.Gone:
			o.left++
			return
		case w.State == timeline.Waiting && w.Start >= s.End:
			if f.syms.String(w.Reason) == "network" {
				o.left++
			} else {
				o.waited++
			}
			return
		}
	}
}

// forget drops what is kept of goroutines that are gone.
func (l *loops) forget(g *timeline.Gen) {
	forgetGone(l.groups, g)
	forgetGone(l.owns, g)
	forgetGone(l.paths, g)
	forgetGone(l.turns, g)
}

// forgetGone drops the goroutines that a generation does not know any more.
func forgetGone[V any](of map[uint64]V, g *timeline.Gen) {
	maps.DeleteFunc(of, func(id uint64, _ V) bool { return !g.Knows(id) })
}

// choose takes the idle wait: the most likely kind of wait, then the one
// nearest to the function that loops, then the longest.
func (r *root) choose() {
	if r.bench {
		r.chooseBusy()
		return
	}
	top := 0
	for _, w := range r.waits {
		top = max(top, w.count)
	}
	if top < manyTurns {
		return
	}
	type cand struct {
		id tracefmt.StackID
		*waitStat
	}
	var cs, busy []cand
	for id, w := range r.waits {
		switch {
		case w.count < manyTurns || w.count*4 < top || w.rank == 0 || 2*w.own >= w.count:
		case w.delays && 2*w.timer > w.count:
			busy = append(busy, cand{id, w}) // a library made it wait: a limiter, a backoff
		default:
			cs = append(cs, cand{id, w})
		}
	}
	if len(cs) == 0 {
		cs, r.busy = busy, true
		r.rests = make(map[tracefmt.StackID]bool)
		for id, w := range r.waits {
			if w.rank == idleMost && !w.delays && 2*w.own < w.count {
				r.rests[id] = true
			}
		}
	}
	if len(cs) == 0 {
		r.busy = false
		return
	}
	slices.SortFunc(cs, func(a, b cand) int {
		return cmp.Or(b.rank-a.rank, a.depth-b.depth, cmp.Compare(b.total, a.total), cmp.Compare(a.id, b.id))
	})
	r.idle = cs[0].id
}

// chooseBusy takes what a benchmark's iterations do most often and nearest to
// its own function.
func (r *root) chooseBusy() {
	top := 0
	for _, w := range r.waits {
		top = max(top, w.count)
	}
	if top < manyTurns {
		return
	}
	best := (*waitStat)(nil)
	for id, w := range r.waits {
		if w.count*4 < top {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(w.depth, best.depth), cmp.Compare(best.count, w.count), cmp.Compare(id, r.idle)) < 0 {
			best, r.idle, r.busy = w, id, true
		}
	}
}

// isBenchmark reports whether a goroutine that was started with a function runs
// a benchmark.
func isBenchmark(start string) bool { return strings.HasPrefix(start, "testing.(*B).") }

// root returns the function with which the stack's goroutine was started, if
// loops there are of interest, and how far above it the wait is.
func (l *loops) root(f *Finder, g uint64, id tracefmt.StackID) (*root, int) {
	frames := f.syms.Stack(id)
	if len(frames) == 0 {
		return nil, 0
	}
	fn := f.syms.Frame(l.rootFrame(f, g, id)).Func
	r, ok := l.roots[fn]
	if !ok {
		if name := f.syms.String(fn); !stdlib.Is(name) {
			r = &root{waits: make(map[tracefmt.StackID]*waitStat)}
			r.bench = isBenchmark(f.syms.String(f.syms.Frame(frames[len(frames)-1]).Func))
		}
		l.roots[fn] = r
	}
	if r == nil {
		return nil, 0
	}
	if e := f.jobs.entry[entryKey{fn: fn}]; e != nil && e.jobs {
		return nil, 0 // its goroutines are the unit, not what they do again and again
	}
	depth := 0
	for _, fr := range frames {
		if !strings.HasPrefix(f.syms.String(f.syms.Frame(fr).Func), "runtime.") {
			depth++
		}
	}
	return r, depth
}

// path narrows what the goroutine's wait stacks have in common.
func (l *loops) path(f *Finder, id uint64) {
	path, seen := l.paths[id]
	for i := range l.spans {
		s := &l.spans[i]
		if s.State != timeline.Waiting || s.Stack == 0 {
			continue
		}
		frames := f.syms.Stack(s.Stack)
		if !seen {
			seen = true
			for k := len(frames) - 1; k >= 0 && len(path) < maxPath; k-- {
				path = append(path, frames[k])
			}
			continue
		}
		n := 0
		for n < len(path) && n < len(frames) && f.syms.Frame(path[n]).Func == f.syms.Frame(frames[len(frames)-1-n]).Func {
			n++
		}
		path = path[:n]
	}
	if !seen {
		return
	}
	l.paths[id] = path
	for k := 0; k+1 < len(path); k++ {
		fn, next := f.syms.Frame(path[k]).Func, f.syms.Frame(path[k+1]).Func
		if stdlib.Is(f.syms.String(next)) {
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

// rootFrame returns the frame of the function that loops.
func (l *loops) rootFrame(f *Finder, g uint64, id tracefmt.StackID) tracefmt.FrameID {
	path := l.paths[g]
	if len(path) == 0 { // no several waits of it are known
		frames := f.syms.Stack(id)
		l.outer = l.outer[:0]
		for k := len(frames) - 1; k >= 0 && len(l.outer) < maxPath; k-- {
			l.outer = append(l.outer, frames[k])
		}
		path = l.outer
	}
	k := 0
	for k+1 < len(path) && len(l.after[f.syms.Frame(path[k]).Func]) > 1 {
		k++
	}
	if own := l.owns[g]; own != 0 && !f.work.namer.owned(f.syms.Frame(path[k])) {
		return own
	}
	return path[k]
}
