package validate

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// Timelines checks the timelines of one generation after the other. The zero value is ready for use. It is not safe for
// concurrent use.
type Timelines struct {
	Problems

	// Goroutines, Spans and Runs are the numbers of checked ones. A goroutine counts once per generation.
	Goroutines, Spans, Runs int64

	previousEnd  int64 // end of the previous generation
	runs         timeline.Runs
	lastRuns     map[uint64]timeline.Run // by thread
	spans        []timeline.Span
	completeRuns []timeline.Run
}

// transitions lists the states that may follow each other in a goroutine's life. A goroutine of a C thread appears in a
// system call and disappears in one.
var transitions = map[[2]timeline.State]bool{
	{timeline.Running, timeline.Running}: true, {timeline.Running, timeline.Runnable}: true, {timeline.Running, timeline.Waiting}: true,
	{timeline.Running, timeline.Syscall}: true, {timeline.Running, timeline.NotAlive}: true,
	{timeline.Runnable, timeline.Running}: true, {timeline.Waiting, timeline.Runnable}: true, {timeline.Waiting, timeline.Running}: true,
	{timeline.Syscall, timeline.Running}: true, {timeline.Syscall, timeline.Runnable}: true, {timeline.Syscall, timeline.NotAlive}: true,
	{timeline.NotAlive, timeline.Syscall}: true,
}

// Decoded checks the newest generation of a window, which may also hold the one before. Generations are passed in
// order; skipped says that some were left out before this one.
func (v *Timelines) Decoded(win *timeline.Window, skipped bool) {
	if len(win.Gens) == 0 {
		return
	}
	g := win.Gens[len(win.Gens)-1]
	if g.End < g.Base {
		v.add("generation-times", "generation %d ends at %d, before it begins at %d", g.Num, g.End, g.Base)
	}
	v.checkOrder(g)
	v.checkThreads(win, g, skipped)
	g.Goroutines(func(id uint64) {
		v.Goroutines++
		v.spans = win.Spans(id, max(g.Base, v.previousEnd), math.MaxInt64, v.spans[:0])
		v.checkLife(id, v.spans)
	})
	v.previousEnd = g.End
}

// checkLife checks that a goroutine's spans follow each other without gaps, in allowed states, and that an event ended
// each wait.
func (v *Timelines) checkLife(id uint64, spans []timeline.Span) {
	v.Spans += int64(len(spans))
	for i := 1; i < len(spans); i++ {
		a, b := &spans[i-1], &spans[i]
		switch {
		case !transitions[[2]timeline.State{a.State, b.State}]:
			v.add("states", "goroutine %d: %v follows %v at %d", id, b.State, a.State, b.Start)
		case a.End != max(b.Start, a.Start):
			v.add("gaps", "goroutine %d: a span ends at %d and the next begins at %d", id, a.End, b.Start)
		case a.State == timeline.Waiting && !a.Woken:
			v.add("wakes", "goroutine %d: a wait ended at %d and nobody ended it", id, a.End)
		}
	}
}

// checkThreads checks that no thread runs two goroutines at once, from the runs of threads in g and in the generations before
// (forgotten if skipped: some were left out before g), and that the runs that ended in g agree with the goroutines' spans in
// win. The two are built in different ways.
func (v *Timelines) checkThreads(win *timeline.Window, g *timeline.Gen, skipped bool) {
	if v.lastRuns == nil || skipped {
		v.lastRuns = make(map[uint64]timeline.Run)
		v.runs = timeline.Runs{}
	}
	v.completeRuns = v.completeRuns[:0]
	v.runs.Add(g, func(run timeline.Run) {
		v.Runs++
		if run.To < run.From {
			v.add("run-times", "goroutine %d ran on thread %d from %d until %d", run.G, run.M, run.From, run.To)
		}
		if before, ok := v.lastRuns[run.M]; ok && run.From < before.To {
			v.add("threads", "thread %d runs goroutine %d from %d on, and goroutine %d until %d", run.M, run.G, run.From, before.G, before.To)
		}
		v.lastRuns[run.M] = run
		if run.Began && run.Ended && run.From >= win.Start() {
			v.completeRuns = append(v.completeRuns, run)
		}
	})
	slices.SortFunc(v.completeRuns, func(a, b timeline.Run) int {
		return cmp.Or(cmp.Compare(a.G, b.G), cmp.Compare(a.From, b.From))
	})
	for rest := v.completeRuns; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].G == rest[0].G {
			n++
		}
		v.checkRunning(win, rest[:n])
		rest = rest[n:]
	}
}

// checkRunning checks that a goroutine's spans are in state running throughout its runs.
func (v *Timelines) checkRunning(win *timeline.Window, runs []timeline.Run) {
	id := runs[0].G
	v.spans = win.Spans(id, runs[0].From, runs[len(runs)-1].To, v.spans[:0])
	if !isMonotonic(v.spans) {
		return // the clocks of two threads differ
	}
	spans := v.spans
	for _, run := range runs {
		for len(spans) > 0 && spans[0].End <= run.From {
			spans = spans[1:]
		}
		var sum int64
		for i := 0; i < len(spans) && spans[i].Start < run.To; i++ {
			if s := &spans[i]; s.State == timeline.Running {
				sum += min(s.End, run.To) - max(s.Start, run.From)
			}
		}
		if sum != run.To-run.From {
			v.add("running-time", "goroutine %d ran from %d to %d on thread %d; its spans have %d ns of that as running", id, run.From, run.To, run.M, sum)
		}
	}
}

// isMonotonic reports whether the times of a goroutine's spans increase. They may not, because the clocks of two
// threads may differ.
func isMonotonic(spans []timeline.Span) bool {
	for i := 1; i < len(spans); i++ {
		if spans[i].Start < spans[i-1].Start || spans[i].Start < spans[i-1].End {
			return false
		}
	}
	return true
}

// checkOrder checks that the lists of a generation are ordered by time.
func (v *Timelines) checkOrder(g *timeline.Gen) {
	checkTimes(v, g, "CPU samples", len(g.Samples), func(i int) int64 { return g.Samples[i].Time })
	checkTimes(v, g, "heap sizes", len(g.Heap), func(i int) int64 { return g.Heap[i].Time })
	checkTimes(v, g, "user events", len(g.User), func(i int) int64 { return g.User[i].Time })
	checkTimes(v, g, "stops of the world", len(g.STW), func(i int) int64 { return g.STW[i].Start })
	checkTimes(v, g, "mark phases", len(g.GC), func(i int) int64 { return g.GC[i].Time })
	checkTimes(v, g, "changes of GOMAXPROCS", len(g.Procs), func(i int) int64 { return g.Procs[i].Time })
	g.EachMarked(func(id uint64, marks []timeline.Mark) {
		checkTimes(v, g, "marks of a goroutine", len(marks), func(i int) int64 { return marks[i].Time })
	})
}

// checkTimes checks that the n times of a list of a generation do not decrease; list is its name.
func checkTimes(v *Timelines, g *timeline.Gen, list string, n int, time func(int) int64) {
	for i := 1; i < n; i++ {
		if time(i) < time(i-1) {
			v.add("order", "generation %d: %s are out of order at %d", g.Num, list, time(i))
			return
		}
	}
}
