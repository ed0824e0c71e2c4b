// Package pass reads a trace from one end to the other: it decodes generations,
// finds the requests of each, has them walked by several workers while the next
// generation is decoded, and keeps the window of generations that open requests
// can still need. What a pass is for is the list of its sums and of its
// listeners.
package pass

import (
	"context"
	"errors"
	"io"
	"math"
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

// A Sum is something that is added up over requests, by several workers. It may be a Beginner, an Ender and a Chooser as well.
type Sum interface {
	// NewAdder returns a new part, for a worker whose requests stage walks. One
	// goroutine at a time adds to a part. If the part is a Flusher, it is flushed.
	NewAdder(stage *path.Stage) path.Adder
}

// A Beginner is a Sum that needs to know which requests are added next.
type GenerationBeginner interface {
	// BeginGeneration is called before requests of one more generation are added.
	BeginGeneration(reqs []request.Request)
}

// An Ender is a Sum that has work to do after each generation.
type GenerationEnder interface {
	// EndGeneration is called when all requests of a generation were added, by one goroutine.
	EndGeneration()
}

// A Flusher is an Adder that has work to do while the window still has all
// generations of the requests that were added.
type Flusher interface {
	// Flush is called when the worker has added its requests of a generation;
	// others may still be adding theirs.
	Flush()
}

// A Listener is told how a pass goes on. It may be a Waiter and a Keeper as well. Its methods are called one after the other.
type Listener interface {
	// AddGeneration is called with every generation, before any request that ended in it
	// is added. gap says that what was before it could not be read. The symbols
	// are valid until the requests were added.
	AddGeneration(g *timeline.Gen, syms *tracefmt.Symbols, gap bool)
}

// A Waiter is a Listener that works while requests are added. What it does in the background of Decoded must be over when Walked
// returns.
type GenerationFinisher interface {
	// FinishGeneration is called when the requests of the generation that was decoded last
	// were added, and again, at the end, after those that were still open.
	FinishGeneration()
}

// A Keeper is a Listener that may keep generations.
type GenerationKeeper interface {
	// KeepDropped is called when the window no longer begins with g but with the
	// generation after it, of which carry says what was before. It reports whether
	// the listener keeps g for itself; else g is used again.
	KeepDropped(g *timeline.Gen, carry *timeline.Carry) (keep bool)
}

// A Chooser is a Sum that needs some requests' own paths, whatever others stand for.
type Chooser interface {
	// NeedsWalk reports whether a request of the generation of the last Begin must be
	// walked. Several goroutines may call it.
	NeedsWalk(r *request.Request) bool
}

// Options configure a Pass.
type Options struct {
	// Workers is the number of goroutines that decode and walk; 0 means
	// GOMAXPROCS.
	Workers int
	// InOrder has requests added one after the other, in the order of
	// request.Compare by generation. Workers decode only.
	InOrder bool
	// MatchFunction, if not nil, selects functions whose calls are the requests.
	MatchFunction func(name string) bool
	// IgnoreMarks finds requests as if the service did not mark them. TraceID, if not
	// zero, selects requests of one trace of a tracing system, SpanID those of
	// one span: their own, or the caller's.
	IgnoreMarks bool
	TraceID     [16]byte
	SpanID      [8]byte
	// From and To select requests that end in [From, To), counted from the trace's
	// start; a To of 0 means its end.
	From, To time.Duration
	// ExactFirst, if positive, is about how many requests are walked one and all.
	// Of those that end later only some are, with weights: see plan.
	ExactFirst int
	// Modules tells the service's own code from that of its dependencies; nil
	// means by names of files alone.
	Modules *modules.Set
	// Path configures the walk.
	Path path.Options
	// Plan, if not nil, says which groups serve what others wait for: their paths
	// are joined.
	Plan *answers.Plan
	// KeepAnswers keeps all that are found, for later questions: see Answers.
	KeepAnswers bool
	// OnRequestsAdded, if not nil, is called when all whole requests of a generation were
	// added, before any Flusher is called.
	OnRequestsAdded func()
	// Progress, if not nil, is called after each generation with the bytes of
	// input consumed.
	Progress func(bytes int64)
}

// A Pass is one reading of a trace.
type Pass struct {
	// Sums are what is added up; Spare are further ones, until DropOptionalSums is called.
	Sums, OptionalSums []Sum
	Listeners          []Listener
	// KeepMarks lets listeners ask generations for their marks, which otherwise only the Finder does.
	KeepMarks bool

	// What was read, valid after Run.

	// Window holds the last generations, Symbols is for what was walked.
	Window  timeline.Window
	Symbols tracefmt.Symbols
	// Stages are the workers' ones.
	Stages []*path.Stage
	Reader *tracefmt.Reader
	// Decoder and Finder hold what they found wrong, or nothing of.
	Decoder *timeline.Decoder
	Finder  *request.Finder
	// Start and End are the trace's, on its own clock.
	Start, End  int64
	Events      int64
	Generations int
	// Requests is how many were added, Glanced how many of them were not walked.
	Requests, NotWalked int64

	options                Options
	hasDroppedOptionalSums bool
	plan                   plan
	workers                []worker
	answers                *answers.Finder // nil without a plan
}

type worker struct {
	stage  *path.Stage
	adders []path.Adder // by sum, without those that are left out
}

// New returns a Pass that was not run yet.
func New(opts Options) *Pass {
	if opts.Workers <= 0 {
		opts.Workers = runtime.GOMAXPROCS(0)
	}
	if opts.Modules == nil {
		opts.Modules = modules.New(modules.Options{})
	}
	return &Pass{options: opts}
}

// maxWindowGenerations bounds how many generations are kept for requests that are open.
const maxWindowGenerations = 8

// windowSlackNS is how long before the oldest open request the window begins, at
// least: what a goroutine was doing then may have begun a little earlier.
const windowSlackNS = 50e6

// Run reads a trace to its end. The error, nil at the end of a whole trace, says
// why it ended earlier: a *tracefmt.Error, or ctx's. What was read until then has
// been walked.
func (p *Pass) Run(ctx context.Context, rd *tracefmt.Reader) (readErr error) {
	p.Reader = rd
	decoder := timeline.NewDecoder(rd, p.options.Workers)
	defer decoder.Close()
	p.Decoder = decoder
	decoder.Symbols.Looked = p.Symbols.Looked
	p.Finder = request.NewFinder(&p.Symbols, &p.Window, request.Options{Workers: p.options.Workers, MatchFunc: p.options.MatchFunction, IgnoreMarks: p.options.IgnoreMarks})
	decoder.Classify = request.NewClassifier(decoder.Symbols).Flags
	p.createWorkers()
	placer := cause.NewPlacer(decoder.Symbols, p.options.Modules)
	isAfterGap := false
	// While requests of one generation are found, and then walked, the next one is decoded: what is to be found is in a
	// snapshot of the symbols. Nobody waits for the slower of two workers, nor for the parts of finding that are one after the other.
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
		if g == nil {
			p.Window = timeline.Window{} // skipped: what was before cannot be joined
			isAfterGap = true
			walked <- struct{}{}
			go decode()
			continue
		}
		p.Finder.InternMarks(decoder.Symbols, g)
		placer.Place()
		p.Symbols = decoder.Symbols.Snapshot()
		go decode()
		if p.Generations == 0 {
			p.Start = g.Base
		}
		p.Generations++
		p.End = max(p.End, g.End)
		p.Events += g.Events
		p.Window.Gens = append(p.Window.Gens, g)
		reqs := p.Finder.Add(g)
		if !p.KeepMarks {
			decoder.DropMarks(g)
		}
		oldest = p.Finder.OldestOpen()
		genIsAfterGap := isAfterGap
		isAfterGap = false
		go func() {
			for _, l := range p.Listeners {
				l.AddGeneration(g, &p.Symbols, genIsAfterGap)
			}
			p.walkGeneration(reqs)
			walked <- struct{}{}
		}()
		if p.options.Progress != nil {
			p.options.Progress(rd.Consumed())
		}
	}
	<-walked
	p.Symbols = decoder.Symbols.Snapshot()
	if p.Generations > 0 {
		p.walkGeneration(p.Finder.Finish(p.End))
	}
	return readErr
}

