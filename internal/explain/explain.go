// Package explain is the engine: it reads a trace and returns the report. The input is a trace and, optionally, host
// samples, an allocation profile and a recording of a peer process. Package whylate is the public interface; commands
// that need more than a report use this package.
//
// One reading of a trace is a pass (package pass). It decodes generations into timelines, finds requests, walks their
// critical paths, and adds the results to sums: groups, slowest requests, queues, peers, moments, stops and samples for
// predictions. The steps of reading.report then build the report from the sums: groups, process, host, findings,
// verdicts. A step takes the results of earlier steps as arguments.
//
// A trace is read twice in two cases. If requests wait over the network for other requests of the same process, the
// first reading finds the groups that do, and the second one follows the paths through them. If the options select a
// part of the trace, the first reading finds those groups in the whole trace.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/detailed"
	"github.com/whylate/whylate/internal/explain/exchange"
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
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/stops"
	"github.com/whylate/whylate/internal/explain/threadstate"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// Options configure Explain. The zero value is ready for use. whylate.Options describes the fields without a comment.
type Options struct {
	pass.Selection
	Name         string
	Group        *regexp.Regexp
	Slowest      int
	MaxMemory    int64
	Workers      int
	Host, Allocs io.Reader
	// Kernel has the kernel's events of the recording ("kernel.bin"); nil if there are none.
	Kernel   io.Reader
	Progress func(bytes int64)
	PathMap  []spell.PathRewrite
	WhatIf   []predict.Change
	// Exact walks every request, however many there are. Replayer and Index imply it.
	Exact bool
	// Modules decides which code belongs to the service and which to its dependencies; nil means by file names alone.
	Modules *modules.Set
	// Thresholds decide the severity of findings; nil means the defaults.
	Thresholds []finding.Threshold
	// Reopen returns a new reader of the same trace, for the second reading. If it is nil, the trace must be seekable,
	// or it is buffered in memory up to maxBuffered while it is read.
	Reopen func() (io.ReadCloser, error)
	// Iterations are how many iterations runs have.
	Iterations []IterationCount
	// Goals are limits of latencies. Changes that reach them are searched for.
	Goals []Goal
	// Replayer, if not nil, is filled so that the trace can be replayed.
	Replayer *Replayer
	// Capacity, if not nil, asks at which loads the process's resources saturate.
	Capacity *capacity.Question
	// Index, if not nil, is filled for later questions about this trace.
	Index Index
	// Checks, if not nil, check the pass and the report, for tests.
	Checks Checks

	// remotes, if not nil, are the services that this one may call: see ExplainServices.
	remotes *remotes

	isRereadForced bool // for tests of wrong guesses: see reading.guessReread
	// hostSamples and hostErr are read from Host. All readings of the trace share them.
	hostSamples *host.Samples
	hostErr     error
	// kernelData and kernelErr are read from Kernel.
	kernelData []byte
	kernelErr  error
}

