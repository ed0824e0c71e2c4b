// Package explain is the engine: it reads a trace and returns the report. The input is a trace and, optionally, host
// samples, an allocation profile and a recording of a peer process. Package whylate is the public interface; commands
// that need more than a report use this package.
//
// One reading of a trace is a pass (package pass). It decodes generations into timelines, finds requests, walks their
// critical paths, and adds the results to sums: groups, slowest requests, queues, peers, moments, stops and samples for
// predictions. engine.report then merges the sums and fills the report in a fixed order: groups, process, host,
// findings, verdicts. Each later part reads the earlier ones.
//
// A trace is read twice in two cases. If requests wait over the network for other requests of the same process, the
// first reading finds the groups that do, and the second one follows the paths through them. If the options select a
// part of the trace, the first reading finds those groups in the whole trace.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/allocs"
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/detailed"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/groups"
	"github.com/whylate/whylate/internal/explain/hostjoin"
	"github.com/whylate/whylate/internal/explain/moments"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/peers"
	"github.com/whylate/whylate/internal/explain/predict"
	"github.com/whylate/whylate/internal/explain/process"
	"github.com/whylate/whylate/internal/explain/queues"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/stops"
	"github.com/whylate/whylate/internal/explain/validate"
	"github.com/whylate/whylate/internal/explain/verdict"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Options configure Explain. The zero value is ready for use.
type Options struct {
	// Name is the report's name of its input: a file name, or a URL without credentials.
	Name string
	// Request, if not nil, selects functions by name. Their calls are the requests, and no others are searched for.
	Request *regexp.Regexp
	// Group, if not nil, selects the groups that are reported, by name.
	Group *regexp.Regexp
	// IgnoreMarks finds requests as if the service had no marks of service/mark.
	IgnoreMarks bool
	// TraceID, if not zero, limits the report to requests with this trace id of a tracing system. The trace must hold
	// the id: in a mark of service/mark or in a tracer's user log. SpanID, if not zero, limits it to requests with this
	// span id, their own or the caller's.
	TraceID [16]byte
	SpanID  [8]byte
	// Slowest is how many of the slowest requests of a group are reported in full. 0 means 3, negative none.
	Slowest int
	// From and To limit the report to requests that end in this part of the trace, as time since its start. A To of 0
	// means the end.
	From, To time.Duration
	// PathMap replaces prefixes of file names. The first that matches applies.
	PathMap []spell.PathRewrite
	// Thresholds decide the severity of findings; nil means the defaults.
	Thresholds []finding.Threshold
	// Modules decides which code belongs to the service and which to its dependencies; nil means by file names alone.
	Modules *modules.Set
	// MaxMemory bounds the memory for the largest generation, in bytes; 0 means 1 GiB. A larger generation is left out,
	// with a warning.
	MaxMemory int64
	// Reopen returns a new reader of the same trace, for the second reading. If it is nil, the trace must be seekable,
	// or it is buffered in memory up to maxBuffered while it is read.
	Reopen func() (io.ReadCloser, error)
	// Workers is the number of goroutines that decode and walk; 0 means GOMAXPROCS. The report does not depend on it.
	Workers int
	// Host reads the host samples of a recording ("host.jsonl" of a x.whylate file), Allocs an allocation profile of
	// the same time (gzipped pprof). nil means none. An error in them becomes a warning.
	Host, Allocs io.Reader
	// WhatIf are changes whose combined gain is predicted.
	WhatIf []predict.Change
	// Goals are limits of latencies. Changes that reach them are searched for.
	Goals []Goal
	// ServedRecording, if not nil, is filled with the requests that the process served. PeerRecording, if not nil, is
	// such a recording of another process for which requests may wait.
	ServedRecording, PeerRecording *peers.Recording
	// Exact walks every request, however many there are. Replayer and Index imply it.
	Exact bool
	// Replayer, if not nil, is filled so that the trace can be replayed.
	Replayer *Replayer
	// Progress, if not nil, is called repeatedly with the bytes of input consumed, from the calling goroutine.
	Progress func(bytes int64)
	// Index, if not nil, is filled for later questions about this trace.
	Index Index
	// Validate, if not nil, checks the pass and the report. It must be new.
	Validate *validate.Checks

	isRereadForced bool        // for tests of wrong guesses: see engine.guessReread
	hostSamples    hostSamples // read from Host
}

