package request

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/scale"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// manyJobs is how often a function must have been started as a goroutine and
// have ended before its goroutines count as jobs.
const manyJobs = 8

// jobs follows goroutines whose whole life is one unit of work: a
// function started repeatedly. One started by another job is a part of
// that one.
type jobs struct {
	lives map[uint64]*life
	kinds map[jobKey]*jobKind
	fns   map[tracefmt.StringID]*started
	names map[tracefmt.FrameID]tracefmt.FrameID // by the place that starts them: what jobs of a library's function ran
	// carriers are functions of the standard library with which goroutines are started.
	carriers map[tracefmt.StringID]*carrier
	main     open // main's life, for a trace that has no requests at all
	mainG    bool
	mains    int // parts of it in this generation
	// mainIdle is for how long main slept, or waited for what did not come, or for
	// the network.
	mainIdle int64
}

type life struct {
	open
	entry tracefmt.StackID // the function that it was started with
	kind  *jobKind
	own   bool             // the start function is the service's own
	part  bool             // of another job
	next  bool             // a library that was asked for the next thing to do started it
	by    tracefmt.FrameID // the service's own line that started it, 0 for none
	// creator started it.
	creator uint64
	// Of a goroutine that was started with a function of the standard library: what is known of that, and the stack of its creator. Its
	// kind is known in the end.
	carrier *carrier
	made    tracefmt.StackID
}

// A jobKey is a function that goroutines were started with and, where that
// is a library's, which runs what it is given, the place that started them.
type jobKey struct {
	fn tracefmt.StringID
	by tracefmt.FrameID
}

type jobKind struct {
	*origin
	jobs  bool // decided
	tests bool // of package testing
	ended int
	// first is when the first of them ended, again how many began after that:
	// those are started repeatedly, not once each.
	first int64
	again int
	lived int64 // by all that ended
	// workers counts, of those, the ones that came back to a wait repeatedly.
	workers int
	// awaited counts, of the first fewLooked, those of a library that ran none of the service's own code, whose creator waited for them,
	// and for nothing else since the one before: a library's way to wait for messages, in a loop that asks for the next.
	awaited int
	held    []Request // until there are many
}

// A started holds the facts about all goroutines that a function was started in.
type started struct {
	n, parts int // parts of other work
	// AllParts says that all of many were: then only a few are looked at in each
	// generation: those with a hash of no bits in mask, by how many were born in the one before.
	allParts bool
	born     int
	mask     uint64
	origin   *origin
}

// fewLooked is about how many goroutines of a function all of whose are parts are looked at in a generation.
const fewLooked = 32

// begin begins a generation.
func (s *started) begin() { s.mask, s.born = 1<<bits.Len(uint(s.born/fewLooked))-1, 0 }

// spares reports whether a goroutine is one of so many that it is only counted. Which ones are does not depend on the order in which
// they are found.
func (s *started) spares(g uint64) bool {
	if s == nil {
		return false
	}
	if s.born++; !s.allParts || g*0x9e3779b97f4a7c15>>32&s.mask == 0 {
		return false
	}
	s.origin.total++
	return true
}

func newJobs() jobs {
	return jobs{
		lives: make(map[uint64]*life), kinds: make(map[jobKey]*jobKind), fns: make(map[tracefmt.StringID]*started),
		names: make(map[tracefmt.FrameID]tracefmt.FrameID), carriers: make(map[tracefmt.StringID]*carrier),
	}
}

// begin takes note of the goroutines that were created in a generation.
func (j *jobs) begin(f *Finder, g *timeline.Gen) {
	for _, c := range j.carriers {
		if c != nil {
			clear(c.by)
		}
	}
	j.mains = 0
	if f.found+len(f.out) < scale.Enough {
		f.mainLife(g)
	}
	for _, s := range j.fns {
		s.begin()
	}
	// What a server's goroutines start for themselves, net/http one for each request, is left out before all are put in order.
	f.born = slices.DeleteFunc(g.Births(f.isJob, f.born[:0]), func(b timeline.Birth) bool {
		start := f.stackInfo(b.Start)
		if start.role != roleFree {
			return b.By == 0 || f.servesNow(b.By, b.Stack)
		}
		return j.fns[start.root].spares(b.G)
	})
	timeline.SortBirths(f.born)
	for i := range f.born {
		if b := &f.born[i]; f.stackInfo(b.Start).role == roleFree {
			j.born(f, b)
		} else {
			j.carried(f, g, b)
		}
	}
}