// Checks look for contradictions in a pass and its report. Package validate has them.
type Checks interface {
	// Attach adds the checks to a pass before it runs, and forgets an earlier pass.
	Attach(*pass.Pass)
	// Report checks the report of the pass. all says that no group was excluded by name. It is called once, last.
	Report(rep *report.Report, all bool)
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

// ErrNothing is whylate.ErrNothing.
var ErrNothing = errors.New("nothing in it can be analysed")

// exactRequests is how many requests are all walked. Of those after them that are not slow, only a sample is.
const exactRequests = 5_000

// memoryPerTraceByte is the memory for a generation per byte of it: records of 8 bytes for events of 5.2 bytes,
// indexes, and the bytes themselves (see lab/bench/README.md).
const memoryPerTraceByte = 8

// Explain reads a trace to its end and explains the latency of its requests, as whylate.Explain describes. It decides whether the
// trace is read once or twice, see the package comment.
func Explain(ctx context.Context, trace io.Reader, opts Options) (*report.Report, error) {
	go finding.Load()
	shownSlowest := cmp.Or(opts.Slowest, minSlowest)
	opts.Slowest = max(shownSlowest, minSlowest)
	if opts.Modules == nil {
		opts.Modules = modules.New(modules.Options{})
	}
	reopen, canReopen := opts.Reopen, true
	if reopen == nil {
		trace, reopen, canReopen = reopenable(trace)
	}
	opts.hostSamples, opts.hostErr = readHost(opts.Host)
	opts.kernelData, opts.kernelErr = readKernel(opts.Kernel)
	var selfWaits *selfWaits
	selectsPart := canReopen && opts.selectsPart()
	if selectsPart {
		// Which groups wait for which is a property of the whole trace.
		whole, err := readTrace(ctx, trace, opts.wholeTrace(), nil, rereadAlways)
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
	if canReopen && !selectsPart && opts.Index == nil && opts.Checks == nil && opts.Replayer == nil {
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
	last, err := readTrace(ctx, trace, opts, selfWaits, reread)
	if err != nil {
		return nil, err
	}
	selfWaits = last.findSelfWaits()
	if (selfWaits != nil || last.pass.HasDroppedOptionalSums()) && !selectsPart && ctx.Err() == nil {
		// The first reading has found that requests wait for others of this process, or that the guess was wrong.
		if reopened, err := reopen(); err != nil && last.pass.HasDroppedOptionalSums() {
			return nil, fmt.Errorf("%s: reading it again: %w", opts.name(), err)
		} else if err != nil {
			last.rereadErr = err
		} else {
			opts.resetOutputs()
			last, err = readTrace(ctx, reopened, opts, selfWaits, rereadNever)
			reopened.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	rep, err := last.finish(ctx)
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

// readTrace reads a trace to its end and fills the sums of a reading; reading.finish turns them into a report. selfWaits, from
// the first reading, lets paths continue in other requests of the process; it is nil in the first reading. reread says whether
// the trace will be read again, so that this reading can omit sums.
func readTrace(ctx context.Context, trace io.Reader, opts Options, selfWaits *selfWaits, reread rereading) (*reading, error) {
	startedTrace := opts.remotes.takeStarted()
	if startedTrace == nil {
		reader, err := newReader(trace, opts)
		if err != nil {
			return nil, err
		}
		startedTrace = &openedTrace{reader: reader}
	}
	freezes := new(freeze.Detector)
	r := &reading{
		joiner: opts.newJoiner(),
		opts:   opts, selfWaits: selfWaits, freezes: freezes, groups: groups.New(), peers: peers.New(), stops: stops.New(freezes), process: process.NewCollector(),
		unmerged: detailSums{slowest: detailed.New(opts.Slowest), samples: predict.NewSamples(), queues: queues.New(), moments: moments.New()},
	}
	passOptions := opts.passOptions(path.Options{Freezes: freezes})
	if len(opts.kernelData) > 0 {
		if r.kernel, r.kernelErr = threadstate.New(opts.kernelData); r.kernelErr == nil {
			passOptions.Path.Threads, freezes.Observed = r.kernel, r.kernel.FreezesIn
			if opts.Index != nil {
				r.kernel.KeepAll()
			}
		}
	}
	if r.joiner != nil {
		causes := opts.remotes.causes.List()
		passOptions.Path.RemoteAnswerTo = r.joiner.RemoteAnswerTo
		passOptions.Path.RemoteCause = func(remote int32) cause.Cause { return causes[remote].Code }
	}
	if selfWaits != nil {
		passOptions.Plan, passOptions.KeepAnswers = &selfWaits.plan, opts.Index != nil
	}
	if !opts.Exact && opts.Replayer == nil && opts.Index == nil {
		passOptions.ExactFirst = exactRequests
	}
	if reread == rereadMaybe {
		passOptions.OnRequestsAdded = r.guessReread
	}
	r.pass = pass.New(passOptions)
	r.process.SetWindow(&r.pass.Window)
	r.pass.Sums = []pass.Sum{r.groups, r.unmerged.slowest, r.peers, r.stops}
	r.pass.OptionalSums = []pass.Sum{r.unmerged.samples, r.unmerged.queues, r.unmerged.moments}
	if reread == rereadAlways {
		r.pass.DropOptionalSums()
	}
	r.pass.Listeners = []pass.Listener{freezeListener{freezes, &r.threads, opts.hostSamples}, &r.hostLog, r.process}
	if opts.Capacity != nil {
		r.capacity = capacity.New()
		r.pass.OptionalSums = append(r.pass.OptionalSums, r.capacity)
	}
	if r.joiner != nil {
		r.joiner.SetWindow(&r.pass.Window)
		r.calls = new(exchange.Calls)
		r.pass.Listeners, r.pass.Sums = append(r.pass.Listeners, r.joiner), append(r.pass.Sums, r.calls)
	}
	if opts.remotes != nil {
		r.served = new(exchange.ServedRequests)
		r.pass.Sums = append(r.pass.Sums, r.served)
	}
	if opts.Index != nil {
		r.pass.Sums = append(r.pass.Sums, opts.Index)
		r.pass.Listeners = append(r.pass.Listeners, opts.Index)
	}
	if opts.Checks != nil {
		opts.Checks.Attach(r.pass)
	}
	if startedTrace.decoder != nil {
		r.damage = r.pass.RunDecoder(ctx, startedTrace.decoder, startedTrace.reader)
	} else {
		r.damage = r.pass.Run(ctx, startedTrace.reader)
	}
	if r.pass.Generations > 0 {
		r.translations = path.MergeIDs(r.pass.Stages)
		r.mergedGroups = r.groups.Merge(r.translations)
		r.peers.Merge(r.translations)
		if unsure, ok := hostjoin.PossibleSelfConnections(opts.hostSamples, r.hostWindow()); ok {
			r.peers.RefuteBySockets(unsure)
		}
	}
	return r, nil
}

// newReader returns a reader that skips generations too large for Options.MaxMemory.
func newReader(r io.Reader, opts Options) (*tracefmt.Reader, error) {
	rd, err := tracefmt.NewReader(r, tracefmt.Options{MaxGeneration: int(opts.MaxMemory / memoryPerTraceByte)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.name(), err)
	}
	return rd, nil
}

// passOptions returns the options of a pass.
func (o *Options) passOptions(p path.Options) pass.Options {
	return pass.Options{Selection: o.Selection, Workers: o.Workers, Progress: o.Progress, Modules: o.Modules, Path: p}
}

// name returns the trace's name for messages.
func (o *Options) name() string { return cmp.Or(o.Name, "trace") }

// A reading is one pass over a trace, with all that the pass filled.
type reading struct {
	opts      Options
	selfWaits *selfWaits // what the first reading found; nil in the first reading
	pass      *pass.Pass
	damage    error // why the reading ended before the end of the trace, if it did
	// rereadErr is why the trace could not be read again although paths continue in this process.
	rereadErr error
	// walkCount is how many generations were walked while guessReread was active.
	walkCount int

	groups       *groups.Sum
	peers        *peers.Sum
	stops        *stops.Sum
	served       *exchange.ServedRequests // what other services may wait for; nil for a single one
	joiner       *exchange.Joiner         // nil if no other service is known
	calls        *exchange.Calls          // with joiner
	unmerged     detailSums
	process      *process.Collector
	capacity     *capacity.Sum    // nil without Options.Capacity
	freezes      *freeze.Detector // not embedded: the index refers to it and must not refer to the reading
	threads      hostjoin.Threads
	hostLog      hostLog
	kernel       *threadstate.Tracker // nil without the kernel's events
	kernelErr    error
	translations []path.Translation
	mergedGroups []path.GroupID // see groups.Sum.Merge
}

// detailSums are the sums that are merged only for a report: see reading.mergeSums.
type detailSums struct {
	slowest *detailed.Sum
	samples *predict.Samples
	queues  *queues.Sum
	moments *moments.Sum
}

// A freezeListener passes generations to a detector of freezes.
type freezeListener struct {
	*freeze.Detector
	threads *hostjoin.Threads
	samples *host.Samples // nil if there are none
}

// AddGeneration implements pass.Listener: it passes the generation to the detector of freezes and to the sampled threads, and
// gives both the host samples with the first generation.
func (f freezeListener) AddGeneration(g *timeline.Gen, _ *tracefmt.Symbols, gap bool) {
	if gap {
		f.SkipGeneration()
	}
	if g.First {
		w := hostjoin.Window{Start: g.Base, Snapshot: g.Snapshot, SnapshotTime: g.SnapshotTime}
		f.KnownHolds = hostjoin.HeldIntervals(f.samples, w)
		*f.threads = hostjoin.NewThreads(f.samples, w)
	}
	f.threads.AddRuns(g)
	f.Add(g)
}
