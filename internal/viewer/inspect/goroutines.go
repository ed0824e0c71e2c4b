package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A GoroutineQuery selects goroutines. The zero value selects all.
type GoroutineQuery struct {
	From, To int64  // they were alive in [From, To); a To of 0 is the end
	Function string // they started with a function whose name contains this
	OnStack  bool   // or they have it on any of their stacks
	Exact    bool   // Function is the whole name
	Sort     string // id, born, name, pieces, or run: running time in [From, To)
	// Descending reverses the order.
	Descending    bool
	Offset, Limit int
}

// A Goroutine summarizes one goroutine.
type Goroutine struct {
	ID     uint64 `json:"id"`
	Name   string `json:"name"`
	BornNS int64  `json:"born_ns"` // -1: before the trace
	LastNS int64  `json:"last_ns"`
	Pieces int    `json:"pieces"`
	RunNS  int64  `json:"run_ns,omitempty"` // in the query's interval, if it is sorted by run
	// Group is the id of the group of the requests that ended on it; of the first one if Mixed.
	Group string `json:"group,omitempty"`
	Mixed bool   `json:"mixed,omitempty"`
}

// A goroutineSelection lists the goroutines that a query selects, in increasing order. It is cached, so that only
// the first page of a list costs more than its rows.
type goroutineSelection struct {
	rows     []int32
	runTimes []int64 // for each row, if the query is sorted by run
}

// Goroutines returns a page of the goroutines that a query selects (q.Limit of them from q.Offset on, in its order), and their total number.
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

// selectGoroutines returns the rows of the goroutines that a query selects, in its order but not reversed, from the cache if possible. The result is
// shared and must not be changed.
func (t *Trace) selectGoroutines(ctx context.Context, q GoroutineQuery) (*goroutineSelection, error) {
	g, end := &t.index.goroutines, t.index.speller.End-t.start+1
	// Normalize intervals that select the same goroutines.
	if q.From = max(q.From, 0); q.To <= 0 || q.To > end {
		q.To = end
	}
	q.Offset, q.Limit, q.Descending = 0, 0, false // fields of a page, not of the selection
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

// sortGoroutines sorts the rows of a selection by order (GoroutineQuery.Sort), in place. runTime returns the ns for order run. Rows with equal keys
// are sorted by increasing id; for run and pieces, which are mostly sorted in descending order, by decreasing id.
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

// goroutine returns the summary of a row, with the given running time in ns.
func (t *Trace) goroutine(row int32, runTime int64) Goroutine {
	g := &t.index.goroutines
	out := Goroutine{ID: g.id(row), Name: t.index.syms.String(g.name(row, &t.index.syms)), BornNS: -1, LastNS: g.lastSeen(row) - t.start, Pieces: int(*g.pieces.cell(row)), RunNS: runTime}
	if born := g.born(row); born != 0 {
		out.BornNS = born - t.start
	}
	if group := t.groupsOfGoroutines()[row]; group > 0 {
		out.Group = t.index.requests.ids[group-1]
	} else if group < 0 {
		out.Group, out.Mixed = t.index.requests.ids[-group-1], true
	}
	return out
}

// groupsOfGoroutines returns for each goroutine, by row, the number of its requests' group plus 1, 0 for none. If there are several groups, it
// returns the first one, negated.
func (t *Trace) groupsOfGoroutines() []int32 {
	t.groupsOnce.Do(func() {
		c := &t.index.requests
		t.groups = make([]int32, t.index.goroutines.rows())
		for i := range int32(c.rows()) {
			row, ok := t.index.goroutines.table.get(c.goroutine(i))
			if !ok {
				continue
			}
			switch group := c.group(i) + 1; t.groups[row] {
			case 0:
				t.groups[row] = group
			case group, -group:
			default:
				t.groups[row] = -max(t.groups[row], -t.groups[row])
			}
		}
	})
	return t.groups
}

// DescribeGoroutines returns the summaries of the given goroutines, in the same order. Of an unknown one it has only the id, and
// BornNS is -1, the value for unknown.
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

// runTimesIn returns a function that returns the running time of a row between from and to, all in ns, from the trace's start. The index has it for
// the whole trace. For another interval that is too long for one window, only the first generations of the interval count.
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
