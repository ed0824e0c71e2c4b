// Package pass reads a trace from its beginning to its end, and passes every request to adders.
//
// It decodes generation by generation, finds the requests of each generation, and has several workers walk them while
// the next generation is decoded. It keeps a window of the last generations, as long as open requests can need them.
// A caller says what to compute by a list of Sums, which add up requests, and Listeners, which see generations.
//
// Not every request must be walked. In a long trace, a plan walks all slow requests and a stratified sample of the
// fast ones; each walked request then has a weight (see plan).
package pass

import (
	"context"
	"errors"
	"io"
	"math"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/explain/answers"
	"github.com/whylate/whylate/internal/explain/cause"
	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Sum is a result that several workers add up over requests. It may also be a GenerationBeginner, a GenerationEnder and a
// Chooser.
type Sum interface {
	// NewAdder returns an Adder for one worker, whose requests stage walks. Only one goroutine at a time calls the
	// Adder. If the Adder is a Flusher, it is flushed.
	NewAdder(stage *path.Stage) path.Adder
}

// A GenerationBeginner is a Sum that has work to do before each generation.
type GenerationBeginner interface {
	// BeginGeneration is called before the requests of a generation are added.
	BeginGeneration(batch request.Batch)
}

// A GenerationEnder is a Sum that has work to do after each generation.
type GenerationEnder interface {
	// EndGeneration is called after all requests of a generation were added, by one goroutine.
	EndGeneration()
}

// A Flusher is an Adder that has work to do while the window still has all generations of the requests that were
// added.
type Flusher interface {
	// Flush is called before the window drops a generation, concurrently with that of other workers. After the last
	// generations of the trace, the window remains.
	Flush()
}

// A Listener sees the generations of a pass. It may also be a GenerationFinisher and a GenerationKeeper. Its methods
// are called one after the other.
type Listener interface {
	// AddGeneration is called with every generation, before any request that ended in it is added. gap reports that
	// the generations before it could not be read. The symbols are valid until the requests were added.
	AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, gap bool)
}

// A GenerationFinisher is a Listener that works concurrently with the adding of requests. Background work that
// AddGeneration starts must end before FinishGeneration returns.
type GenerationFinisher interface {
	// FinishGeneration is called after the requests of the last decoded generation were added. At the end of the
	// trace it is called again, after the requests that were still open.
	FinishGeneration()
}

// A GenerationKeeper is a Listener that may keep generations.
type GenerationKeeper interface {
	// KeepDropped is called when the window drops its first generation, g. carry is the state at the beginning of the
	// next generation. It reports whether the listener keeps g. Otherwise the memory of g is reused.
	KeepDropped(g *timeline.Gen, carry *timeline.Carry) (keep bool)
}

// A Chooser is a Sum that needs the paths of certain requests, which other requests cannot represent.
type Chooser interface {
	// NeedsWalk reports whether a request of the current generation must be walked. Several goroutines may call it
	// concurrently.
	NeedsWalk(r *request.Request) bool
}

// A Selection says which calls are requests, and which requests are added.
type Selection struct {
	// Request, if not nil, selects functions by name. Their calls are the requests, and no others are searched for.
	Request *regexp.Regexp
	// IgnoreMarks finds requests as if the service did not mark them. TraceID, if not zero, selects the requests of
	// one trace of a tracing system. SpanID, if not zero, selects those of one span, and those whose caller is that
	// span.
	IgnoreMarks bool
	TraceID     [16]byte
	SpanID      [8]byte
	// From and To select requests that end in [From, To), relative to the start of the trace. To 0 means the end of
	// the trace.
	From, To time.Duration
}

// Options configure a Pass.
type Options struct {
	// Workers is the number of goroutines that decode and walk. 0 means GOMAXPROCS.
	Workers int
	// InOrder makes one worker add requests one after the other, sorted by request.Compare within each generation.
	// The other workers only decode.
	InOrder bool
	Selection
	// ExactFirst, if positive, is the approximate number of requests that are all walked. Of later requests only a sample is
	// walked, with weights: see plan.
	ExactFirst int
	// Modules distinguishes the service's own code from its dependencies. nil means by file names only.
	Modules *modules.Set
	// Path configures the walk.
	Path path.Options
	// Plan, if not nil, has the groups that answer network calls of other groups of this process. The paths of
	// callers continue in their answers.
	Plan *answers.Plan
	// KeepAnswers keeps all answers that are found, for the method Answers.
	KeepAnswers bool
	// OnRequestsAdded, if not nil, is called after all whole requests of a generation were added.
	OnRequestsAdded func()
	// Progress, if not nil, is called after each generation with the number of bytes read.
	Progress func(bytes int64)
}

