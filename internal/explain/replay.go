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

// Replayer is what Explain leaves, if Options.Keep asks for it, for reading the
// same trace again: then every request can be given in full, although nothing
// but sums was kept of them.
type Replayer struct {
	opts         Options
	walkOptions  path.Options
	plan         *answers.Plan
	groups       map[string]*report.Group // by path.GroupKey.Text
	requestCount int                      // requests in them
}

func (k *Replayer) fill(engine *engine, rep *report.Report, sp *spell.Speller) {
	k.opts, k.walkOptions = engine.opts, path.Options{Freezes: engine.freezes, Settlement: sp.Settlement}
	if engine.selfWaits != nil {
		k.plan = &engine.selfWaits.plan
	}
	byID := make(map[string]*report.Group)
	k.requestCount = 0
	for i := range rep.Groups {
		byID[rep.Groups[i].ID] = &rep.Groups[i]
		k.requestCount += rep.Groups[i].Count
	}
	k.groups = make(map[string]*report.Group)
	ids, groupIDs := engine.groups.GroupIDs(sp, engine.shownGroups), engine.pass.Stages[0].IDs
	for from, to := range engine.mergedGroups {
		if g := byID[ids[to]]; g != nil {
			k.groups[groupIDs.Group(path.GroupID(from)).Text(sp.Syms)] = g
		}
	}
}

// Replay reads the trace that was explained again and gives it to a sink. It
// is the same run again, so requests, groups and causes are the report's. It
// ends where nothing more can come that lies before Options.To.
func (k *Replayer) Replay(ctx context.Context, trace io.Reader, sink export.Sink) error {
	if k.groups == nil {
		return errors.New("reading a trace again: it was not explained before")
	}
	reader, err := newReader(trace, k.opts)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	opts := k.opts.passOptions(k.walkOptions)
	opts.InOrder, opts.Plan = true, k.plan
	run := &replayRun{replayer: k, sink: sink, cancel: stop, remaining: k.requestCount, pass: pass.New(opts)}
	run.pass.Sums, run.pass.Listeners = []pass.Sum{run}, []pass.Listener{run}
	damage := run.pass.Run(ctx, reader)
	switch {
	case run.err != nil:
		return run.err
	case run.isDone:
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", k.opts.name(), context.Cause(ctx))
	case run.pass.Generations == 0:
		return fmt.Errorf("%s: %w: %w", k.opts.name(), ErrNothing, damage)
	}
	return sink.Close(run.pass.End - run.pass.Start)
}

// A replay gives requests to a sink, one after the other. It implements
// pass.Sum, as the only part of itself, and pass.Listener, with all that these may ask for.
type replayRun struct {
	replayer  *Replayer
	sink      export.Sink
	cancel    context.CancelCauseFunc
	pass      *pass.Pass
	stage     *path.Stage
	groups    []*report.Group // by path.GroupID
	speller   spell.Speller
	err       error
	remaining int // requests of the report that were not given yet
	// isDone says that the sink has all that it wants.
	isDone   bool
	retained []*timeline.Gen // that the sink may hold on to
}

// NewAdder implements pass.Sum.
func (p *replayRun) NewAdder(stage *path.Stage) path.Adder {
	p.stage = stage
	return p
}

// BeginGeneration implements pass.Beginner.
func (p *replayRun) BeginGeneration([]request.Request) {
	p.speller = spell.Speller{Syms: &p.pass.Symbols, Sites: p.stage.Sites, Start: p.pass.Start, Paths: p.replayer.opts.PathMap, Modules: p.replayer.opts.Modules, Settlement: p.replayer.walkOptions.Settlement}
}

// Add implements path.Adder.
func (p *replayRun) Add(walked *path.WalkResult) {
	if p.err != nil || p.isDone || !walked.IsComplete() {
		return
	}
	group := p.reportGroup(walked.Group)
	if group == nil {
		return
	}
	p.remaining--
	var causes [cause.Limit]int64
	for _, s := range walked.CauseTimes {
		causes[p.stage.IDs.Cause(s.Cause).Code] += s.NS
	}
	start := walked.Start - p.pass.Start
	p.setErr(p.sink.Request(&export.Request{
		Group: group, ID: spell.RequestID(group.ID, start, walked.Req.G), StartNS: start, LatencyNS: walked.Latency(), Goroutine: walked.Req.G, CauseNS: causes[:],
		Full: func() report.Request { return detailed.NewRequest(walked).Report(group.ID, &p.speller) },
	}))
}

// reportGroup returns the group of the report that a group here is a part of, nil if
// the report does not have it.
func (p *replayRun) reportGroup(id path.GroupID) *report.Group {
	for int(id) >= len(p.groups) {
		key := p.stage.IDs.Group(path.GroupID(len(p.groups)))
		p.groups = append(p.groups, p.replayer.groups[key.Text(p.stage.Syms)])
	}
	return p.groups[id]
}

func (p *replayRun) setErr(err error) {
	if err != nil && p.err == nil {
		p.err = err
		p.cancel(err)
	}
}

// AddGeneration implements pass.Listener.
func (p *replayRun) AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, gap bool) {
	if p.err == nil && !p.isDone {
		p.setErr(p.sink.Generation(g, syms, !gap))
	}
}

// errEnough ends a second reading that need not go on.
var errEnough = errors.New("all that is wanted was read")

// FinishGeneration implements pass.Waiter. It ends the reading when all that lies before
// Options.To was given. That is not yet so when a generation begins after it: a
// request may be known for one only later, so they are counted.
func (p *replayRun) FinishGeneration() {
	if p.replayer.opts.To <= 0 || p.remaining > 0 || p.err != nil || p.isDone {
		return
	}
	if s, ok := p.sink.(interface{ Enough() bool }); !ok || s.Enough() {
		p.isDone = true
		p.cancel(errEnough)
	}
}

// KeepDropped implements pass.Keeper. It keeps a generation as long as the sink may
// need it.
func (p *replayRun) KeepDropped(g *timeline.Gen, _ *timeline.Carry) bool {
	p.retained = append(p.retained, g)
	if len(p.retained) > export.KeepGenerations {
		p.pass.Decoder.Recycle(p.retained[0])
		p.retained = slices.Delete(p.retained, 0, 1)
	}
	return true
}
