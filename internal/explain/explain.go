// Package explain runs the engine: it reads a trace, hands its requests from
// one stage to the next, and makes the report. Package whylate is its public
// face; verbs of the command line that need more than a report use it directly.
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
	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
)

// Options configure Explain. The zero value is ready for use.
type Options struct {
	// Name is what the report calls its input: a file name, or a URL without
	// credentials.
	Name string
	// Request, if not nil, selects functions by name: requests are their calls,
	// instead of what would be found otherwise.
	Request *regexp.Regexp
	// Group, if not nil, selects the groups that are reported, by name.
	Group *regexp.Regexp
	// IgnoreMarks leaves the marks of service/mark aside: requests are found as if
	// the service had none.
	IgnoreMarks bool
	// TraceID, if not zero, limits the report to requests of the trace with this
	// id in a tracing system. Only requests whose id the trace holds can be found
	// so: those of service/mark, and those about which a tracer wrote user logs.
	// SpanID selects them by a span: their own, or the caller's.
	TraceID [16]byte
	SpanID  [8]byte
	// Slowest is how many of the slowest requests of a group are reported in
	// full; 0 means 3, negative none.
	Slowest int
	// From and To limit the report to requests that end in this part of the
	// trace, counted from its start; a To of 0 means the end.
	From, To time.Duration
	// PathMap rewrites the beginnings of file names; the first that fits counts.
	PathMap []spell.PathRewrite
	// Thresholds are those of findings' severity; nil: the usual ones.
	Thresholds []finding.Threshold
	// Modules tells the service's own code from that of its dependencies; nil
	// means by names of files alone.
	Modules *modules.Set
	// MaxMemory bounds the memory for the largest generation, in bytes; 0
	// means 1 GiB. A generation that needs more is left out, with a warning.
	MaxMemory int64
	// Reopen returns the trace again, from its beginning: it is read a second
	// time where requests wait for others of the same process. nil is for a trace
	// that can be sought in, or of which so much may be held in memory as it is
	// read (see keepMost).
	Reopen func() (io.ReadCloser, error)
	// Workers is the number of goroutines that decode and walk; 0 means
	// GOMAXPROCS. The report does not depend on it.
	Workers int
	// Host holds the host samples of a recording ("host.jsonl" of a x.whylate
	// file), Allocs a profile of the allocations of the same time (gzipped
	// pprof); nil if there is none. An error in them becomes a warning.
	Host, Allocs io.Reader
	// WhatIf are changes whose gain is predicted, all of them together.
	WhatIf []predict.Change
	// Goals are what latencies are to keep; changes that reach them are searched for.
	Goals []Goal
	// ServedRecording, if not nil, is filled with what the process served; Peer, if not
	// nil, is such a recording of a process that requests may wait for.
	ServedRecording, PeerRecording *peers.Recording
	// Exact has every request walked, however many there are. Keep and Index imply
	// it.
	Exact bool
	// Replayer, if not nil, is filled so that the trace can be replayed.
	Replayer *Replayer
	// Progress, if not nil, is called now and then, from the calling
	// goroutine, with the bytes of input consumed.
	Progress func(bytes int64)
	// Index, if not nil, is filled for later questions about this trace, those
	// of "whylate view".
	Index *inspect.Index
	// Validate, if not nil, checks the pass and the report. It must be new.
	Validate *validate.Checks

	isRereadForced bool        // see guess; for tests of wrong guesses
	hostSamples    hostSamples // what Host holds, once that was read
}

// ErrNothing is returned, wrapped, when not one whole generation of a trace
// could be read: there is nothing to report.
var ErrNothing = errors.New("nothing in it can be analysed")

// exactRequests is from how many requests on only some of those that are not slow are followed.
const exactRequests = 5_000

// memoryPerTraceByte is what a generation needs in memory for each of its bytes:
// records of 8 bytes for events of 5.2 bytes, their places, and the bytes
// themselves (see lab/bench/README.md).
const memoryPerTraceByte = 8

