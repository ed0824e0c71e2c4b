package inspect

import (
	"context"
	"fmt"
	"slices"

	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/detailed"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/report"
)

// Request walks request n (its row) again and returns it in full, like the slowest requests of a report: with the same id, segments, lanes and wakes.
// Long requests that were walked in pieces have no lanes. It waits for a slot for long queries.
func (t *Trace) Request(ctx context.Context, n int) (*report.Request, error) {
	c := &t.index.requests
	if n < 0 || n >= c.rows() {
		return nil, fmt.Errorf("there is no request %d: there are %d", n, c.rows())
	}
	leave, err := t.acquireSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	row := int32(n)
	start, end, last := c.start(row), c.start(row)+c.latency(row), int(c.gen(row))
	out := detailed.Request{Start: start, End: end, G: c.goroutine(row)}
	pieceEnds := append(slices.Clone(c.pieceEnds[row]), path.PieceEnd{Time: end, G: out.G})
	var sites *cause.Sites
	for i, piece := range pieceEnds {
		r := request.Request{Kind: c.kind(row), Start: start, End: piece.Time, G: piece.G}
		if len(pieceEnds) > 1 {
			r.Piece = request.MiddlePiece
		}
		gen := last
		if i+1 < len(pieceEnds) {
			// The piece was walked in the generation in which it was cut, or in the next one.
			_, gen = t.generationsIn(start, r.End)
			gen = min(gen, last)
		}
		win, err := t.windowOf(ctx, start, gen)
		if err != nil {
			return nil, err
		}
		stage := path.New(win, &t.index.syms, t.index.walkOptions)
		w := stage.WalkAgain(&r)
		out.Segments, out.Vias = append(out.Segments, w.Segments...), append(out.Vias, w.WaitChains()...)
		if r.Piece == request.WholeRequest {
			out.AddLanes(stage, w.Steps, nil)
		}
		sites, start = stage.Sites, piece.Time
	}
	sp := *t.index.speller
	sp.Sites = sites
	rep := out.Report(c.ids[c.group(row)], &sp)
	if len(pieceEnds) == 1 && slices.ContainsFunc(rep.Segments, func(s report.Segment) bool { return s.Cause == report.CauseQueue }) {
		if err := t.addPools(ctx, &rep, row, &sp); err != nil {
			return nil, err
		}
	}
	return &rep, nil
}

// maxPoolWalks bounds the requests that are walked to find who held the slots of a pool.
const maxPoolWalks = 2000

// addPools sets, in rep, which requests held the slots of the pools for which the request of row waited. It walks up to maxPoolWalks requests that
// overlap it and takes the holders from the ends of their waits.
func (t *Trace) addPools(ctx context.Context, rep *report.Request, row int32, sp *spell.Speller) error {
	c := &t.index.requests
	start, end := c.start(row), c.start(row)+c.latency(row)
	_, last := t.generationsIn(start, end+c.latency(row)) // those that it waited for released their slots to it, others may end later
	win, err := t.windowOf(ctx, start, max(last, int(c.gen(row))))
	if err != nil {
		return err
	}
	stage, walks := path.New(win, &t.index.syms, t.index.walkOptions), 0
	sum := queues.SumOfSlotHolders(stage, func(yield func(*path.WalkResult) bool) {
		for other := int32(0); int(other) < c.rows() && walks < maxPoolWalks && ctx.Err() == nil; other++ {
			if c.start(other) >= end || c.start(other)+c.latency(other) <= start || len(c.pieceEnds[other]) > 0 {
				continue
			}
			walks++
			r := request.Request{Kind: c.kind(other), Start: c.start(other), End: c.start(other) + c.latency(other), G: c.goroutine(other)}
			if !yield(stage.WalkAgain(&r)) {
				return
			}
		}
	})
	sum.AddPools(rep, c.ids[c.group(row)], sp)
	return ctx.Err()
}

// windowOf returns the window of explain when generation last was its last one, or the part of it that is needed
// for a walk that begins at from.
func (t *Trace) windowOf(ctx context.Context, from int64, last int) (*timeline.Window, error) {
	first, _ := t.generationsIn(from, from)
	return t.window(ctx, min(max(first, t.index.gens[last].firstInWindow), last), last)
}
