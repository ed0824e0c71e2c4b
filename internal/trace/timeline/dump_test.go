package timeline

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// classify returns a Classify that flags about one stack in eight, by content.
func classify(syms *tracefmt.Symbols) func(tracefmt.StackID) uint8 {
	return func(id tracefmt.StackID) uint8 {
		h := fnv.New32a()
		for _, f := range syms.Stack(id) {
			io.WriteString(h, syms.String(syms.Frame(f).Func))
		}
		if v := h.Sum32(); len(syms.Stack(id)) > 0 && v%8 == 0 {
			return uint8(v>>8) | 1
		}
		return 0
	}
}

// dump returns the results of all queries of the generations. Ids are shown by their meaning, as texts, and the
// most numerous results as the values themselves.
func dump(in *decoded) (lines []any) {
	say := func(words ...any) { lines = append(lines, fmt.Sprintln(words...)) }
	syms := in.d.Symbols
	stk := newStacks()
	say("end", in.err, "orphans", in.d.Orphans, "late", in.d.LateTimes, "unknown", in.d.Unknown,
		"strings", syms.Strings(), "frames", syms.Frames(), "stacks", syms.Stacks())
	for _, g := range in.gens {
		say("generation", g.Num, "base", g.Base, "end", g.End, "events", g.Events, "bytes", g.Bytes, "first", g.First, "irregular", len(g.irregular))
		say(g.Heap, g.STW, g.GC, g.Procs, g.Labels, g.Samples, g.Snapshot, g.SnapshotTime, g.swept.Load(), g.stwBefore)
		for _, u := range g.User {
			say(u.Time, u.Kind, u.G, u.Task, u.Parent, u.Name, u.Value, u.Stack)
		}
		g.EachMarked(func(id uint64, marks []Mark) {
			say("marks of", id)
			for _, m := range marks {
				say(m.Time, m.Flags, m.Kind)
			}
		})
		for _, p := range g.ProcTransitions() {
			say(p)
		}
		g.IdleIntervals(math.MinInt64, math.MaxInt64, func(a, b int64) bool { say("idle", a, b); return true })
		for t := g.Base; t <= g.End; t += (g.End-g.Base)/10 + 1 {
			last, ok := g.LastPoll(t)
			say("poll", t, last, ok, g.IdleTime(g.Base, t))
		}
		g.EachRun(math.MinInt64/2, math.MaxInt64, func(r Run) { lines = append(lines, r) })
		births := g.Births(func(tracefmt.StackID) bool { return true }, nil)
		SortBirths(births)
		say(births)
	}
	win := Window{Gens: in.gens}
	var buf []Span
	for _, id := range goroutines(in.gens) {
		say("goroutine", id)
		buf = win.Spans(id, BeforeTrace, math.MaxInt64, buf[:0])
		for _, s := range buf {
			lines = append(lines, s)
		}
		for _, g := range in.gens {
			if g.Knows(id) {
				birth, ok := g.BirthOf(id)
				death, dead := g.Death(id)
				say(birth, ok, death, dead, g.SamplesOf(id))
			}
		}
	}
	for id := range syms.Stacks() {
		say(id, stk.texts[stk.ourStack(tracefmt.StackID(id), syms)])
	}
	return lines
}

// firstDifference returns the first line in which two dumps differ.
func firstDifference(a, b []any) string {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d:\n%.300s\n%.300s", i, fmt.Sprint(a[min(i, len(a)):min(i+1, len(a))]), fmt.Sprint(b[min(i, len(b)):min(i+1, len(b))]))
		}
	}
	return ""
}
