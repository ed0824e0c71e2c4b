package timeline

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// classify flags about one stack in eight, by its content.
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

// dump writes all that can be asked of the generations, in a form that shows
// every id as what it stands for.
func dump(w io.Writer, in *decoded) {
	syms := in.d.Symbols
	stk := newStacks()
	fmt.Fprintf(w, "end %v orphans %d late %d unknown %d strings %d frames %d stacks %d\n",
		in.err, in.d.Orphans, in.d.LateTimes, in.d.Unknown, syms.Strings(), syms.Frames(), syms.Stacks())
	for _, g := range in.gens {
		fmt.Fprintf(w, "generation %d base %d end %d events %d bytes %d first %v irregular %d\n", g.Num, g.Base, g.End, g.Events, g.Bytes, g.First, len(g.irregular))
		fmt.Fprintln(w, g.Heap, g.STW, g.GC, g.Procs, g.Labels, g.Samples, g.Snapshot, g.SnapshotTime, g.swept.Load(), g.stwBefore)
		for _, u := range g.User {
			fmt.Fprintln(w, u.Time, u.Kind, u.G, u.Task, u.Parent, u.Name, u.Value, u.Stack)
		}
		g.EachMarked(func(id uint64, marks []Mark) {
			fmt.Fprintf(w, "marks of %d:", id)
			for _, m := range marks {
				fmt.Fprint(w, " ", m.Time, m.Flags, m.Kind)
			}
			fmt.Fprintln(w)
		})
		for _, p := range g.ProcTransitions() {
			fmt.Fprintln(w, p)
		}
		g.IdleStretches(math.MinInt64, math.MaxInt64, func(a, b int64) bool { fmt.Fprintln(w, "idle", a, b); return true })
		for t := g.Base; t <= g.End; t += (g.End-g.Base)/10 + 1 {
			last, ok := g.LastPoll(t)
			fmt.Fprintln(w, "poll", t, last, ok, g.Idle(g.Base, t))
		}
		g.EachRun(math.MinInt64/2, math.MaxInt64, func(r Run) { fmt.Fprintln(w, "run", r) })
		births := g.Births(func(tracefmt.StackID) bool { return true }, nil)
		SortBirths(births)
		fmt.Fprintln(w, births)
	}
	win := Window{Gens: in.gens}
	var buf []Span
	for _, id := range goroutines(in.gens) {
		fmt.Fprintln(w, "goroutine", id)
		buf = win.Spans(id, BeforeTrace, math.MaxInt64, buf[:0])
		for _, s := range buf {
			fmt.Fprintln(w, s)
		}
		for _, g := range in.gens {
			if g.Knows(id) {
				birth, ok := g.BirthOf(id)
				death, dead := g.Death(id)
				fmt.Fprintln(w, birth, ok, death, dead, g.SamplesOf(id))
			}
		}
	}
	for id := range syms.Stacks() {
		fmt.Fprintln(w, id, stk.texts[stk.ofOurs(tracefmt.StackID(id), syms)])
	}
}

// dumpLines returns a dump cut into lines.
func dumpLines(in *decoded) []string {
	var b strings.Builder
	dump(&b, in)
	return strings.Split(b.String(), "\n")
}

// firstDifference returns the first line in which two dumps differ.
func firstDifference(a, b []string) string {
	if slices.Equal(a, b) {
		return ""
	}
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return fmt.Sprintf("line %d:\n%.300s\n%.300s", i, strings.Join(a[min(i, len(a)):min(i+1, len(a))], ""), strings.Join(b[min(i, len(b)):min(i+1, len(b))], ""))
		}
	}
	return ""
}