// born takes note of a goroutine that was started with a function of the service's own, or of a library's.
func (j *jobs) born(f *Finder, b *timeline.Birth) {
	l := &life{open: open{start: b.Time, from: b.Time}, entry: b.Start, by: f.stackInfo(b.Stack).caller, creator: b.By, own: f.stackInfo(b.Start).own != 0}
	l.next = !l.own && f.stackInfo(b.Stack).next
	s, e := j.kindOf(f, l)
	o := e.origin
	l.kind = e
	if e.first != 0 {
		e.again++
	}
	was := o.serving
	o.begun(f, b.By, b.Stack)
	if b.By == 0 {
		o.timer++
	}
	o.n++
	o.total++
	// What a handler starts is a part of its request, and what a job starts a
	// part of that one.
	if p := j.lives[b.By]; p != nil {
		l.part = p.part
		if p.carrier != nil && f.stackInfo(b.Stack).own != 0 {
			l.part, p.carrier.yes = true, true
		}
		if !l.part && p.kind != nil && p.kind.origin.n >= manyJobs {
			l.part = true
		}
	}
	if o.serving == was && f.annotatedAt(b.By, b.Time) {
		o.serving++
	}
	if o.serving > was {
		l.part = true
	}
	s.n++
	if l.part {
		s.parts++
	}
	if s.allParts = s.parts >= manySeen && s.parts == s.n; !s.allParts {
		j.lives[b.G] = l
	}
}

// end hands out the jobs that ended in a generation.
func (j *jobs) end(f *Finder, g *timeline.Gen) {
	dropped := make(map[uint64]bool)
	gone(j.lives, g, func(id uint64, l *life, t int64) { j.ended(f, id, l, t, dropped) })
	if len(dropped) > 0 {
		// Their lives are the unit, not what they did repeatedly.
		f.out = slices.DeleteFunc(f.out, func(r Request) bool { return r.Kind == Loop && dropped[r.G] })
	}
}

// ended hands out a job that ended at t, once its kind is known to be one of jobs. The goroutines whose turns are no requests then are dropped.
func (j *jobs) ended(f *Finder, id uint64, l *life, t int64, dropped map[uint64]bool) {
	if l.part || f.work.annotated[id] {
		return
	}
	var own tracefmt.FrameID
	if l.carrier != nil {
		var ok bool
		if own, ok = j.entered(f, l, id, t); !ok {
			return
		}
	}
	e := l.kind
	if f.messages.readers[id] != nil {
		e.workers++
	}
	if turn := f.loops.turn(id); turn != nil && turn.count >= scale.Few {
		e.workers++
	}
	r := l.request(Request{Kind: Goroutine, End: t, G: id, Entry: l.entry, Root: own})
	if l.carrier == nil {
		r.Root = j.name(f, l, id, t)
	}
	if !l.own {
		r.By = l.by
	}
	if e.first == 0 {
		e.first = t
	} else if l.carrier != nil && l.start > e.first {
		e.again++
	}
	e.ended++
	if e.ended <= fewLooked && !l.own && l.by != 0 && r.Root == l.by && f.waitedFor(l, id, t) {
		e.awaited++
	}
	e.lived += t - l.start
	if l.carrier == nil {
		e.origin.awaited = e.waits()
		e.origin.ns += t - l.start
	}
	if e.held = append(e.held, r); !e.decide(t - f.first) {
		if len(e.held) > scale.Many {
			e.held = slices.Delete(e.held, 0, 1)
		}
		return
	}
	for _, r := range e.held {
		if f.loops.turn(r.G) != nil {
			dropped[r.G] = true
		}
	}
	switch {
	case l.carrier != nil || l.own:
	case r.Root == 0:
		e.origin.called = addOnce(e.origin.called, originKey{Goroutine, e.origin.root})
	default:
		k := originKey{Goroutine, f.syms.Frame(r.Root).Func}
		f.work.names[k] = e.origin
		e.origin.called = addOnce(e.origin.called, k)
	}
	f.out = append(f.out, e.held...)
	e.held = e.held[:0]
}

// works reports whether goroutines of a kind are workers, whose turns are the
// unit, not their lives.
func (e *jobKind) works() bool { return 2*e.workers > e.ended }

// waits reports whether goroutines of a kind are a library's way to wait.
func (e *jobKind) waits() bool { return 2*e.awaited > min(e.ended, fewLooked) }

// waitedFor reports whether the goroutine that started a job, which ended at end, spent most of the job's life in a wait that the job
// ended, and its wait before that one was at the same place or, where the library was asked for the next thing to do, a part of its work.
func (f *Finder) waitedFor(l *life, job uint64, end int64) bool {
	start := l.start
	var before tracefmt.StackID
	f.span = f.win.Spans(l.creator, 2*start-end, end, f.span[:0])
	for i := range f.span {
		s := &f.span[i]
		switch {
		case s.State != timeline.Waiting:
		case s.Start < start:
			before = s.Stack
		default:
			return s.Woken && s.Waker == job && (s.Stack == before || l.next && f.asked(before)) && 2*(s.End-s.Start) > end-start
		}
	}
	return false
}

// asked reports whether a wait is one for an answer, of a library or of the standard library's clients.
func (f *Finder) asked(wait tracefmt.StackID) bool {
	if wait == 0 {
		return false
	}
	p := f.stackInfo(wait)
	return p.asks || p.library
}

