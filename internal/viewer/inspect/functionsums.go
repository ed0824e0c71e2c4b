package inspect

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// StateTimes are the ns that goroutines spent in each state.
type StateTimes struct {
	RunningNS  int64 `json:"running_ns"`
	RunnableNS int64 `json:"runnable_ns"`
	WaitingNS  int64 `json:"waiting_ns"`
	SyscallNS  int64 `json:"syscall_ns"`
}

func (s *StateTimes) add(st timeline.State, ns int64) {
	*[...]*int64{&s.RunningNS, &s.RunnableNS, &s.WaitingNS, &s.SyscallNS}[st-timeline.Running] += ns
}

// A FunctionSum sums up all goroutines that started with one function.
type FunctionSum struct {
	Name       string `json:"name"`
	Goroutines int    `json:"goroutines"`
	StateTimes
	Waits []WaitSum `json:"waits"` // by decreasing time
}

// A WaitSum is the time of waits for one reason.
type WaitSum struct {
	Reason string `json:"reason"`
	NS     int64  `json:"ns"`
}

// eachPiece calls, for each piece of the goroutines in [from, to), cut to this interval, the function of a worker, with the piece's stack. If ids is
// nil, it visits all goroutines. newWorker returns such a function, which one goroutine at a time calls; newWorker itself is called for each
// generation and worker. Times are in ns from the trace's start. If sites is false, pieces have no site.
func (t *Trace) eachPiece(ctx context.Context, from, to int64, ids []uint64, newWorker func() func(id uint64, p Piece, stack tracefmt.StackID), sites bool) error {
	leave, err := t.acquireSlot(ctx)
	if err != nil {
		return err
	}
	defer leave()
	first, last := t.generationsIn(from+t.start, to+t.start)
	for i := first; i <= last; i++ {
		a, b := t.extent(i)
		a, b = max(a, from), min(b, to)
		if a >= b {
			continue
		}
		win, err := t.window(ctx, max(i-1, 0), min(i+1, len(t.index.gens)-1))
		if err != nil {
			return err
		}
		wanted := ids
		if ids == nil {
			g, err := t.generation(ctx, i)
			if err != nil {
				return err
			}
			g.Goroutines(func(id uint64) { wanted = append(wanted, id) })
		}
		const chunk = 256
		var next atomic.Int64
		var wg sync.WaitGroup
		for range min(cap(t.slots), len(wanted)/chunk+1) {
			f := newWorker()
			wg.Go(func() {
				var cache *siteCache
				if sites {
					cache = newSiteCache(t)
					defer cache.release()
				}
				var spans []timeline.Span
				for ctx.Err() == nil {
					k := int(next.Add(1)-1) * chunk
					if k >= len(wanted) {
						return
					}
					for _, id := range wanted[k:min(k+chunk, len(wanted))] {
						spans = win.Spans(id, a+t.start, b+t.start, spans[:0])
						for s := range spans {
							if p, ok := cache.pieceOf(&spans[s], a+t.start, b+t.start); ok {
								f(id, p, spans[s].Stack)
							}
						}
					}
				}
			})
		}
		wg.Wait()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// ByFunction sums up the goroutines in [from, to) by start function, ordered by decreasing time not spent waiting. Times are in ns from the trace's
// start; a to of 0 is the end. The result is shared and must not be changed.
func (t *Trace) ByFunction(ctx context.Context, from, to int64) ([]FunctionSum, error) {
	end := t.index.speller.End - t.start + 1
	if from = max(from, 0); to <= 0 || to > end {
		to = end
	}
	return t.functionSums.getOrMake(ctx, [2]int64{from, to}, func() ([]FunctionSum, error) { return t.byFunction(ctx, from, to) })
}

// byFunction computes the result of ByFunction for [from, to), in ns since the trace's start.
func (t *Trace) byFunction(ctx context.Context, from, to int64) ([]FunctionSum, error) {
	type sum struct {
		times StateTimes
		waits map[tracefmt.StringID]int64
	}
	var parts []map[tracefmt.StringID]*sum
	err := t.eachPiece(ctx, from, to, nil, func() func(id uint64, p Piece, stack tracefmt.StackID) {
		part := map[tracefmt.StringID]*sum{}
		parts = append(parts, part)
		// The pieces of a goroutine are consecutive.
		var last uint64
		var s *sum
		return func(id uint64, p Piece, _ tracefmt.StackID) {
			if s == nil || id != last {
				name := t.NameOf(id)
				if last, s = id, part[name]; s == nil {
					s = &sum{waits: map[tracefmt.StringID]int64{}}
					part[name] = s
				}
			}
			s.times.add(p.State, p.To-p.From)
			if p.State == timeline.Waiting {
				s.waits[p.Reason] += p.To - p.From
			}
		}
	}, false)
	if err != nil {
		return nil, err
	}
	// Group by text: two ids may have the same text.
	all, waits := map[string]*FunctionSum{}, map[string]map[string]int64{}
	sumOf := func(name tracefmt.StringID) *FunctionSum {
		text := t.String(name)
		if all[text] == nil {
			all[text], waits[text] = &FunctionSum{Name: text}, map[string]int64{}
		}
		return all[text]
	}
	for _, part := range parts {
		for name, s := range part {
			f := sumOf(name)
			f.RunningNS += s.times.RunningNS
			f.RunnableNS += s.times.RunnableNS
			f.WaitingNS += s.times.WaitingNS
			f.SyscallNS += s.times.SyscallNS
			for reason, ns := range s.waits {
				waits[f.Name][t.String(reason)] += ns
			}
		}
	}
	g := &t.index.goroutines
	for row := range int32(g.rows()) {
		if t.isKnownAlive(row, from, to) {
			sumOf(g.name(row, &t.index.syms)).Goroutines++
		}
	}
	out := make([]FunctionSum, 0, len(all))
	for name, f := range all {
		f.Waits = []WaitSum{}
		for reason, ns := range waits[name] {
			f.Waits = append(f.Waits, WaitSum{reason, ns})
		}
		slices.SortFunc(f.Waits, func(a, b WaitSum) int { return cmp.Or(cmp.Compare(b.NS, a.NS), cmp.Compare(a.Reason, b.Reason)) })
		out = append(out, *f)
	}
	busy := func(f *FunctionSum) int64 { return f.RunningNS + f.RunnableNS + f.SyscallNS }
	slices.SortFunc(out, func(a, b FunctionSum) int {
		return cmp.Or(cmp.Compare(busy(&b), busy(&a)), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}
