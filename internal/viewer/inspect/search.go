package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// matches tells which strings hold a text, in whatever case.
func (t *Trace) matches(text string) []bool {
	text = strings.ToLower(text)
	out := make([]bool, t.x.syms.Strings())
	for i := range out {
		out[i] = strings.Contains(strings.ToLower(t.x.syms.String(tracefmt.StringID(i))), text)
	}
	return out
}

// stacksWith tells which stacks show a function whose name holds a text.
func (t *Trace) stacksWith(text string) (wanted []bool, some bool) {
	fns := t.matches(text)
	frames := make([]bool, t.x.syms.Frames())
	for i := range frames {
		frames[i] = fns[t.x.syms.Frame(tracefmt.FrameID(i)).Func]
	}
	wanted = make([]bool, t.x.syms.Stacks())
	for i := range wanted {
		for _, f := range t.x.syms.Stack(tracefmt.StackID(i)) {
			if frames[f] {
				wanted[i], some = true, true
				break
			}
		}
	}
	return wanted, some
}

// A Function is a function that stands on some stack of the trace.
type Function struct {
	Name   string `json:"name"`
	Stacks int    `json:"stacks"` // on how many different ones
	// Starts is how many goroutines started with it.
	Starts int `json:"starts"`
}

// Functions returns functions of the trace whose names hold a text, in
// whatever case, those on most stacks first, and how many there are.
func (t *Trace) Functions(text string, limit int) (list []Function, total int) {
	fns := t.matches(text)
	stacks := make(map[tracefmt.StringID]int)
	for i := range t.x.syms.Stacks() {
		frames := t.x.syms.Stack(tracefmt.StackID(i))
		for k, f := range frames {
			fn := t.x.syms.Frame(f).Func
			if fns[fn] && !slices.ContainsFunc(frames[:k], func(o tracefmt.FrameID) bool { return t.x.syms.Frame(o).Func == fn }) {
				stacks[fn]++
			}
		}
	}
	starts := make(map[tracefmt.StringID]int)
	g := &t.x.gos
	for row := range g.rows() {
		if fn := g.name(int32(row), &t.x.syms); fns[fn] && fn != 0 {
			starts[fn]++
			stacks[fn] += 0
		}
	}
	list = make([]Function, 0, len(stacks))
	for fn, n := range stacks {
		list = append(list, Function{t.x.syms.String(fn), n, starts[fn]})
	}
	slices.SortFunc(list, func(a, b Function) int { return cmp.Or(cmp.Compare(b.Stacks, a.Stacks), cmp.Compare(a.Name, b.Name)) })
	return list[:min(len(list), max(limit, 0))], len(list)
}

// touched returns, a bit a request, whether its critical path shows a function
// whose name holds a text: every request is walked again.
func (t *Trace) touched(ctx context.Context, text string) (bitset, error) {
	return t.touches.of(ctx, strings.ToLower(text), func() (bitset, error) {
		wanted, some := t.stacksWith(text)
		c := &t.x.reqs
		bits := newBitset(c.rows())
		if !some {
			return bits, nil
		}
		for lo := 0; lo < c.rows(); {
			hi := lo + 1
			for hi < c.rows() && c.gen(int32(hi)) == c.gen(int32(lo)) {
				hi++
			}
			if err := t.touchedIn(ctx, lo, hi, wanted, bits); err != nil {
				return nil, err
			}
			lo = hi
		}
		return bits, nil
	})
}

