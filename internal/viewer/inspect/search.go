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
