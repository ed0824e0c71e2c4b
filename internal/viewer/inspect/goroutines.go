package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A GoroutineQuery selects goroutines. The zero value is all.
type GoroutineQuery struct {
	From, To int64  // alive in [From, To); a To of 0 is the end
	Function string // started with one whose name holds this
	OnStack  bool   // or shows it on any of its stacks
	Exact    bool   // Function is the whole name
	Sort     string // id, born, name, pieces, or run: time in which it ran in [From, To)
	// Descending turns the order round.
	Descending    bool
	Offset, Limit int
}

// A Goroutine is one goroutine in short.
type Goroutine struct {
	ID     uint64 `json:"id"`
	Name   string `json:"name"`
	BornNS int64  `json:"born_ns"` // -1: before the trace
	LastNS int64  `json:"last_ns"`
	Pieces int    `json:"pieces"`
	RunNS  int64  `json:"run_ns,omitempty"` // in the time asked for, when sorted by it
}

// A lineup is the goroutines that a query selects, least first. It is remembered, so that only the first page of a list costs more than
// its rows.
type goroutineSelection struct {
	rows     []int32
	runTimes []int64 // beside rows, if they were sorted by it
}

// Goroutines returns a page of those that a query selects, and how many there are.
func (t *Trace) Goroutines(ctx context.Context, q GoroutineQuery) (page []Goroutine, total int, err error) {
	l, err := t.selectGoroutines(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	page = []Goroutine{}
	for i := range pagePositions(len(l.rows), q.Offset, q.Limit, q.Descending) {
		runTime := int64(0)
		if l.runTimes != nil {
			runTime = l.runTimes[i]
		}
		page = append(page, t.goroutine(l.rows[i], runTime))
	}
	return page, len(l.rows), nil
}

// selectGoroutines returns the goroutines that a query selects.
func (t *Trace) selectGoroutines(ctx context.Context, q GoroutineQuery) (*goroutineSelection, error) {
	g, end := &t.index.goroutines, t.index.speller.End-t.start+1
	// Times that select the same are one query.
	if q.From = max(q.From, 0); q.To <= 0 || q.To > end {
		q.To = end
	}
	q.Offset, q.Limit, q.Descending = 0, 0, false // of a page
	return t.goroutineSelections.getOrMake(ctx, q, func() (*goroutineSelection, error) {
		var named []bool
		var showing bitset
		var err error
		if q.Function != "" {
			named = t.matchingStrings(q.Function)
			if q.OnStack {
				if showing, err = t.goroutinesShowing(ctx, q.Function); err != nil {
					return nil, err
				}
			}
		}
		var runTime func(row int32) int64
		if q.Sort == "run" {
			if runTime, err = t.runTimesIn(ctx, q.From, q.To); err != nil {
				return nil, err
			}
		}
		l := &goroutineSelection{}
		for row := range int32(g.rows()) {
			name := g.name(row, &t.index.syms)
			if !t.isKnownAlive(row, q.From, q.To) || q.Exact && t.index.syms.String(name) != q.Function {
				continue
			}
			if named == nil || named[name] || showing != nil && showing.contains(row) {
				l.rows = append(l.rows, row)
			}
		}
		t.sortGoroutines(l, q.Sort, runTime)
		return l, ctx.Err()
	})
}

// sortGoroutines puts a lineup's rows into a query's order. Rows of equal keys are in order of their numbers; of run and pieces, of which most is
// wanted first, the other way round.
func (t *Trace) sortGoroutines(l *goroutineSelection, order string, runTime func(row int32) int64) {
	g := &t.index.goroutines
	switch order {
	case "run", "pieces":
		sortRows(l.rows, func(row int32) uint64 { return ^g.id(row) })
	default:
		sortRows(l.rows, g.id)
	}
	switch order {
	case "run":
		sortRows(l.rows, func(row int32) uint64 { return sortKey(runTime(row)) })
		l.runTimes = make([]int64, len(l.rows))
		for i, row := range l.rows {
			l.runTimes[i] = runTime(row)
		}
	case "pieces":
		sortRows(l.rows, func(row int32) uint64 { return uint64(*g.pieces.cell(row)) })
	case "born":
		sortRows(l.rows, func(row int32) uint64 { return sortKey(g.born(row)) })
	case "name":
		names := make(map[tracefmt.StringID]uint64)
		for _, row := range l.rows {
			names[g.name(row, &t.index.syms)] = 0
		}
		sorted := slices.SortedFunc(maps.Keys(names), func(a, b tracefmt.StringID) int { return cmp.Compare(t.index.syms.String(a), t.index.syms.String(b)) })
		for i, name := range sorted {
			if i > 0 && t.index.syms.String(name) == t.index.syms.String(sorted[i-1]) {
				names[name] = names[sorted[i-1]]
			} else {
				names[name] = uint64(i)
			}
		}
		sortRows(l.rows, func(row int32) uint64 { return names[g.name(row, &t.index.syms)] })
	}
}

func (t *Trace) goroutine(row int32, runTime int64) Goroutine {
	g := &t.index.goroutines
	out := Goroutine{ID: g.id(row), Name: t.index.syms.String(g.name(row, &t.index.syms)), BornNS: -1, LastNS: g.lastSeen(row) - t.start, Pieces: int(*g.pieces.cell(row)), RunNS: runTime}
	if born := g.born(row); born != 0 {
		out.BornNS = born - t.start
	}
	return out
}

// DescribeGoroutines describes some goroutines, in the same order.
func (t *Trace) DescribeGoroutines(ids []uint64) []Goroutine {
	out := make([]Goroutine, 0, len(ids))
	for _, id := range ids {
		if row, ok := t.index.goroutines.table.get(id); ok {
			out = append(out, t.goroutine(row, 0))
		} else {
			out = append(out, Goroutine{ID: id, BornNS: -1})
		}
	}
	return out
}

// runTimesIn returns, by row, for how long goroutines ran in a stretch of time. Of the
// whole trace that was noted while it was indexed; of another one that is too
// long to be looked at as a whole, it is what ran in its first generations.
func (t *Trace) runTimesIn(ctx context.Context, from, to int64) (func(row int32) int64, error) {
	if from <= 0 && to >= t.index.speller.End-t.start {
		return t.index.goroutines.runTimes.get, nil
	}
	leave, err := t.acquireSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	first, last := t.generationsIn(from+t.start, to+t.start)
	win, err := t.window(ctx, first, min(last, first+maxWindow-1))
	if err != nil {
		return nil, err
	}
	out := make([]int64, t.index.goroutines.rows())
	win.EachRun(from+t.start, to+t.start, func(r timeline.Run) {
		if row, ok := t.index.goroutines.table.get(r.G); ok {
			out[row] += r.To - r.From
		}
	})
	return func(row int32) int64 { return out[row] }, nil
}