// Explain reads a trace to its end and says why the requests in it were late.
//
// A trace that is cut or damaged is reported as far as whole generations go,
// marked as truncated, with a warning. The error wraps ErrNothing where there
// is none. If ctx ends, what was read until then is reported together with
// ctx's error.
//
// Explain reads ahead from another goroutine; it returns without waiting for
// a Read that is under way.
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
		// Which groups wait for which does not depend on what is asked about.
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
			// What this reading leaves out, the next one adds up: the trace is opened for it first.
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
	if selfWaits := engine.findSelfWaits(); (selfWaits != nil || engine.pass.HasDroppedOptionalSums()) && !selectsPart && ctx.Err() == nil {
		// Only now it is known that requests wait for others of this process, or that they do not though it seemed so.
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

// minSlowest is how many of a group's slowest requests rules read, so that what is found does not depend on how many are
// shown; it is also how many are shown if nothing is said.
const minSlowest = 3

// readTrace reads a trace to its end. What it knows of requests that wait for others
// of the same process joins their paths; it is nil at first. next says whether the trace is read again
// afterwards: much is left to that reading then.
func readTrace(ctx context.Context, trace io.Reader, opts Options, selfWaits *selfWaits, reread rereading) (newEngine *engine, damage, err error) {
	newEngine = &engine{
		opts: opts, freezes: new(freeze.Detector), groups: groups.New(), slowest: detailed.New(opts.Slowest), samples: predict.NewSamples(), queues: queues.New(), peers: peers.New(), moments: moments.New(), process: process.NewCollector(), selfWaits: selfWaits,
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
	tracePass.Listeners = []pass.Listener{freezeListener{newEngine.freezes, &newEngine.threads, opts.hostSamples.samples}, &newEngine.hostLog, newEngine.process}
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

// newReader returns a reader of a trace that keeps to the bound of memory.
func newReader(r io.Reader, opts Options) (*tracefmt.Reader, error) {
	rd, err := tracefmt.NewReader(r, tracefmt.Options{MaxGeneration: int(opts.MaxMemory / memoryPerTraceByte)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.name(), err)
	}
	return rd, nil
}

// passOptions returns the options of a pass.
func (o *Options) passOptions(p path.Options) pass.Options {
	out := pass.Options{Workers: o.Workers, IgnoreMarks: o.IgnoreMarks, TraceID: o.TraceID, SpanID: o.SpanID, From: o.From, To: o.To, Progress: o.Progress, Modules: o.Modules, Path: p}
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

// An engine makes one report.
type engine struct {
	selfPacedGroups map[string]bool    // groups of turns that loops begin by their own pauses, by id
	queuedShares    map[string]float64 // which part of a group's turns found their work there, by id
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
	freezes         *freeze.Detector // by itself: later questions hold it, and must not hold the engine
	hostLog         hostLog
	model           *predict.Model
	selection       *workSelection
	rowGroups       []path.GroupID // of the report's groups
	translations    []path.Translation
	mergedGroups    []path.GroupID // see groups.Sum.Merge
	selfWaits       *selfWaits     // nil in the first reading
	// walkCount is how many generations' requests were added, while that is guessed by.
	walkCount int
	// rereadErr is why paths that lead to this process were not followed, though it is known that they do.
	rereadErr error
	// shownGroups says which groups are reported.
	shownGroups groups.Selection
}

// A freezeListener gives generations to a detector of freezes.
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

// finish makes the report when the trace was read; cut says why not to its end.
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

// sampling says of how many requests the paths were walked, nil if all were.
func (e *engine) sampling() *report.Sampled {
	p := e.pass
	if p.NotWalked == 0 {
		return nil
	}
	return &report.Sampled{Walked: int(p.Requests - p.NotWalked), Of: int(p.Requests)}
}

func (e *engine) report(damage error) *report.Report {
	tracePass := e.pass
	samples, sampleErr := e.loadHost()
	froze := e.freezes.Verdict()
	sp := &spell.Speller{
		Syms: &tracePass.Symbols, Sites: tracePass.Stages[0].Sites, Start: tracePass.Start, End: tracePass.End, Paths: e.opts.PathMap, Modules: e.opts.Modules,
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
			Go: fmt.Sprintf("1.%d", tracePass.Reader.Minor()), GOMAXPROCS: e.process.Procs(), Truncated: damage != nil, Observer: e.groups.ObserverRequests(), Sampled: e.sampling(), Warnings: []report.Warning{},
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
		// What requests queue for, and who serves them.
		Services: queueSum.Services(sp, e.selection.isJudged), SlotWaits: queueSum.SlotWaits(sp), LongWaits: queueSum.LongWaits(sp), Streams: queueSum.Streams(sp), SiblingShares: queueSum.SiblingShares(sp),
		HolderLines: queueSum.HolderLines(sp), Hubs: queueSum.Hubs(sp), PeerCalls: e.peerCalls(rep, sp), FindHolder: e.lockHolder(sp), NoSelfConnections: e.peers.IsRefuted(),
		// What is known of groups, and of goroutines' functions.
		OutlierMoments: e.outlierIntervals(rep), HerdOverlap: e.herdShares(rep, stats), BacklogShares: e.queuedShares, UnawaitedGroups: e.selfPacedGroups,
		WorksForServer: e.selection.servesRequests(sp), AcceptsConnections: e.pass.Finder.IsUnknownServer(),
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

// peerCalls returns how often requests of each group asked a peer from one line, by the group's id.
func (e *engine) peerCalls(rep *report.Report, sp *spell.Speller) map[string][]queues.PeerCalls {
	out := map[string][]queues.PeerCalls{}
	for i, row := range e.rowGroups {
		out[rep.Groups[i].ID] = e.queues.PeerCalls(sp, row)
	}
	return out
}

// outlierIntervals returns, by group, in how many stretches of time apart its outliers were open.
func (e *engine) outlierIntervals(rep *report.Report) map[string]int {
	out := map[string]int{}
	for i, row := range e.rowGroups {
		if b := rep.Groups[i].Band(report.BandOutliers); b != nil {
			out[rep.Groups[i].ID] = e.moments.CountOpenIntervals(row, b.FromNS)
		}
	}
	return out
}

// herdShares returns a function that tells which share of a group's waiting for a P lies in the moments of herds with a start
// function, and which part of the trace these moments are.
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

// reportGroups returns the groups of the report, and makes them known to the model.
func (e *engine) reportGroups(sp *spell.Speller) []report.Group {
	out := []report.Group{}
	rows := e.groups.Rows(sp, e.shownGroups)
	groups.SortByRole(rows, time.Duration(e.pass.End-e.pass.Start), func(r *groups.Row) bool { return e.selection.isSelfStarted(e.groups.GroupKey(r.PathGroup)) })
	e.selfPacedGroups, e.queuedShares = map[string]bool{}, map[string]float64{}
	for i := range rows {
		key := e.groups.GroupKey(rows[i].PathGroup)
		if e.queuedShares[rows[i].ID] = e.selection.queuedShare(key); key.Kind == request.WebSocket {
			e.queuedShares[rows[i].ID] = e.pass.Finder.QueuedMessageShare(key.Name)
		}
		e.selfPacedGroups[rows[i].ID] = rows[i].Kind == report.KindLoop && e.selection.isTimerStarted(e.groups.GroupKey(rows[i].PathGroup))
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

// readAllocs reads the allocation profile; what is wrong with it is a warning.
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