// touchedIn looks at rows [lo, hi), which ended in one generation.
func (t *Trace) touchedIn(ctx context.Context, lo, hi int, wanted []bool, bits bitset) error {
	c := &t.x.reqs
	start := c.start(int32(lo))
	for i := lo; i < hi; i++ {
		start = min(start, c.start(int32(i)))
	}
	last := int(c.gen(int32(lo)))
	win, err := t.windowOf(ctx, start, last)
	if err != nil {
		return err
	}
	const chunk = 64 // of rows, so that two workers never write one word
	var next atomic.Int64
	next.Store(int64(lo / chunk))
	var wg sync.WaitGroup
	for range cap(t.work) {
		wg.Go(func() {
			w := newToucher(win, &t.x.syms, wanted, &t.x.walk)
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k*chunk >= hi {
					return
				}
				for i := max(k*chunk, lo); i < min((k+1)*chunk, hi); i++ {
					row := int32(i)
					r := request.Request{Kind: c.kind(row), Start: max(c.start(row), win.Start()), End: c.start(row) + c.latency(row), G: c.g(row)}
					if w.touches(&r) {
						bits.add(row)
					}
				}
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

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
type lineup struct {
	rows []int32
	ran  []int64 // beside rows, if they were sorted by it
}

// Goroutines returns a page of those that a query selects, and how many there are.
func (t *Trace) Goroutines(ctx context.Context, q GoroutineQuery) (page []Goroutine, total int, err error) {
	l, err := t.lineup(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	page = []Goroutine{}
	for at := range places(len(l.rows), q.Offset, q.Limit, q.Descending) {
		ran := int64(0)
		if l.ran != nil {
			ran = l.ran[at]
		}
		page = append(page, t.goroutine(l.rows[at], ran))
	}
	return page, len(l.rows), nil
}

// lineup returns the goroutines that a query selects.
func (t *Trace) lineup(ctx context.Context, q GoroutineQuery) (*lineup, error) {
	g, end := &t.x.gos, t.x.sp.End-t.start+1
	// Times that select the same are one query.
	if q.From = max(q.From, 0); q.To <= 0 || q.To > end {
		q.To = end
	}
	q.Offset, q.Limit, q.Descending = 0, 0, false // of a page
	return t.lineups.of(ctx, q, func() (*lineup, error) {
		var named []bool
		var shown bitset
		var err error
		if q.Function != "" {
			named = t.matches(q.Function)
			if q.OnStack {
				if shown, err = t.shows(ctx, q.Function); err != nil {
					return nil, err
				}
			}
		}
		var ran func(row int32) int64
		if q.Sort == "run" {
			if ran, err = t.ran(ctx, q.From, q.To); err != nil {
				return nil, err
			}
		}
		l := &lineup{}
		for row := range int32(g.rows()) {
			name := g.name(row, &t.x.syms)
			if !t.lived(row, q.From, q.To) || q.Exact && t.x.syms.String(name) != q.Function {
				continue
			}
			if named == nil || named[name] || shown != nil && shown.has(row) {
				l.rows = append(l.rows, row)
			}
		}
		t.sort(l, q.Sort, ran)
		return l, ctx.Err()
	})
}

// sort puts a lineup's rows into a query's order. Rows of equal keys are in order of their numbers; of run and pieces, of which most is
// wanted first, the other way round.
func (t *Trace) sort(l *lineup, by string, ran func(row int32) int64) {
	g := &t.x.gos
	switch by {
	case "run", "pieces":
		sortRows(l.rows, func(row int32) uint64 { return ^g.id(row) })
	default:
		sortRows(l.rows, g.id)
	}
	switch by {
	case "run":
		sortRows(l.rows, func(row int32) uint64 { return ordered(ran(row)) })
		l.ran = make([]int64, len(l.rows))
		for i, row := range l.rows {
			l.ran[i] = ran(row)
		}
	case "pieces":
		sortRows(l.rows, func(row int32) uint64 { return uint64(*g.pieces.at(row)) })
	case "born":
		sortRows(l.rows, func(row int32) uint64 { return ordered(g.born(row)) })
	case "name":
		names := make(map[tracefmt.StringID]uint64)
		for _, row := range l.rows {
			names[g.name(row, &t.x.syms)] = 0
		}
		sorted := slices.SortedFunc(maps.Keys(names), func(a, b tracefmt.StringID) int { return cmp.Compare(t.x.syms.String(a), t.x.syms.String(b)) })
		for i, name := range sorted {
			if i > 0 && t.x.syms.String(name) == t.x.syms.String(sorted[i-1]) {
				names[name] = names[sorted[i-1]]
			} else {
				names[name] = uint64(i)
			}
		}
		sortRows(l.rows, func(row int32) uint64 { return names[g.name(row, &t.x.syms)] })
	}
}

func (t *Trace) goroutine(row int32, ran int64) Goroutine {
	g := &t.x.gos
	out := Goroutine{ID: g.id(row), Name: t.x.syms.String(g.name(row, &t.x.syms)), BornNS: -1, LastNS: g.last(row) - t.start, Pieces: int(*g.pieces.at(row)), RunNS: ran}
	if born := g.born(row); born != 0 {
		out.BornNS = born - t.start
	}
	return out
}

// Named describes some goroutines, in the same order.
func (t *Trace) Named(ids []uint64) []Goroutine {
	out := make([]Goroutine, 0, len(ids))
	for _, id := range ids {
		if row, ok := t.x.gos.rowsOf.get(id); ok {
			out = append(out, t.goroutine(row, 0))
		} else {
			out = append(out, Goroutine{ID: id, BornNS: -1})
		}
	}
	return out
}

// ran returns, by row, for how long goroutines ran in a stretch of time. Of the
// whole trace that was noted while it was indexed; of another one that is too
// long to be looked at as a whole, it is what ran in its first generations.
func (t *Trace) ran(ctx context.Context, from, to int64) (func(row int32) int64, error) {
	if from <= 0 && to >= t.x.sp.End-t.start {
		return t.x.gos.ran.get, nil
	}
	leave, err := t.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	first, last := t.span(from+t.start, to+t.start)
	win, err := t.window(ctx, first, min(last, first+maxWindow-1))
	if err != nil {
		return nil, err
	}
	out := make([]int64, t.x.gos.rows())
	win.EachRun(from+t.start, to+t.start, func(r timeline.Run) {
		if row, ok := t.x.gos.rowsOf.get(r.G); ok {
			out[row] += r.To - r.From
		}
	})
	return func(row int32) int64 { return out[row] }, nil
}

// shows returns, a bit a goroutine, whether any stack of its own shows a
// function whose name holds a text.
func (t *Trace) shows(ctx context.Context, text string) (bitset, error) {
	return t.stacks.of(ctx, strings.ToLower(text), func() (bitset, error) {
		wanted, some := t.stacksWith(text)
		bits := newBitset(t.x.gos.rows())
		for i := 0; some && i < len(t.x.gens); i++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			g, err := t.gen(ctx, i)
			if err != nil {
				return nil, err
			}
			g.WithStack(wanted, func(id uint64) {
				if row, ok := t.x.gos.rowsOf.get(id); ok {
					bits.add(row)
				}
			})
		}
		return bits, nil
	})
}

// A bitset holds a bit a row.
type bitset []uint64

func newBitset(rows int) bitset { return make(bitset, rows/64+1) }

func (b bitset) add(row int32) { b[row>>6] |= 1 << (row & 63) }

func (b bitset) has(row int32) bool { return b[row>>6]&(1<<(row&63)) != 0 }