// An Index is filled while the trace is explained, in the same pass. Package inspect has one.
type Index interface {
	pass.Sum
	pass.Listener
	// Reset makes the Index empty, because the trace is read again.
	Reset()
	// Finish ends the last pass. It must not keep a reference to the pass. translations translate each worker's groups to
	// those of the report, whose ids are groups; freezes were used for walking the requests.
	Finish(p *pass.Pass, translations []path.Translation, groups map[path.GroupID]string, freezes *freeze.Detector, sp *spell.Speller)
}

// ErrNothing is returned, wrapped, if not one whole generation of a trace could be read.
var ErrNothing = errors.New("nothing in it can be analysed")

// exactRequests is how many requests are all walked. Of those after them that are not slow, only a sample is.
const exactRequests = 5_000

// memoryPerTraceByte is the memory for a generation per byte of it: records of 8 bytes for events of 5.2 bytes,
// indexes, and the bytes themselves (see lab/bench/README.md).
const memoryPerTraceByte = 8

// Explain reads a trace to its end and explains the latency of its requests.
//
// If the trace is truncated or damaged, its whole generations are reported, with a warning, and marked as truncated.
// The error wraps ErrNothing if there are none. If ctx ends, the report on what was read until then is returned
// together with ctx's error.
//
// Explain reads ahead in another goroutine. It does not wait for a Read that has not returned.
func Explain(ctx context.Context, trace io.Reader, opts Options) (*report.Report, error) {
	shownSlowest := opts.Slowest
	if shownSlowest == 0 {
		shownSlowest = minSlowest
	}
	opts.Slowest = max(shownSlowest, minSlowest)
	if opts.Modules == nil {
		opts.Modules = modules.New(modules.Options{})
	}
	reopen, canReopen := opts.Reopen, true
	if reopen == nil {
		trace, reopen, canReopen = reopenable(trace)
	}
	opts.hostSamples.load(opts.Host)
	var selfWaits *selfWaits
	selectsPart := canReopen && opts.selectsPart()
	if selectsPart {
		// Which groups wait for which is a property of the whole trace.
		whole, _, err := readTrace(ctx, trace, opts.wholeTrace(), nil, rereadAlways)
		if err != nil {
			return nil, err
		}
		selfWaits = whole.findSelfWaits()
		next, err := reopen()
		if err != nil {
			return nil, fmt.Errorf("%s: reading it again: %w", opts.name(), err)
		}
		defer next.Close()
		trace = next
	}
	reread := rereadNever
	if canReopen && !selectsPart && opts.Index == nil && opts.Validate == nil && opts.Replayer == nil {
		reread = rereadMaybe
		if opts.Reopen != nil {
			// The second reading adds what the first leaves out, so the trace is opened for it first.
			if next, err := reopen(); err != nil {
				reread = rereadNever
			} else {
				defer next.Close()
				reopen = func() (io.ReadCloser, error) { return next, nil }
			}
		}
	}
	engine, damage, err := readTrace(ctx, trace, opts, selfWaits, reread)
	if err != nil {
		return nil, err
	}
	selfWaits = engine.findSelfWaits()
	if (selfWaits != nil || engine.pass.HasDroppedOptionalSums()) && !selectsPart && ctx.Err() == nil {
		// The first reading has found that requests wait for others of this process, or that the guess was wrong.
		if reopened, err := reopen(); err != nil && engine.pass.HasDroppedOptionalSums() {
			return nil, fmt.Errorf("%s: reading it again: %w", opts.name(), err)
		} else if err != nil {
			engine.rereadErr = err
		} else {
			opts.resetOutputs()
			engine, damage, err = readTrace(ctx, reopened, opts, selfWaits, rereadNever)
			reopened.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	rep, err := engine.finish(ctx, damage)
	if rep != nil {
		for i := range rep.Groups {
			g := &rep.Groups[i]
			if g.Slowest = g.Slowest[:min(len(g.Slowest), max(shownSlowest, 0))]; shownSlowest < 0 {
				g.Typical = nil
			}
		}
	}
	return rep, err
}

// minSlowest is how many of a group's slowest requests are collected at least, because rules read them: findings must
// not depend on how many are shown. It is also the default number that is shown.
const minSlowest = 3

// readTrace reads a trace to its end. selfWaits lets paths continue in other requests of the process; it is nil in the
// first reading. reread says whether the trace will be read again, so that this reading can leave sums out. damage is
// why the reading ended before the end of the trace, if it did.
func readTrace(
	ctx context.Context, trace io.Reader, opts Options, selfWaits *selfWaits, reread rereading,
) (newEngine *engine, damage, err error) {
	newEngine = &engine{
		opts: opts, freezes: new(freeze.Detector), groups: groups.New(), slowest: detailed.New(opts.Slowest),
		samples: predict.NewSamples(), queues: queues.New(), peers: peers.New(), moments: moments.New(), process: process.NewCollector(), selfWaits: selfWaits,
	}
	newEngine.stops = stops.New(newEngine.freezes)
	reader, err := newReader(trace, opts)
	if err != nil {
		return nil, nil, err
	}
	passOptions := opts.passOptions(path.Options{Freezes: newEngine.freezes})
	if selfWaits != nil {
		passOptions.Plan, passOptions.KeepAnswers = &selfWaits.plan, opts.Index != nil
	}
	if !opts.Exact && opts.Replayer == nil && opts.Index == nil {
		passOptions.ExactFirst = exactRequests
	}
	if reread == rereadMaybe {
		passOptions.OnRequestsAdded = newEngine.guessReread
	}
	tracePass := pass.New(passOptions)
	newEngine.process.SetWindow(&tracePass.Window)
	tracePass.Sums = []pass.Sum{newEngine.groups, newEngine.slowest, newEngine.peers, newEngine.stops}
	tracePass.OptionalSums = []pass.Sum{newEngine.samples, newEngine.queues, newEngine.moments}
	if reread == rereadAlways {
		tracePass.DropOptionalSums()
	}
	tracePass.Listeners = []pass.Listener{
		freezeListener{newEngine.freezes, &newEngine.threads, opts.hostSamples.samples}, &newEngine.hostLog, newEngine.process,
	}
	if opts.Index != nil {
		tracePass.Sums = append(tracePass.Sums, opts.Index)
		tracePass.Listeners = append(tracePass.Listeners, opts.Index)
	}
	if opts.Validate != nil {
		opts.Validate.Attach(tracePass)
	}
	newEngine.pass = tracePass
	damage = tracePass.Run(ctx, reader)
	if tracePass.Generations > 0 {
		newEngine.translations = path.MergeIDs(tracePass.Stages)
		newEngine.mergedGroups = newEngine.groups.Merge(newEngine.translations)
		newEngine.peers.Merge(newEngine.translations)
		if unsure, ok := hostjoin.PossibleSelfConnections(opts.hostSamples.samples, newEngine.hostWindow()); ok {
			newEngine.peers.RefuteBySockets(unsure)
		}
	}
	return newEngine, damage, nil
}

// newReader returns a reader that skips generations above the memory bound.
func newReader(r io.Reader, opts Options) (*tracefmt.Reader, error) {
	rd, err := tracefmt.NewReader(r, tracefmt.Options{MaxGeneration: int(opts.MaxMemory / memoryPerTraceByte)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.name(), err)
	}
	return rd, nil
}

// passOptions returns the options of a pass.
func (o *Options) passOptions(p path.Options) pass.Options {
	out := pass.Options{
		Workers: o.Workers, IgnoreMarks: o.IgnoreMarks, TraceID: o.TraceID, SpanID: o.SpanID, From: o.From, To: o.To,
		Progress: o.Progress, Modules: o.Modules, Path: p,
	}
	if o.Request != nil {
		out.MatchFunction = o.Request.MatchString
	}
	return out
}

func (o *Options) name() string {
	if o.Name == "" {
		return "trace"
	}
	return o.Name
}

// An engine builds one report.
type engine struct {
	selfPacedGroups map[string]bool    // groups of iterations that their loops begin after a pause, by id
	queuedShares    map[string]float64 // share of a group's iterations whose work was available at once, by id
	opts            Options
	pass            *pass.Pass
	groups          *groups.Sum
	slowest         *detailed.Sum
	samples         *predict.Samples
	queues          *queues.Sum
	peers           *peers.Sum
	moments         *moments.Sum
	process         *process.Collector
	stops           *stops.Sum
	threads         hostjoin.Threads
	freezes         *freeze.Detector // not embedded: the index refers to it and must not refer to the engine
	hostLog         hostLog
	model           *predict.Model
	selection       *workSelection
	rowGroups       []path.GroupID // groups of the report, in its order
	translations    []path.Translation
	mergedGroups    []path.GroupID // see groups.Sum.Merge
	selfWaits       *selfWaits     // nil in the first reading
	// walkCount is how many generations were walked while guessReread was active.
	walkCount int
	// rereadErr is why the trace could not be read again although paths continue in this process.
	rereadErr error
	// shownGroups selects the groups that are reported.
	shownGroups groups.Selection
}

// A freezeListener passes generations to a detector of freezes.
type freezeListener struct {
	*freeze.Detector
	threads *hostjoin.Threads
	samples *host.Samples // nil if there are none
}

// AddGeneration implements pass.Listener.
func (f freezeListener) AddGeneration(g *timeline.Gen, _ *tracefmt.Symbols, gap bool) {
	if gap {
		f.SkipGeneration()
	}
	if g.First {
		w := hostjoin.Window{Start: g.Base, Snapshot: g.Snapshot, SnapshotTime: g.SnapshotTime}
		f.KnownHolds = hostjoin.HeldIntervals(f.samples, w)
		*f.threads = hostjoin.NewThreads(f.samples, w)
	}
	f.threads.Add(g)
	f.Add(g)
}

// finish builds the report after the reading; damage is why the trace was not read to its end.
func (e *engine) finish(ctx context.Context, damage error) (*report.Report, error) {
	name := e.opts.name()
	if e.pass.Generations == 0 {
		if damage == nil {
			damage = &tracefmt.Error{Kind: tracefmt.Truncated, Text: "the trace holds no events"}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
		}
		return nil, fmt.Errorf("%s: %w: %w", name, ErrNothing, damage)
	}
	rep := e.report(damage)
	e.addGoals(rep)
	if err := e.addWhatIf(rep); err != nil {
		return rep, fmt.Errorf("%s: %w", name, err)
	}
	if ctx.Err() != nil {
		return rep, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return rep, nil
}

// sampling returns how many requests were walked, nil if all were.
func (e *engine) sampling() *report.Sampled {
	p := e.pass
	if p.NotWalked == 0 {
		return nil
	}
	return &report.Sampled{Walked: int(p.Requests - p.NotWalked), Requests: int(p.Requests)}
}

// report merges the sums and fills the report. The order matters: findings need groups, process and host, the model for
// predictions needs the facts about the process, and verdicts need the findings.
func (e *engine) report(damage error) *report.Report {
	tracePass := e.pass
	samples, sampleErr := e.loadHost()
	froze := e.freezes.Verdict()
	sp := &spell.Speller{
		Syms: &tracePass.Symbols, Sites: tracePass.Stages[0].Sites, Start: tracePass.Start, End: tracePass.End,
		Paths: e.opts.PathMap, Modules: e.opts.Modules,
		Settlement: cause.Settle(froze.IsFreeze),
	}
	e.slowest.Merge(e.translations)
	e.samples.Merge(e.translations)
	e.moments.Merge(e.translations)
	e.queues.Merge(e.translations)
	e.model = predict.NewModel(sp.Syms, sp.Settlement, tracePass.End-tracePass.Start, e.groups.SitesBelow)

	rep := &report.Report{
		Schema: report.Schema,
		Input: report.Input{
			Name: e.opts.Name, Bytes: tracePass.Reader.Unpacked(), Events: tracePass.Events, DurationNS: tracePass.End - tracePass.Start,
			Go: fmt.Sprintf("1.%d", tracePass.Reader.Minor()), GOMAXPROCS: e.process.Procs(), Truncated: damage != nil,
			Observer: e.groups.ObserverRequests(), Sampled: e.sampling(), Warnings: []report.Warning{},
		},
		Findings: []report.Finding{},
	}
	if s, snapshotTime := e.process.Clock(); s != nil {
		wall := time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).Add(-time.Duration(snapshotTime - tracePass.Start)).UTC()
		rep.Input.Start = &wall
	}
	e.selection = e.selectWork()
	e.shownGroups = groups.Selection{Name: e.opts.Group, Wanted: e.selection.isShown}
	rep.Input.LeftOut = e.selection.leftOut(sp)
	rep.Groups = e.reportGroups(sp)
	if e.selection.maxRole == request.MainLife && e.opts.Request == nil && e.opts.Group == nil {
		rep.Starts = e.startFunctions(sp)
	}
	stats := e.process.Stats(sp)
	rep.Runtime = e.process.Runtime(sp, &froze)
	for i, row := range e.rowGroups {
		rep.Moments = append(rep.Moments, e.moments.Find(row, &rep.Groups[i], tracePass.Stages[0].IDs, sp)...)
	}
	moments.AddEvents(rep.Moments, rep.Runtime.Series, stats.HerdWakeups, rep.Input.DurationNS)
	e.addWarnings(rep, sp, damage)
	e.addHost(rep, samples, sampleErr)
	silences, requests := e.stops.Silences()
	e.threads.SetOffCPU(rep, e.hostWindow())
	hostjoin.AddStops(samples, e.hostWindow(), rep, silences, requests)
	if rep.Host == nil && !rep.Runtime.Throttle.Verdict.HeldBack() {
		rep.Runtime.Sched.WithoutCPU = stats.WithoutCPU()
	}
	e.setFacts(rep, stats)
	e.warnPeer(rep)
	queueSum := e.queues
	in := &finding.Input{
		Report: e.selection.judgedReport(rep), Process: stats, Thresholds: e.opts.Thresholds, Allocs: e.readAllocs(rep, sp),
		// Queues and their servers.
		Services: queueSum.Services(sp, e.selection.isJudged), SlotWaits: queueSum.SlotWaits(sp), LongWaits: queueSum.LongWaits(sp),
		Streams: queueSum.Streams(sp), SiblingShares: queueSum.SiblingShares(sp),
		HolderLines: queueSum.HolderLines(sp), Hubs: queueSum.Hubs(sp), PeerCalls: e.peerCalls(rep, sp), FindHolder: e.lockHolder(sp),
		NoSelfConnections: e.peers.IsRefuted(),
		// Groups and start functions.
		OutlierMoments: e.outlierIntervals(rep), HerdOverlap: e.herdShares(rep, stats), BacklogShares: e.queuedShares,
		UnawaitedGroups: e.selfPacedGroups,
		WorksForServer:  e.selection.servesRequests(sp), AcceptsConnections: e.pass.Finder.IsUnknownServer(),
		Predict: e.model.WhatIf, Polls: e.model.PollOf,
	}
	rules := finding.All()
	rep.Findings = finding.Find(in, rules)
	rep.Judged = finding.Judge(in, rules, rep.Findings)
	if e.opts.Replayer != nil {
		e.opts.Replayer.fill(e, rep, sp)
	}
	if e.opts.Index != nil {
		e.opts.Index.Finish(tracePass, e.translations, e.groups.GroupIDs(sp, e.shownGroups), e.freezes, sp)
	}
	rep.Verdict = verdict.Verdicts(rep)
	e.addServedVerdicts(rep)
	if e.opts.Validate != nil {
		e.opts.Validate.Report(rep, e.opts.Group == nil)
	}
	return rep
}

// peerCalls returns, by group id, how often requests of the group called a peer from one line.
func (e *engine) peerCalls(rep *report.Report, sp *spell.Speller) map[string][]queues.PeerCalls {
	out := map[string][]queues.PeerCalls{}
	for i, row := range e.rowGroups {
		out[rep.Groups[i].ID] = e.queues.PeerCalls(sp, row)
	}
	return out
}

// outlierIntervals returns, by group id, in how many separate intervals the group's outliers were open.
func (e *engine) outlierIntervals(rep *report.Report) map[string]int {
	out := map[string]int{}
	for i, row := range e.rowGroups {
		if b := rep.Groups[i].Band(report.BandOutliers); b != nil {
			out[rep.Groups[i].ID] = e.moments.CountOpenIntervals(row, b.FromNS)
		}
	}
	return out
}

// herdShares returns a function that reports, for the herds of a start function: the share of a group's waits for a P
// that fall within them, and their share of the trace.
func (e *engine) herdShares(rep *report.Report, stats *process.Stats) func(group, start string) (waited, time float64) {
	return func(group, start string) (waited, time float64) {
		i := slices.IndexFunc(rep.Groups, func(g report.Group) bool { return g.ID == group })
		if i < 0 || i >= len(e.rowGroups) {
			return 0, 0
		}
		var ranges [][2]int64
		for _, f := range stats.HerdWakeups {
			if f.Start == start {
				ranges = append(ranges, [2]int64{e.pass.Start + f.FromNS, e.pass.Start + f.ToNS})
			}
		}
		return e.moments.WaitShare(e.rowGroups[i], ranges, rep.Input.DurationNS)
	}
}

// reportGroups returns the groups of the report and adds them to the model for predictions.
func (e *engine) reportGroups(sp *spell.Speller) []report.Group {
	out := []report.Group{}
	rows := e.groups.Rows(sp, e.shownGroups)
	isSelfStarted := func(r *groups.Row) bool { return e.selection.isSelfStarted(e.groups.GroupKey(r.PathGroup)) }
	groups.SortByRole(rows, time.Duration(e.pass.End-e.pass.Start), isSelfStarted)
	e.selfPacedGroups, e.queuedShares = map[string]bool{}, map[string]float64{}
	for i := range rows {
		key := e.groups.GroupKey(rows[i].PathGroup)
		if e.queuedShares[rows[i].ID] = e.selection.queuedShare(key); key.Kind == request.WebSocket {
			e.queuedShares[rows[i].ID] = e.pass.Finder.QueuedMessageShare(key.Name)
		}
		e.selfPacedGroups[rows[i].ID] = rows[i].Kind == report.KindLoop && e.selection.isTimerStarted(key)
	}
	e.fillServed(rows)
	for _, row := range rows {
		g := row.Group
		e.findPeer(&g, row.PathGroup, sp)
		e.slowest.FillGroup(&g, row.PathGroup, row.MedianNS, sp)
		if g.Count > 0 {
			e.model.AddGroup(g.ID, e.samples.SampleOf(row.PathGroup), g.LatencyNS)
		}
		out = append(out, g)
		e.rowGroups = append(e.rowGroups, row.PathGroup)
	}
	return out
}

// readAllocs reads the allocation profile. An error becomes a warning.
func (e *engine) readAllocs(rep *report.Report, sp *spell.Speller) *allocs.Profile {
	if e.opts.Allocs == nil {
		return nil
	}
	profile, err := allocs.Read(e.opts.Allocs, func(s report.Site) report.Site {
		s.File = sp.File(s.File)
		return s
	})
	if errors.Is(err, allocs.ErrEmpty) || errors.Is(err, allocs.ErrFewSamples) {
		return nil
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "allocs-profile", Text: err.Error()})
		return nil
	}
	return profile
}