// decide reports whether its goroutines' lives are the unit: many were started
// after others had ended, or many were short against the time that was seen.
func (e *jobKind) decide(seen int64) bool {
	e.jobs = e.jobs || e.tests && !e.works() || e.ended >= manyJobs && !e.works() && !e.waits() && (e.again >= manyJobs || e.ended >= scale.Many || e.lived < int64(e.ended)*(seen/4))
	return e.jobs
}

// name returns the frame of the function that a job is called by: 0 for the one
// that it was started with. Where that only runs what it is given, it is the
// service's own function that it ran, and if none of them was ever seen, the one
// that started it.
func (j *jobs) name(f *Finder, l *life, id uint64, end int64) tracefmt.FrameID {
	if f.stackInfo(l.entry).own != 0 {
		return 0
	}
	// A line of the service's own gives a library something to run, always the same; a library's own loop runs what it has read.
	named, ok := j.names[l.by]
	if l.by == 0 {
		named = 0
	}
	if !ok || l.kind.tests || l.by == 0 {
		f.span = f.win.Spans(id, l.start, end, f.span[:0])
		for i := range f.span {
			if s := &f.span[i]; s.Stack != 0 && s.Start > l.start {
				if named = f.stackInfo(s.Stack).own; named != 0 {
					j.names[l.by] = named
					break
				}
			}
		}
	}
	return cmp.Or(named, l.by)
}

// areParts reports whether all goroutines of a start function are parts of other
// work.
func (j *jobs) areParts(f *Finder, start tracefmt.StackID) bool {
	s := j.fns[f.stackInfo(start).root]
	return s != nil && s.allParts
}

// kindOf returns the facts about goroutines like one.
func (j *jobs) kindOf(f *Finder, l *life) (*started, *jobKind) {
	fn := f.syms.Frame(f.syms.Stack(l.entry)[0]).Func
	k := jobKey{fn: fn}
	if f.stackInfo(l.entry).own == 0 {
		k.by = l.by
	}
	s, e := entry.In(j.fns, fn), j.kinds[k]
	if e == nil {
		e = &jobKind{origin: f.origin(Goroutine, fn, fn)}
		if k.by != 0 {
			e.origin = f.origin(Goroutine, f.syms.Frame(k.by).Func, fn)
		}
		e.tests = f.namer.fn(fn).is(test)
		e.origin.own = true // also where a library does the work
		j.kinds[k] = e
	}
	s.origin = e.origin
	return s, e
}

func (j *jobs) eachOpen(visit func(*open, Request)) {
	for id, l := range j.lives {
		if !l.part && l.kind != nil && l.kind.jobs {
			r := Request{Kind: Goroutine, G: id, Entry: l.entry}
			if !l.own && l.by != 0 {
				r.By, r.Root = l.by, cmp.Or(j.names[l.by], l.by)
			}
			visit(&l.open, r)
		}
	}
}

// isJob reports whether goroutines of a start function are to be looked at:
// those of the standard library and of servers' machinery are not.
func (f *Finder) isJob(start tracefmt.StackID) bool {
	switch info := f.stackInfo(start); info.role {
	case roleRuntime:
		return info.root != 0 && f.jobs.mayCarry(f, start)
	case roleServes:
		return false
	}
	return true
}

// mainKey is the key of the parts of main's life.
const mainKey = ^uint64(0)

// mainLife hands out what the main goroutine did, a part a generation: it is
// what can be explained of a program in which no requests are found.
func (f *Finder) mainLife(g *timeline.Gen) {
	j := &f.jobs
	if !g.Knows(1) {
		return
	}
	if !j.mainG {
		j.mainG, j.main = true, open{start: g.Base, from: g.Base}
	}
	f.span = f.win.Spans(1, g.Base, g.End, f.span[:0])
	for i := range f.span {
		s := &f.span[i]
		if s.State != timeline.Waiting {
			continue
		}
		if f.nobodyWoke(g, s) {
			j.mainIdle += min(s.End, g.End) - max(s.Start, g.Base)
		}
	}
	if to := f.cut(1, j.main.from, g.End); to > j.main.from {
		f.out = append(f.out, Request{Kind: Main, Start: j.main.from, End: to, G: 1, Part: Middle, Key: mainKey})
		j.main.from = to
		j.mains = 1
	}
}

// nobodyWoke reports whether a wait was not ended by work of this process: it
// goes on, or a timer or the network ended it.
func (f *Finder) nobodyWoke(g *timeline.Gen, s *timeline.Span) bool {
	if !s.Woken || s.Waker == 0 {
		return true
	}
	switch f.reason(s.Reason) {
	case reasonSleep, reasonNetwork:
		return true
	}
	b, born := g.BirthOf(s.Waker) // a context's deadline has a goroutine of the runtime's
	return born && b.By == 0 && f.stackInfo(b.Start).role == roleRuntime
}

// MainIdle reports whether main did next to nothing for most of the time: it
// slept, accepted connections, or waited for a signal. That is no request.
func (f *Finder) MainIdle() bool {
	j := &f.jobs
	return j.mainG && 2*j.mainIdle > j.main.from-j.main.start
}