// Answers says which requests of the process another one waits for, if the pass
// had a plan, and was to keep what it found; else it is nil.
func (p *Pass) Answers() func(g uint64, start int64) []critpath.Answer {
	if p.answers == nil || !p.answers.KeepAll {
		return nil
	}
	return p.answers.AnswersSoFar()
}

// createWorkers makes the workers that walk, with their parts of the sums.
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

// allSums returns the sums, Spare last.
func (p *Pass) allSums() []Sum { return slices.Concat(p.Sums, p.OptionalSums) }

// DropOptionalSums ends the adding to Spare: the trace will be read again for these. It may be called before Run, and from Options.Added.
// Which requests are walked does not depend on it: they still begin with each generation, and choose.
func (p *Pass) DropOptionalSums() {
	p.hasDroppedOptionalSums = true
	for i := range p.workers {
		p.workers[i].adders = p.workers[i].adders[:len(p.Sums)]
	}
}

// HasDroppedOptionalSums reports whether DropOptionalSums was called.
func (p *Pass) HasDroppedOptionalSums() bool { return p.hasDroppedOptionalSums }

// dropGenerations forgets generations that no open request can need.
func (p *Pass) dropGenerations(oldest int64) {
	for len(p.Window.Gens) > 1 && (p.Window.Gens[1].Base <= oldest-windowSlackNS || len(p.Window.Gens) > maxWindowGenerations) {
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

// isSelected reports whether a request is in the part of the trace that is asked
// for, and of the trace. A piece of a long one is: where that ends is not
// known yet.
func (p *Pass) isSelected(r *request.Request) bool {
	from, to := p.Start+int64(p.options.From), int64(math.MaxInt64)
	if p.options.To > 0 {
		to = p.Start + int64(p.options.To)
	}
	if r.Piece != request.MiddlePiece && !p.hasSelectedIdentity(r.Identity) {
		return false
	}
	return r.Piece == request.MiddlePiece || r.End >= from && r.End < to
}

// hasSelectedIdentity reports whether a request is of the trace and of the span, of a tracing
// system, that are asked for.
func (p *Pass) hasSelectedIdentity(id *request.Identity) bool {
	trace, span := p.options.TraceID, p.options.SpanID
	if trace == [16]byte{} && span == [8]byte{} {
		return true
	}
	return id != nil && (trace == [16]byte{} || id.TraceID == trace) && (span == [8]byte{} || id.SpanID == span || id.ParentSpanID == span)
}
