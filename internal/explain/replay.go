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
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A Replayer reads a trace again that Explain has read. Explain fills it if it is Options.Replayer. The report holds
// sums and few requests; the Replayer passes every request in full to a sink.
type Replayer struct {
	opts         Options
	walkOptions  path.Options
	plan         *answers.Plan
	groups       map[string]*report.Group   // by path.GroupKey.Text
	requestCount int                        // in the groups
	queues       map[string][]*report.Queue // see spell.Speller
}

// storeReading stores from the last reading of Explain what Replay needs to obtain the same requests, groups and causes.
func (k *Replayer) storeReading(r *reading, rep *report.Report, shown groups.Selection, sp *spell.Speller) {
	k.queues = sp.Queues
	k.opts, k.walkOptions = r.opts, path.Options{Freezes: r.freezes, Settlement: sp.Settlement}
	if r.selfWaits != nil {
		k.plan = &r.selfWaits.plan
	}
	byID := make(map[string]*report.Group)
	k.requestCount = 0
	for i := range rep.Groups {
		byID[rep.Groups[i].ID] = &rep.Groups[i]
		k.requestCount += rep.Groups[i].Count
	}
	k.groups = make(map[string]*report.Group)
	ids, groupIDs := r.groups.GroupIDs(sp, shown), r.pass.Stages[0].IDs
	for from, to := range r.mergedGroups {
		if g := byID[ids[to]]; g != nil {
			k.groups[groupIDs.Group(path.GroupID(from)).Text(sp.Syms)] = g
		}
	}
}

// Replay reads the trace again and passes its generations and requests to a sink. The pass has the same options, so requests,
// groups and causes are those of the report. It ends early if no request before Options.To can follow. It returns the first
// error of the sink, and reading errors only if nothing could be read.
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
	walkOptions := k.walkOptions
	if len(k.opts.kernelData) > 0 {
		if walkOptions.Threads, err = threadstate.New(k.opts.kernelData); err == nil {
			walkOptions.Threads.KeepAll()
		}
	}
	if s, ok := sink.(export.ThreadSink); ok && walkOptions.Threads != nil {
		s.SetThreads(walkOptions.Threads)
	}
	opts := k.opts.passOptions(walkOptions)
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

// A replayRun passes requests to a sink. It implements pass.Sum, with itself as the only adder, and pass.Listener with
// its optional interfaces.
type replayRun struct {
	replayer  *Replayer
	sink      export.Sink
	cancel    context.CancelCauseFunc
	pass      *pass.Pass
	stage     *path.Stage
	groups    []*report.Group // by path.GroupID
	speller   spell.Speller
	err       error
	remaining int // requests of the report that were not passed yet
	// isDone says that the sink needs no more.
	isDone   bool
	retained []*timeline.Gen // generations that the sink may refer to
}

// NewAdder implements pass.Sum.
func (p *replayRun) NewAdder(stage *path.Stage) path.Adder {
	p.stage = stage
	return p
}

// BeginGeneration implements pass.GenerationBeginner: it makes the speller for the symbols known so far.
func (p *replayRun) BeginGeneration(request.Batch) {
	opts := &p.replayer.opts
	p.speller = spell.Speller{
		Syms: &p.pass.Symbols, Sites: p.stage.Sites, Start: p.pass.Start, Paths: opts.PathMap, Modules: opts.Modules,
		Settlement: p.replayer.walkOptions.Settlement, Queues: p.replayer.queues,
	}
}

// Add implements path.Adder: it passes a complete request of a reported group to the sink.
func (p *replayRun) Add(walked *path.WalkResult) {
	if p.err != nil || p.isDone || !walked.IsComplete() {
		return
	}
	group := p.reportGroup(walked.Group)
	if group == nil {
		return
	}
	p.remaining--
	causes := p.causeTimes(walked, group.ID)
	start := walked.Start - p.pass.Start
	p.setErr(p.sink.Request(&export.Request{
		Group: group, ID: spell.RequestID(group.ID, start, walked.Req.G), StartNS: start, LatencyNS: walked.Latency(),
		Goroutine: walked.Req.G, CauseNS: causes[:],
		Full: func() report.Request { return detailed.NewRequest(walked).Report(group.ID, &p.speller) },
	}))
}

// causeTimes returns the ns of a request by cause. Time in a queue has the cause queue, except for the request's own service
// time.
func (p *replayRun) causeTimes(walked *path.WalkResult, group string) (causes [cause.Limit]int64) {
	type queuedTime struct {
		queue *report.Queue
		code  cause.Code
		ns    int64
	}
	var queued []queuedTime
	sums := map[*report.Queue]int64{}
	for _, s := range walked.CauseTimes {
		key := p.stage.IDs.Cause(s.Cause)
		if len(p.speller.Queues[group]) > 0 {
			if q, _ := p.speller.QueueWait(group, p.speller.WithTimedWait(group, p.stage.IDs.Chain(key.Chain), key.Code, key.Site, key.Call)); q != nil {
				queued, sums[q] = append(queued, queuedTime{q, key.Code, s.NS}), sums[q]+s.NS
				continue
			}
		}
		causes[key.Code] += s.NS
	}
	for _, t := range queued {
		own := spell.OwnPart(t.ns, t.queue.OwnNS, 1, sums[t.queue])
		causes[t.code] += own
		causes[cause.Queue] += t.ns - own
	}
	return causes
}

// reportGroup returns the report's group that contains a group of this run, nil if the report does not show it.
func (p *replayRun) reportGroup(id path.GroupID) *report.Group {
	for int(id) >= len(p.groups) {
		key := p.stage.IDs.Group(path.GroupID(len(p.groups)))
		p.groups = append(p.groups, p.replayer.groups[key.Text(p.stage.Syms)])
	}
	return p.groups[id]
}

// setErr stores the sink's first error and ends the pass.
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

// errEnough ends a reading early.
var errEnough = errors.New("all that is wanted was read")

// FinishGeneration implements pass.GenerationFinisher. It ends the reading when all requests of the report were passed, because
// their number is known; the time of a generation does not show that, as a request may be found later.
func (p *replayRun) FinishGeneration() {
	if p.replayer.opts.To <= 0 || p.remaining > 0 || p.err != nil || p.isDone {
		return
	}
	if s, ok := p.sink.(export.BoundedSink); !ok || s.IsComplete() {
		p.isDone = true
		p.cancel(errEnough)
	}
}

// KeepDropped implements pass.GenerationKeeper. It keeps the last export.KeepGenerations generations that the pass drops,
// because the sink may refer to them, and returns true: it recycles g itself, later.
func (p *replayRun) KeepDropped(g *timeline.Gen, _ *timeline.Carry) bool {
	p.retained = append(p.retained, g)
	if len(p.retained) > export.KeepGenerations {
		p.pass.Decoder.Recycle(p.retained[0])
		p.retained = slices.Delete(p.retained, 0, 1)
	}
	return true
}
