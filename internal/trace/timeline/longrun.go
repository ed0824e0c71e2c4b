package timeline

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A run can have any number of events: one goroutine may release or create a million others, or do a million
// pieces of work without being preempted. Reading a part of such a run must not cost as much as the events before
// it, and reading the whole run for each of N goroutines that waited for its end must not cost N times its events.
// A longRun, created when a run proves to be long, solves both: its marks allow readers to enter the run in the
// middle, and its sums summarize the intervals between marks.

const (
	// markEvery is the number of events between two marks.
	markEvery = 64
	// longRunAfter is the number of events of a run after which a longRun is created for it.
	longRunAfter = 2 * markEvery
	// coarseParts is about how many parts summarize the middle of a run in a query for less detail. A run with
	// fewer than half as many intervals between marks is expanded event by event.
	coarseParts = 32
	// coarseSpans is the number of spans after which each later run is summarized in coarseFewerParts parts.
	coarseSpans      = 512
	coarseFewerParts = 4
	// coarseKinds bounds the kinds of time in one part; the shortest kinds are joined without a stack.
	coarseKinds = 16
)

// A longKey identifies a run and the state of its goroutine at the run's begin.
type longKey struct {
	rec         ref
	state       State
	assist, stw bool
	assistStack tracefmt.StackID
}

// A longIndex holds the long runs that queries have visited.
type longIndex struct {
	longMu   sync.Mutex
	longRuns map[longKey]*longRun
}

func (l *longIndex) reset() { *l = longIndex{} }

// A longRun has the marks of a run with very many events, and the sums of the times between marks.
type longRun struct {
	marks []runMark
	// sums[l][i] is the time from mark i<<l to mark (i+1)<<l, by kind.
	sums [][][]kindTime
}

// A runMark is a position in a run: the event at rec has happened, and open is the open span after it.
type runMark struct {
	rec         ref
	t           int64
	open        Span
	first       bool // open is the first span of the run, so its begin depends on the query
	assist, stw bool
	assistStack tracefmt.StackID
}

// A kindTime is the total time of the spans of one kind.
type kindTime struct {
	state      State
	assist     bool
	stw        bool
	origin     Origin
	stack      tracefmt.StackID
	start, dur int64 // start of the first span, total duration
}

// isSameKind reports whether two times are of one kind.
func (k *kindTime) isSameKind(o *kindTime) bool {
	return k.stack == o.stack && k.state == o.state && k.assist == o.assist && k.stw == o.stw
}

// longRunOf returns the longRun of a run, building it on the first call.
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

// buildLong expands a whole run once, and returns its marks and sums.
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

// addMark adds a mark after the event at rec, which happened at t, and the sum of the times since the mark before.
func (l *longRun) addMark(e *expander, rec ref, t int64) {
	n := len(e.buf) - 1 // index of the open span
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

// addKinds adds the times of b to those of a, kind by kind. The kinds stay in the order of their first occurrence.
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

// joinRareKinds bounds a list to about coarseKinds kinds of time: the shortest ones lose their stack and are joined by state.
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

// enterAtMark moves expander e forward to the last mark before e.from, and returns the event of that mark; it returns rec, the
// present event, if no mark is later.
func (l *longRun) enterAtMark(e *expander, rec ref) ref {
	k := sort.Search(len(l.marks), func(i int) bool { return max(l.marks[i].open.Start, l.marks[i].t) > e.from }) - 1
	if k < 0 || l.marks[k].rec <= rec || !l.marks[k].first && e.openSpan.Start > l.marks[k].open.Start {
		return rec
	}
	l.marks[k].restore(e)
	return l.marks[k].rec
}

// restore sets e to the state at the mark.
func (m *runMark) restore(e *expander) {
	if !m.first {
		*e.openSpan = m.open
	}
	e.assist, e.stw, e.assistStack = m.assist, m.stw, m.assistStack
}

// summarize appends to e.buf the time between the mark at rec and the last mark before e.to, in a few parts, each with one span
// for each kind of time. It returns the event from which e must continue event by event; that is rec if there are too few
// intervals to summarize.
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
	e.buf = e.buf[:len(e.buf)-1] // the first part includes the open span
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