// A Pass is one reading of a trace.
type Pass struct {
	// Sums and OptionalSums receive the requests. OptionalSums do so only until DropOptionalSums is called.
	Sums, OptionalSums []Sum
	Listeners          []Listener
	// KeepMarks keeps the marks of generations for listeners. Otherwise only the Finder reads them.
	KeepMarks bool

	// Results, valid after Run.

	// Window holds the last generations. Symbols are those of the walked requests.
	Window  timeline.Window
	Symbols tracefmt.Symbols
	// Stages has the Stage of each worker.
	Stages []*path.Stage
	Reader *tracefmt.Reader
	// Decoder and Finder hold the problems that they found.
	Decoder *timeline.Decoder
	Finder  *request.Finder
	// Start and End are the beginning and the end of the trace, on the trace's clock.
	Start, End  int64
	Events      int64
	Generations int
	// Requests is the number of requests added. NotWalked is how many of them were not walked.
	Requests, NotWalked int64
	// Arrivals is the number of requests that begin at the arrival of their first byte.
	Arrivals int64

	options                Options
	hasDroppedOptionalSums bool
	plan                   plan
	workers                []worker
	order, walkSlots       []int32         // memory of walkOrder
	answers                *answers.Finder // nil without Options.Plan
}

// A worker walks requests with its stage and passes them to its adders.
type worker struct {
	stage  *path.Stage
	adders []path.Adder    // by sum, without dropped ones
	units  []request.Unit  // of the last NotWalked result
	first  request.Request // of these units
}

// New returns a Pass that has not run yet.
func New(opts Options) *Pass {
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Modules == nil {
		opts.Modules = modules.New(modules.Options{})
	}
	return &Pass{options: opts}
}

// maxWindowGenerations bounds how many generations the window keeps for open requests.
const maxWindowGenerations = 8

// windowSlackNS is how much earlier than the oldest open request the window begins at least: what a goroutine did at the
// request's start may have begun a little earlier.
const windowSlackNS = 50e6

// Run reads a trace to its end. It returns nil at the end of a complete trace. Otherwise it returns the reason for the early
// end, a *tracefmt.Error or the error of ctx; all requests until then have been added.
func (p *Pass) Run(ctx context.Context, rd *tracefmt.Reader) error {
	decoder := timeline.NewDecoder(rd, p.options.Workers)
	defer decoder.Close()
	return p.RunDecoder(ctx, decoder, rd)
}

// RunDecoder is Run with a decoder of the reader's generations, which may have decoded some and be rewound. It returns the error
// that ended the reading early, nil at a clean end.
func (p *Pass) RunDecoder(ctx context.Context, decoder *timeline.Decoder, rd *tracefmt.Reader) (readErr error) {
	p.Reader, p.Decoder = rd, decoder
	decoder.Symbols.Lookups = p.Symbols.Lookups
	finding := request.Options{Workers: p.options.Workers, IgnoreMarks: p.options.IgnoreMarks}
	if p.options.Request != nil {
		finding.MatchFunc = p.options.Request.MatchString
	}
	p.Finder = request.NewFinder(&p.Symbols, &p.Window, finding)
	decoder.Classify = request.NewClassifier(decoder.Symbols).Flags
	p.createWorkers()
	callerFinder := cause.NewCallerFinder(decoder.Symbols, p.options.Modules)
	isAfterGap := false
	// While the requests of one generation are found and walked, the next generation is decoded. Finding and walking use
	// a snapshot of the symbols, so neither side waits for the other, nor for the sequential parts of finding.
	type result struct {
		g   *timeline.Gen
		err error
	}
	decoded := make(chan result, 1)
	decode := func() {
		g, err := decoder.Next(ctx)
		decoded <- result{g, err}
	}
	go decode()
	walked := make(chan struct{}, 1)
	walked <- struct{}{}
	oldest := int64(0)
	for {
		result := <-decoded
		g := result.g
		if result.err != nil {
			if !errors.Is(result.err, io.EOF) {
				readErr = result.err
			}
			break
		}
		<-walked
		p.dropGenerations(oldest)
		if threads := p.options.Path.Threads; threads != nil && len(p.Window.Gens) > 0 {
			threads.Drop(p.Window.Start())
		}
		if g == nil {
			p.flush()
			p.Window = timeline.Window{} // a generation was skipped, so spans before it cannot be continued
			isAfterGap = true
			walked <- struct{}{}
			go decode()
			continue
		}
		p.Finder.InternMarks(decoder.Symbols, g)
		callerFinder.ExamineStacks()
		if p.options.Path.Threads != nil {
			p.options.Path.Threads.Add(decoder.Symbols, g)
		}
		p.Symbols = decoder.Symbols.Snapshot()
		go decode()
		if p.Generations == 0 {
			p.Start = g.Base
		}
		p.Generations++
		p.End = max(p.End, g.End)
		p.Events += g.Events
		p.Window.Gens = append(p.Window.Gens, g)
		for _, l := range p.Listeners { // first, because some work in the background
			l.AddGeneration(g, &p.Symbols, isAfterGap)
		}
		isAfterGap = false
		reqs := p.Finder.Add(g)
		series := p.Finder.Series()
		if !p.plansSeries() {
			reqs, series = request.AppendUnits(reqs, series...), nil
		}
		p.beginAtArrival(reqs)
		if !p.KeepMarks {
			decoder.DropMarks(g)
		}
		oldest = p.Finder.OldestOpen()
		go func() {
			p.walkGeneration(reqs, series)
			walked <- struct{}{}
		}()
		if p.options.Progress != nil {
			p.options.Progress(rd.Consumed())
		}
	}
	<-walked
	p.Symbols = decoder.Symbols.Snapshot()
	if p.Generations > 0 {
		reqs := p.Finder.Finish(p.End)
		p.beginAtArrival(reqs)
		p.walkGeneration(reqs, nil)
	}
	return readErr
}

