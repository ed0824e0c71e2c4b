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
	// longRunAfter is how many events of a run are passed before a longRun is made for it.
	longRunAfter = 2 * markEvery
	// coarseParts is how many parts the middle of a run is told in, about, to one who asks for less detail; one with less than
	// half as many stretches between marks is told event by event.
	coarseParts = 32
	// coarseSpans is after how many spans all later runs are told in coarseFewerParts parts each.
	coarseSpans      = 512
	coarseFewerParts = 4
	// coarseKinds bounds how many kinds of time one part distinguishes; the shortest go together without a stack.
	coarseKinds = 16
)

// longKey names a run and what its goroutine was in the middle of as it began.
type longKey struct {
	rec         ref
	state       State
	assist, stw bool
	assistStack tracefmt.StackID
}

// longIndex has the long runs that were asked for so far.
type longIndex struct {
	longMu   sync.Mutex
	longRuns map[longKey]*longRun
}

func (l *longIndex) reset() { *l = longIndex{} }

type longRun struct {
	marks []runMark
	// parts[l][i] is the time from mark i<<l to mark (i+1)<<l, by kind.
	sums [][][]kindTime
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
	origin     Origin
	stack      tracefmt.StackID
	start, dur int64 // of the first
}

func (k *kindTime) isSameKind(o *kindTime) bool {
	return k.stack == o.stack && k.state == o.state && k.assist == o.assist && k.stw == o.stw
}

// longRunOf returns the longRun of the run that begins at at and that e has just begun.
func (g *Gen) longRunOf(key longKey) *longRun {
	g.longMu.Lock()
	defer g.longMu.Unlock()
	l := g.longRuns[key]
	if l == nil {
		l = g.buildLong(key)
		if g.longRuns == nil {
			g.longRuns = make(map[longKey]*longRun)
		}
		g.longRuns[key] = l
	}
	return l
}

func (g *Gen) buildLong(key longKey) *longRun {
	l := new(longRun)
	e := expander{from: BeforeTrace, to: math.MaxInt64, assist: key.assist, stw: key.stw, assistStack: key.assistStack, marking: l}
	e.beginSpan(g.Base+g.record(key.rec).time(), key.state, OriginStarted)
	e.expandRun(g, key.rec)
	for level := 0; len(l.sums) > level && len(l.sums[level]) > 1; level++ {
		var up [][]kindTime
		for i := 0; i+1 < len(l.sums[level]); i += 2 {
			up = append(up, joinRareKinds(addKinds(slices.Clone(l.sums[level][i]), l.sums[level][i+1])))
		}
		l.sums = append(l.sums, up)
	}
	return l
}

// mark adds a mark at the event at rec, which has happened at t.
func (l *longRun) mark(e *expander, rec ref, t int64) {
	n := len(e.buf) - 1 // the open one
	if len(l.marks) > 0 {
		if l.sums == nil {
			l.sums = make([][][]kindTime, 1)
		}
		var part []kindTime
		for i := range e.buf[:n] {
			s := &e.buf[i]
			part = addKinds(part, []kindTime{{s.State, s.Assist, s.InSTW, s.Origin, s.Stack, s.Start, s.End - s.Start}})
		}
		l.sums[0] = append(l.sums[0], joinRareKinds(part))
	}
	first := n == 0 && (len(l.marks) == 0 || l.marks[len(l.marks)-1].first)
	e.buf[0] = e.buf[n]
	e.buf = e.buf[:1]
	e.openSpan = &e.buf[0]
	l.marks = append(l.marks, runMark{rec: rec, t: t, open: *e.openSpan, first: first, assist: e.assist, stw: e.stw, assistStack: e.assistStack})
}

// addKinds adds b to a, in order of the first of each kind.
func addKinds(a, b []kindTime) []kindTime {
next:
	for i := range b {
		for k := range a {
			if a[k].isSameKind(&b[i]) {
				a[k].dur += b[i].dur
				continue next
			}
		}
		a = append(a, b[i])
	}
	return a
}

// joinRareKinds joins the shortest kinds of running time, so that at most coarseKinds are left (and the others of system calls
// likewise).
func joinRareKinds(list []kindTime) []kindTime {
	if len(list) <= coarseKinds {
		return list
	}
	byTime := slices.Clone(list)
	slices.SortStableFunc(byTime, func(a, b kindTime) int { return cmp.Compare(b.dur, a.dur) })
	joined := byTime[:coarseKinds-4]
	for _, k := range byTime[coarseKinds-4:] {
		k.stack = 0
		joined = addKinds(joined, []kindTime{k})
	}
	slices.SortStableFunc(joined, func(a, b kindTime) int { return cmp.Compare(a.start, b.start) })
	return slices.Clone(joined)
}

// skipTo puts e to the last mark before which nothing of what is wanted lies, and returns the event that it stands at.
func (l *longRun) skipTo(e *expander, rec ref) ref {
	k := sort.Search(len(l.marks), func(i int) bool { return max(l.marks[i].open.Start, l.marks[i].t) > e.from }) - 1
	if k < 0 || l.marks[k].rec <= rec || !l.marks[k].first && e.openSpan.Start > l.marks[k].open.Start {
		return rec
	}
	l.marks[k].restore(e)
	return l.marks[k].rec
}

func (m *runMark) restore(e *expander) {
	if !m.first {
		*e.openSpan = m.open
	}
	e.assist, e.stw, e.assistStack = m.assist, m.stw, m.assistStack
}

// summarize tells what lies between the mark at the event at rec and what is wanted last in a few parts, each with its kinds of time
// one after the other. It returns the event from which on every single one is to be told; that is rec if there is little.
func (l *longRun) summarize(e *expander, rec ref, parts int) ref {
	from := sort.Search(len(l.marks), func(i int) bool { return l.marks[i].rec >= rec })
	to := sort.Search(len(l.marks), func(i int) bool { return max(l.marks[i].open.Start, l.marks[i].t) >= e.to }) - 1
	if from == len(l.marks) || l.marks[from].rec != rec || to-from < parts/2 || e.openSpan.Start != l.marks[from].open.Start || e.openSpan.Origin != l.marks[from].open.Origin {
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
		spanStart := l.marks[from].open.Start
		for _, k := range l.sums[level][from>>level] {
			if k.dur == 0 {
				continue
			}
			e.buf = append(e.buf, Span{Start: spanStart, End: spanStart + k.dur, State: k.state, Origin: k.origin, Stack: k.stack, Assist: k.assist, InSTW: k.stw})
			spanStart += k.dur
		}
		from += 1 << level
	}
	e.buf = append(e.buf, Span{})
	e.openSpan = &e.buf[len(e.buf)-1]
	l.marks[to].restore(e)
	return l.marks[to].rec
}
