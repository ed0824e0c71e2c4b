package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/detailed"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Kept is what Explain leaves, if Options.Keep asks for it, for reading the
// same trace again: then every request can be given in full, although nothing
// but sums was kept of them.
type Kept struct {
	opts   Options
	walk   path.Options
	plan   *answers.Plan
	groups map[string]*report.Group // by path.GroupKey.Text
	count  int                      // requests in them
}

func (k *Kept) fill(e *engine, rep *report.Report, sp *spell.Speller) {
	k.opts, k.walk = e.opts, path.Options{Freezes: e.freezes, Settlement: sp.Settled}
	if e.known != nil {
		k.plan = &e.known.plan
	}
	byID := make(map[string]*report.Group)
	k.count = 0
	for i := range rep.Groups {
		byID[rep.Groups[i].ID] = &rep.Groups[i]
		k.count += rep.Groups[i].Count
	}
	k.groups = make(map[string]*report.Group)
	ids, known := e.groups.GroupIDs(sp, e.selected), e.pass.Stages[0].IDs
	for from, to := range e.became {
		if g := byID[ids[to]]; g != nil {
			k.groups[known.Group(path.GroupID(from)).Text(sp.Syms)] = g
		}
	}
}

// Replay reads the trace that was explained again and gives it to a sink. It
// is the same run again, so requests, groups and causes are the report's. It
// ends where nothing more can come that lies before Options.To.
func (k *Kept) Replay(ctx context.Context, r io.Reader, sink export.Sink) error {
	if k.groups == nil {
		return errors.New("reading a trace again: it was not explained before")
	}
	rd, err := newReader(r, k.opts)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	opts := k.opts.pass(k.walk)
	opts.InOrder, opts.Plan = true, k.plan
	p := &replay{kept: k, sink: sink, stop: stop, left: k.count, pass: pass.New(opts)}
	p.pass.Sums, p.pass.Listeners = []pass.Sum{p}, []pass.Listener{p}
	cut := p.pass.Run(ctx, rd)
	switch {
	case p.err != nil:
		return p.err
	case p.enough:
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", k.opts.name(), context.Cause(ctx))
	case p.pass.Generations == 0:
		return fmt.Errorf("%s: %w: %w", k.opts.name(), ErrNothing, cut)
	}
	return sink.Close(p.pass.End - p.pass.Start)
}

// A replay gives requests to a sink, one after the other. It implements
// pass.Sum, as the only part of itself, and pass.Listener, with all that these may ask for.
type replay struct {
	kept   *Kept
	sink   export.Sink
	stop   context.CancelCauseFunc
	pass   *pass.Pass
	stage  *path.Stage
	groups []*report.Group // by path.GroupID
	sp     spell.Speller
	err    error
	left   int // requests of the report that were not given yet
	// enough says that the sink has all that it wants.
	enough  bool
	dropped []*timeline.Gen // that the sink may hold on to
}

// NewAdder implements pass.Sum.
func (p *replay) NewAdder(stage *path.Stage) path.Adder {
	p.stage = stage
	return p
}

// BeginGeneration implements pass.Beginner.
func (p *replay) BeginGeneration([]request.Request) {
	p.sp = spell.Speller{Syms: &p.pass.Symbols, Sites: p.stage.Sites, Start: p.pass.Start, Paths: p.kept.opts.PathMap, Modules: p.kept.opts.Modules, Settled: p.kept.walk.Settlement}
}

// Add implements path.Adder.
func (p *replay) Add(w *path.WalkResult) {
	if p.err != nil || p.enough || !w.IsComplete() {
		return
	}
	group := p.group(w.Group)
	if group == nil {
		return
	}
	p.left--
	var causes [cause.Limit]int64
	for _, s := range w.CauseTimes {
		causes[p.stage.IDs.Cause(s.Cause).Code] += s.NS
	}
	start := w.Start - p.pass.Start
	p.fail(p.sink.Request(&export.Request{
		Group: group, ID: spell.RequestID(group.ID, start, w.Req.G), StartNS: start, LatencyNS: w.Latency(), Goroutine: w.Req.G, CauseNS: causes[:],
		Full: func() report.Request { return detailed.NewRequest(w).Report(group.ID, &p.sp) },
	}))
}

// group returns the group of the report that a group here is a part of, nil if
// the report does not have it.
func (p *replay) group(id path.GroupID) *report.Group {
	for int(id) >= len(p.groups) {
		key := p.stage.IDs.Group(path.GroupID(len(p.groups)))
		p.groups = append(p.groups, p.kept.groups[key.Text(p.stage.Syms)])
	}
	return p.groups[id]
}

func (p *replay) fail(err error) {
	if err != nil && p.err == nil {
		p.err = err
		p.stop(err)
	}
}

// AddGeneration implements pass.Listener.
func (p *replay) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, gap bool) {
	if p.err == nil && !p.enough {
		p.fail(p.sink.Generation(g, syms, !gap))
	}
}

// errEnough ends a second reading that need not go on.
var errEnough = errors.New("all that is wanted was read")

// FinishGeneration implements pass.Waiter. It ends the reading when all that lies before
// Options.To was given. That is not yet so when a generation begins after it: a
// request may be known for one only later, so they are counted.
func (p *replay) FinishGeneration() {
	if p.kept.opts.To <= 0 || p.left > 0 || p.err != nil || p.enough {
		return
	}
	if s, ok := p.sink.(interface{ Enough() bool }); !ok || s.Enough() {
		p.enough = true
		p.stop(errEnough)
	}
}

// KeepDropped implements pass.Keeper. It keeps a generation as long as the sink may
// need it.
func (p *replay) KeepDropped(g *timeline.Gen, _ *timeline.Carry) bool {
	p.dropped = append(p.dropped, g)
	if len(p.dropped) > export.KeepGenerations {
		p.pass.Decoder.Recycle(p.dropped[0])
		p.dropped = slices.Delete(p.dropped, 0, 1)
	}
	return true
}