// plansSeries reports whether nothing must be known of a unit of a series before it is planned but its times.
func (p *Pass) plansSeries() bool {
	selection := p.options.Selection
	selection.Request, selection.IgnoreMarks = nil, false
	return p.options.ExactFirst > 0 && p.answers == nil && p.Threads() == nil && selection == Selection{}
}

// Answers returns a function that returns the answers for which a request waits (see critpath.Walker.AnswersOf). It
// is nil unless the pass has Options.Plan and KeepAnswers.
func (p *Pass) Answers() func(g uint64, start int64) []critpath.Answer {
	if p.answers == nil || !p.answers.KeepAll {
		return nil
	}
	return p.answers.AnswersSoFar()
}

// createWorkers creates the workers, each with a stage and an adder of every sum. With Options.InOrder there is only one.
func (p *Pass) createWorkers() {
	workerCount := p.options.Workers
	if p.options.InOrder {
		workerCount = 1
	}
	if p.options.Plan != nil {
		p.answers = answers.NewFinder(p.options.Plan, &p.Window, &p.Symbols, workerCount)
		p.answers.KeepAll = p.options.KeepAnswers
		p.options.Path.AnswersOf = p.answers.AnswersTo
	}
	p.options.Path.IsClientWait = p.Finder.ClientWaits()
	for range workerCount {
		w := worker{stage: path.New(&p.Window, &p.Symbols, p.options.Path)}
		for _, s := range p.allSums() {
			w.adders = append(w.adders, s.NewAdder(w.stage))
		}
		p.workers = append(p.workers, w)
		p.Stages = append(p.Stages, w.stage)
	}
	if p.hasDroppedOptionalSums {
		p.DropOptionalSums()
	}
}

// allSums returns all sums, OptionalSums last.
func (p *Pass) allSums() []Sum { return slices.Concat(p.Sums, p.OptionalSums) }

// DropOptionalSums stops adding to OptionalSums, because the trace will be read a second time for them. It may be called before
// Run, and from Options.OnRequestsAdded. Which requests are walked does not change: BeginGeneration and NeedsWalk of the
// OptionalSums are still called.
func (p *Pass) DropOptionalSums() {
	p.hasDroppedOptionalSums = true
	for i := range p.workers {
		p.workers[i].adders = p.workers[i].adders[:len(p.Sums)]
	}
}

// HasDroppedOptionalSums reports whether DropOptionalSums was called.
func (p *Pass) HasDroppedOptionalSums() bool { return p.hasDroppedOptionalSums }

// dropGenerations drops generations from the window that no open request can need. oldest is the start of the oldest open
// request.
func (p *Pass) dropGenerations(oldest int64) {
	for isFlushed := false; len(p.Window.Gens) > 1 && (p.Window.Gens[1].Base <= oldest-windowSlackNS || len(p.Window.Gens) > maxWindowGenerations); isFlushed = true {
		if !isFlushed {
			p.flush()
		}
		g := p.Window.DropFirst()
		isKept := false
		for _, l := range p.Listeners {
			if l, ok := l.(GenerationKeeper); ok {
				isKept = l.KeepDropped(g, p.Window.Carry()) || isKept
			}
		}
		if !isKept {
			p.Decoder.Recycle(g)
		}
	}
}

// isSelected reports whether the options select a request by its identity and end. Every piece of a long request but the last
// is selected, because the request's end is not yet known.
func (p *Pass) isSelected(r *request.Request) bool {
	from, to := p.Start+int64(p.options.From), int64(math.MaxInt64)
	if p.options.To > 0 {
		to = p.Start + int64(p.options.To)
	}
	return r.Piece == request.MiddlePiece || p.hasSelectedIdentity(r.Identity) && r.End >= from && r.End < to
}

// hasSelectedIdentity reports whether a request belongs to the trace and the span, of a tracing system, that the
// options select.
func (p *Pass) hasSelectedIdentity(id *request.Identity) bool {
	trace, span := p.options.TraceID, p.options.SpanID
	if trace == [16]byte{} && span == [8]byte{} {
		return true
	}
	return id != nil && (trace == [16]byte{} || id.TraceID == trace) && (span == [8]byte{} || id.SpanID == span || id.ParentSpanID == span)
}
