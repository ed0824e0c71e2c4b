package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// matchingStrings returns for each string of the trace, by its id, whether it contains a text, ignoring case.
func (t *Trace) matchingStrings(text string) []bool {
	text = strings.ToLower(text)
	out := make([]bool, t.index.syms.Strings())
	for i := range out {
		out[i] = strings.Contains(strings.ToLower(t.index.syms.String(tracefmt.StringID(i))), text)
	}
	return out
}

// stacksShowing returns for each stack, by its id, whether it shows a function whose name contains a text. found reports whether one does.
func (t *Trace) stacksShowing(text string) (wanted []bool, found bool) {
	fns := t.matchingStrings(text)
	frames := make([]bool, t.index.syms.Frames())
	for i := range frames {
		frames[i] = fns[t.index.syms.Frame(tracefmt.FrameID(i)).Func]
	}
	wanted = make([]bool, t.index.syms.Stacks())
	for i := range wanted {
		for _, f := range t.index.syms.Stack(tracefmt.StackID(i)) {
			if frames[f] {
				wanted[i], found = true, true
				break
			}
		}
	}
	return wanted, found
}

// A Function is a function on a stack of the trace.
type Function struct {
	Name   string `json:"name"`
	Stacks int    `json:"stacks"` // number of distinct stacks with it
	// Starts is the number of goroutines that started with it.
	Starts int `json:"starts"`
}

// Functions returns the functions whose names contain a text, ignoring case, ordered by decreasing number of stacks, at most limit of them, and their
// total number.
func (t *Trace) Functions(text string, limit int) (list []Function, total int) {
	fns := t.matchingStrings(text)
	stacks := make(map[tracefmt.StringID]int)
	for i := range t.index.syms.Stacks() {
		frames := t.index.syms.Stack(tracefmt.StackID(i))
		for k, f := range frames {
			fn := t.index.syms.Frame(f).Func
			if fns[fn] && !slices.ContainsFunc(frames[:k], func(o tracefmt.FrameID) bool { return t.index.syms.Frame(o).Func == fn }) {
				stacks[fn]++
			}
		}
	}
	starts := make(map[tracefmt.StringID]int)
	g := &t.index.goroutines
	for row := range g.rows() {
		if fn := g.name(int32(row), &t.index.syms); fns[fn] && fn != 0 {
			starts[fn]++
			stacks[fn] += 0
		}
	}
	list = make([]Function, 0, len(stacks))
	for fn, n := range stacks {
		list = append(list, Function{t.index.syms.String(fn), n, starts[fn]})
	}
	slices.SortFunc(list, func(a, b Function) int { return cmp.Or(cmp.Compare(b.Stacks, a.Stacks), cmp.Compare(a.Name, b.Name)) })
	return list[:min(len(list), max(limit, 0))], len(list)
}

// requestsShowing returns the set of the rows of requests whose critical path shows a function whose name contains a text. It walks each request
// again.
func (t *Trace) requestsShowing(ctx context.Context, text string) (bitset, error) {
	return t.requestSearches.getOrMake(ctx, strings.ToLower(text), func() (bitset, error) {
		wanted, found := t.stacksShowing(text)
		c := &t.index.requests
		bits := newBitset(c.rows())
		if !found {
			return bits, nil
		}
		for lo := 0; lo < c.rows(); {
			hi := lo + 1
			for hi < c.rows() && c.gen(int32(hi)) == c.gen(int32(lo)) {
				hi++
			}
			if err := t.searchRequests(ctx, lo, hi, wanted, bits); err != nil {
				return nil, err
			}
			lo = hi
		}
		return bits, nil
	})
}

// searchRequests walks rows [lo, hi), which ended in one generation, and adds those whose critical path shows a wanted stack (wanted is by id) to
// bits.
func (t *Trace) searchRequests(ctx context.Context, lo, hi int, wanted []bool, bits bitset) error {
	c := &t.index.requests
	start := c.start(int32(lo))
	for i := lo; i < hi; i++ {
		start = min(start, c.start(int32(i)))
	}
	last := int(c.gen(int32(lo)))
	win, err := t.windowOf(ctx, start, last)
	if err != nil {
		return err
	}
	const chunk = 64 // rows; a multiple of 64, so that two workers never write the same word
	var next atomic.Int64
	next.Store(int64(lo / chunk))
	var wg sync.WaitGroup
	for range cap(t.slots) {
		wg.Go(func() {
			w := newPathSearcher(win, &t.index.syms, wanted, &t.index.walkOptions)
			for ctx.Err() == nil {
				k := int(next.Add(1)) - 1
				if k*chunk >= hi {
					return
				}
				for i := max(k*chunk, lo); i < min((k+1)*chunk, hi); i++ {
					row := int32(i)
					r := request.Request{Kind: c.kind(row), Start: max(c.start(row), win.Start()), End: c.start(row) + c.latency(row), G: c.goroutine(row)}
					if w.pathShowsWanted(&r) {
						bits.add(row)
					}
				}
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}

// goroutinesShowing returns the set of the rows of goroutines that have a stack, in their own events, with a function whose name contains a text.
func (t *Trace) goroutinesShowing(ctx context.Context, text string) (bitset, error) {
	return t.goroutineSearches.getOrMake(ctx, strings.ToLower(text), func() (bitset, error) {
		wanted, found := t.stacksShowing(text)
		bits := newBitset(t.index.goroutines.rows())
		for i := 0; found && i < len(t.index.gens); i++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			g, err := t.generation(ctx, i)
			if err != nil {
				return nil, err
			}
			for id := range g.WithStack(wanted) {
				if row, ok := t.index.goroutines.table.get(id); ok {
					bits.add(row)
				}
			}
		}
		return bits, nil
	})
}

// A bitset is a set of rows.
type bitset []uint64

func newBitset(rows int) bitset { return make(bitset, rows/64+1) }

func (b bitset) add(row int32) { b[row>>6] |= 1 << (row & 63) }

func (b bitset) contains(row int32) bool { return b[row>>6]&(1<<(row&63)) != 0 }
