package timeline

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A run may hold any number of events: one goroutine releases or creates a million others, or does a million pieces of work
// without ever being preempted. Reading a part of such a run must not cost what lies before it, and reading all of
// it for each of N goroutines that waited for its end must not cost N times all its events. A longRun, made when a run proves to be long,
// answers both: marks to enter it in the middle, and sums of the stretches between them.

const (
	// markEvery is how many events lie between two marks.
	markEvery = 64
	// longAfter is how many events of a run are passed before a longRun is made for it.
	longAfter = 2 * markEvery
	// coarseParts is how many parts the middle of a run is told in, about, to one who asks for less detail; one with less than
	// half as many stretches between marks is told event by event.
	coarseParts = 32
	// coarseSpans is after how many spans all later runs are told in coarseLess parts each.
	coarseSpans = 512
	coarseLess  = 4
	// coarseKinds bounds how many kinds of time one part distinguishes; the shortest go together without a stack.
	coarseKinds = 16
)

// longKey names a run and what its goroutine was in the middle of as it began.
type longKey struct {
	at          ref
	state       State
	assist, stw bool
	assistStack tracefmt.StackID
}

// longIndex has the long runs that were asked for so far.
type longIndex struct {
	longMu sync.Mutex
	longs  map[longKey]*longRun
}

func (l *longIndex) reset() { *l = longIndex{} }

type longRun struct {
	marks []runMark
	// parts[l][i] is the time from mark i<<l to mark (i+1)<<l, by kind.
	parts [][][]kindTime
}

// A runMark is a place in a run: the event at rec has happened, and open is the span that is not over.
type runMark struct {
	rec         ref
	t           int64
	open        Span
	first       bool // open is the run's first: how it began is told elsewhere
	assist, stw bool
	assistStack tracefmt.StackID
}

// A kindTime is how long spans of one kind took.
type kindTime struct {
	state      State
	assist     bool
	stw        bool
	how        How
	stack      tracefmt.StackID
	start, dur int64 // of the first
}

func (k *kindTime) same(o *kindTime) bool {
	return k.stack == o.stack && k.state == o.state && k.assist == o.assist && k.stw == o.stw
}

// long returns the longRun of the run that begins at at and that e has just begun.
func (g *Gen) long(key longKey) *longRun {
	g.longMu.Lock()
	defer g.longMu.Unlock()
	l := g.longs[key]
	if l == nil {
		l = g.buildLong(key)
		if g.longs == nil {
			g.longs = make(map[longKey]*longRun)
		}
		g.longs[key] = l
	}
	return l
}

func (g *Gen) buildLong(key longKey) *longRun {
	l := new(longRun)
	e := expander{from: BeforeTrace, to: math.MaxInt64, assist: key.assist, stw: key.stw, assistStack: key.assistStack, marking: l}
	e.begin(g.Base+g.record(key.at).time(), key.state, HowStarted)
	e.run(g, key.at)
	for level := 0; len(l.parts) > level && len(l.parts[level]) > 1; level++ {
		var up [][]kindTime
		for i := 0; i+1 < len(l.parts[level]); i += 2 {
			up = append(up, fewKinds(addKinds(slices.Clone(l.parts[level][i]), l.parts[level][i+1])))
		}
		l.parts = append(l.parts, up)
	}
	return l
}

// mark adds a mark at the event at rec, which has happened at t.
func (l *longRun) mark(e *expander, rec ref, t int64) {
	n := len(e.buf) - 1 // the open one
	if len(l.marks) > 0 {
		if l.parts == nil {
			l.parts = make([][][]kindTime, 1)
		}
		var part []kindTime
		for i := range e.buf[:n] {
			s := &e.buf[i]
			part = addKinds(part, []kindTime{{s.State, s.Assist, s.InSTW, s.How, s.Stack, s.Start, s.End - s.Start}})
		}
		l.parts[0] = append(l.parts[0], fewKinds(part))
	}
	first := n == 0 && (len(l.marks) == 0 || l.marks[len(l.marks)-1].first)
	e.buf[0] = e.buf[n]
	e.buf = e.buf[:1]
	e.cur = &e.buf[0]
	l.marks = append(l.marks, runMark{rec: rec, t: t, open: *e.cur, first: first, assist: e.assist, stw: e.stw, assistStack: e.assistStack})
}

// addKinds adds b to a, in order of the first of each kind.
func addKinds(a, b []kindTime) []kindTime {
next:
	for i := range b {
		for k := range a {
			if a[k].same(&b[i]) {
				a[k].dur += b[i].dur
				continue next
			}
		}
		a = append(a, b[i])
	}
	return a
}

// fewKinds joins the shortest kinds of running time, so that at most coarseKinds are left (and the others of system calls
// likewise).
func fewKinds(list []kindTime) []kindTime {
	if len(list) <= coarseKinds {
		return list
	}
	byTime := slices.Clone(list)
	slices.SortStableFunc(byTime, func(a, b kindTime) int { return cmp.Compare(b.dur, a.dur) })
	kept := byTime[:coarseKinds-4]
	for _, k := range byTime[coarseKinds-4:] {
		k.stack = 0
		kept = addKinds(kept, []kindTime{k})
	}
	slices.SortStableFunc(kept, func(a, b kindTime) int { return cmp.Compare(a.start, b.start) })
	return slices.Clone(kept)
}

// enter puts e to the last mark before which nothing of what is wanted lies, and returns the event that it stands at.
func (l *longRun) enter(e *expander, at ref) ref {
	k := sort.Search(len(l.marks), func(i int) bool { return max(l.marks[i].open.Start, l.marks[i].t) > e.from }) - 1
	if k < 0 || l.marks[k].rec <= at || !l.marks[k].first && e.cur.Start > l.marks[k].open.Start {
		return at
	}
	l.marks[k].restore(e)
	return l.marks[k].rec
}

func (m *runMark) restore(e *expander) {
	if !m.first {
		*e.cur = m.open
	}
	e.assist, e.stw, e.assistStack = m.assist, m.stw, m.assistStack
}

// skim tells what lies between the mark at the event at rec and what is wanted last in a few parts, each with its kinds of time
// one after the other. It returns the event from which on every single one is to be told; that is rec if there is little.
func (l *longRun) skim(e *expander, rec ref, parts int) ref {
	from := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].rec >= rec })
	to := sort.Search(len(l.marks), func(i int) bool { return max(l.marks[i].open.Start, l.marks[i].t) >= e.to }) - 1
	if from == len(l.marks) || l.marks[from].rec != rec || to-from < parts/2 || e.cur.Start != l.marks[from].open.Start || e.cur.How != l.marks[from].open.How {
		return rec
	}
	top := 0
	for (to-from)>>(top+1) >= parts {
		top++
	}
	e.buf = e.buf[:len(e.buf)-1] // the open one begins the first part
	for from < to {
		level := 0
		for level < top && from&(1<<(level+1)-1) == 0 && from+1<<(level+1) <= to {
			level++
		}
		at := l.marks[from].open.Start
		for _, k := range l.parts[level][from>>level] {
			if k.dur == 0 {
				continue
			}
			e.buf = append(e.buf, Span{Start: at, End: at + k.dur, State: k.state, How: k.how, Stack: k.stack, Assist: k.assist, InSTW: k.stw})
			at += k.dur
		}
		from += 1 << level
	}
	e.buf = append(e.buf, Span{})
	e.cur = &e.buf[len(e.buf)-1]
	l.marks[to].restore(e)
	return l.marks[to].rec
}
