// Package explain runs the engine: it reads a trace, hands its requests from
// one stage to the next, and makes the report. Package whylate is its public
// face; verbs of the command line that need more than a report use it directly.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/allocs"
	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/census"
	"github.com/whylate/whylate/internal/finding"
	"github.com/whylate/whylate/internal/freeze"
	"github.com/whylate/whylate/internal/inspect"
	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/summary"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
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
	// Slowest is how many of the slowest requests of a group are reported in
	// full; 0 means 3, negative none.
	Slowest int
	// From and To limit the report to requests that end in this part of the
	// trace, counted from its start; a To of 0 means the end.
	From, To time.Duration
	// PathMap rewrites the beginnings of file names; the first that fits counts.
	PathMap []Rewrite
	// MaxMemory bounds the memory for the largest generation, in bytes; 0
	// means 1 GiB. A generation that needs more is left out, with a warning.
	MaxMemory int64
	// Workers is the number of goroutines that decode and walk; 0 means
	// GOMAXPROCS. The report does not depend on it.
	Workers int
	// Host holds the host samples of a recording ("host.jsonl" of a x.whylate
	// file), Allocs a profile of the allocations of the same time (gzipped
	// pprof); nil if there is none. An error in them becomes a warning.
	Host, Allocs io.Reader
	// WhatIf are changes whose gain is predicted, all of them together.
	WhatIf []predict.Change
	// NoRules leaves findings out.
	NoRules bool
	// Keep, if not nil, is filled so that the trace can be replayed.
	Keep *Kept
	// Progress, if not nil, is called now and then, from the calling
	// goroutine, with the bytes of input consumed.
	Progress func(bytes int64)
	// Index, if not nil, is filled for later questions about this trace, those
	// of "whylate view".
	Index *inspect.Index
}

// A Rewrite replaces the beginning of a file name.
type Rewrite struct{ Old, New string }

// ErrNothing is returned, wrapped, when not one whole generation of a trace
// could be read: there is nothing to report.
var ErrNothing = errors.New("nothing in it can be analysed")

// bytesPerRaw is what a generation needs in memory for each of its bytes:
// records of 16 bytes for events of 5.2 bytes, their places, and the bytes
// themselves (see bench/README.md).
const bytesPerRaw = 8

// Explain reads a trace to its end and says why the requests in it were late.
//
// A trace that is cut or damaged is reported as far as whole generations go,
// marked as truncated, with a warning. The error wraps ErrNothing where there
// is none. If ctx ends, what was read until then is reported together with
// ctx's error.
//
// Explain reads ahead from another goroutine; it returns without waiting for
// a Read that is under way.
func Explain(ctx context.Context, r io.Reader, opts Options) (*report.Report, error) {
	e := newEngine(opts)
	rd, err := tracefmt.NewReader(r, tracefmt.Options{MaxGeneration: int(opts.MaxMemory / bytesPerRaw)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name(), err)
	}
	return e.run(ctx, rd)
}

type engine struct {
	opts    Options
	paths   [][2]string
	workers int
	model   *predict.Model

	win    timeline.Window
	syms   tracefmt.Symbols // as they were when the last walk began
	tables []*summary.Tables
	byTime []int32           // see byTime
	census *census.Collector // nil without rules
	again  *replay           // nil but in a second run
	rt     runtimeStats
	freeze freeze.Detector
	start  int64
	end    int64
	events int64
}

func newEngine(opts Options) *engine {
	e := &engine{opts: opts, workers: opts.Workers}
	if !opts.NoRules {
		e.census = census.NewCollector()
	}
	if e.workers <= 0 {
		e.workers = runtime.GOMAXPROCS(0)
	}
	if e.opts.Slowest == 0 {
		e.opts.Slowest = 3
	}
	for _, m := range opts.PathMap {
		e.paths = append(e.paths, [2]string{m.Old, m.New})
	}
	return e
}

func (e *engine) name() string {
	if e.opts.Name == "" {
		return "trace"
	}
	return e.opts.Name
}

func (e *engine) run(ctx context.Context, rd *tracefmt.Reader) (*report.Report, error) {
	dec := timeline.NewDecoder(rd, e.workers)
	defer dec.Close()
	fopts := request.Options{Workers: e.workers}
	if e.opts.Request != nil {
		fopts.Match = e.opts.Request.MatchString
	}
	finder := request.NewFinder(dec.Symbols, &e.win, fopts)
	dec.Classify = request.NewClassifier(dec.Symbols).Flags
	for range e.workers {
		t := summary.New(&e.win, &e.syms, e.opts.Slowest)
		t.Freezes = &e.freeze
		t.OnlyCauses = e.opts.NoRules && len(e.opts.WhatIf) == 0
		e.tables = append(e.tables, t)
	}
	if e.again != nil {
		e.tables = e.again.tables(e)
	}
	index := e.opts.Index
	if index != nil {
		index.Watch(e.tables)
	}
	skipped := false
	// One generation's requests are walked while the next is decoded: then
	// nobody waits for the slower of two workers.
	walked := make(chan struct{}, 1)
	walked <- struct{}{}
	oldest := int64(0)
	var cut error
	for {
		g, err := dec.NextContext(ctx)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				cut = err
			}
			break
		}
		<-walked
		e.drop(dec, oldest)
		if g == nil {
			e.win = timeline.Window{} // skipped: what was before cannot be joined
			if e.again != nil {
				e.again.joined = false
			}
			skipped = true
			e.freeze.Skip()
			walked <- struct{}{}
			continue
		}
		if len(e.win.Gens) == 0 && e.events == 0 {
			e.start = g.Base
		}
		e.end = max(e.end, g.End)
		e.events += g.Events
		e.win.Gens = append(e.win.Gens, g)
		if index != nil {
			index.Decoded(g, skipped)
		}
		skipped = false
		e.freeze.Add(g)
		reqs := finder.Add(g)
		oldest = finder.Oldest()
		e.syms = dec.Symbols.Snapshot()
		go func() {
			var beside sync.WaitGroup
			beside.Go(func() {
				e.rt.add(g, &e.syms)
				if e.census != nil {
					e.census.Add(g)
				}
			})
			if e.again != nil {
				e.again.generation(g, &e.syms)
				e.again.order(reqs)
			}
			if index != nil {
				beside.Go(func() { index.Lived(g) })
			}
			e.walk(reqs)
			if e.again != nil {
				e.again.walked()
			}
			beside.Wait()
			if index != nil {
				index.Walked()
			}
			walked <- struct{}{}
		}()
		if e.opts.Progress != nil {
			e.opts.Progress(rd.Consumed())
		}
	}
	<-walked
	if e.rt.gens == 0 {
		if cut == nil {
			cut = &tracefmt.Error{Kind: tracefmt.Truncated, Text: "the trace holds no events"}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", e.name(), context.Cause(ctx))
		}
		return nil, fmt.Errorf("%s: %w: %w", e.name(), ErrNothing, cut)
	}
	e.syms = dec.Symbols.Snapshot()
	e.walk(finder.Finish(e.end))
	rep := e.report(rd, dec, finder, cut)
	if err := e.whatIf(rep); err != nil {
		return rep, fmt.Errorf("%s: %w", e.name(), err)
	}
	if ctx.Err() != nil {
		return rep, fmt.Errorf("%s: %w", e.name(), context.Cause(ctx))
	}
	return rep, nil
}

// maxWindow bounds how many generations are kept for requests that are open.
const maxWindow = 8

// slack is how long before the oldest open request the window begins, at
// least: what a goroutine was doing then may have begun a little earlier.
const slack = 50e6

// drop forgets generations that no open request can need.
func (e *engine) drop(dec *timeline.Decoder, oldest int64) {
	for len(e.win.Gens) > 1 && (e.win.Gens[1].Base <= oldest-slack || len(e.win.Gens) > maxWindow) {
		g := e.win.DropFirst()
		switch {
		case e.again != nil:
			e.again.recycle(dec, g)
		case e.opts.Index == nil || !e.opts.Index.Dropped(g, e.win.Carry()):
			dec.Recycle(g)
		}
	}
}

func (e *engine) report(rd *tracefmt.Reader, dec *timeline.Decoder, finder *request.Finder, cut error) *report.Report {
	all := e.tables[0]
	for _, t := range e.tables[1:] {
		all.Merge(t)
	}
	samples, sampleErr := e.readHost()
	froze := e.freeze.Verdict()
	all.Settle(froze.IsFreeze)
	all.Refine()
	rep := &report.Report{
		Schema: report.Schema,
		Input: report.Input{
			Name: e.opts.Name, Bytes: rd.Unpacked(), Events: e.events, DurationNS: e.end - e.start,
			Go: fmt.Sprintf("1.%d", rd.Minor()), GOMAXPROCS: e.rt.procs, Truncated: cut != nil, Observer: all.Observer, Warnings: []report.Warning{},
		},
		Findings: []report.Finding{},
	}
	if e.rt.snapshot != nil {
		s := e.rt.snapshot
		wall := time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).Add(-time.Duration(e.rt.snapshotTime - e.start)).UTC()
		rep.Input.Start = &wall
	}
	e.model = all.Model(e.end - e.start)
	view := summary.View{Start: e.start, End: e.end, Group: e.opts.Group, PathMap: e.paths, Kinds: e.kinds(finder, all), Model: e.model}
	rep.Groups = all.Groups(view)
	rep.Runtime = e.rt.report(e)
	throttle(&rep.Runtime, &froze, e.start)
	e.warnings(rep, rd, dec, cut)
	e.addHost(rep, samples, sampleErr)
	if !e.opts.NoRules {
		rep.Findings = finding.Find(&finding.Input{Report: rep, Census: e.takeCensus(all, view), Turns: all.Turns(view), Allocs: e.allocs(rep), Predict: e.model.WhatIf}, finding.All())
	}
	if e.opts.Keep != nil {
		e.opts.Keep.fill(e, all, rep)
	}
	if e.opts.Index != nil {
		e.opts.Index.Finish(&e.win, all, view, dec.Symbols, rd.Minor())
	}
	return rep
}

// allocs reads the allocation profile; what is wrong with it is a warning.
func (e *engine) allocs(rep *report.Report) *allocs.Profile {
	if e.opts.Allocs == nil {
		return nil
	}
	p, err := allocs.Read(e.opts.Allocs, func(s report.Site) report.Site {
		for _, m := range e.paths {
			if rest, ok := strings.CutPrefix(s.File, m[0]); ok {
				s.File = m[1] + rest
				break
			}
		}
		return s
	})
	if errors.Is(err, allocs.ErrEmpty) {
		return nil
	}
	if err != nil {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "allocs-profile", Text: err.Error()})
		return nil
	}
	return p
}

// takeCensus returns what the whole process did.
func (e *engine) takeCensus(all *summary.Tables, view summary.View) *census.Census {
	c := e.census.Census(&census.Names{
		Symbols: &e.syms, Sites: cause.NewSites(&e.syms),
		Site: func(f tracefmt.FrameID) *report.Site { return all.Site(f, view) },
	})
	c.Hubs = all.Hubs(view)
	return c
}

// kinds leaves out what was only looked at in case that nothing better would
// be found.
func (e *engine) kinds(finder *request.Finder, all *summary.Tables) func(request.Kind) bool {
	if e.opts.Request != nil {
		return nil
	}
	if finder.Sure() {
		return func(k request.Kind) bool {
			return k != request.Goroutine && k != request.Loop && k != request.Main
		}
	}
	some := all.Has(func(k request.Kind) bool { return k != request.Main })
	return func(k request.Kind) bool { return k != request.Main || !some }
}

func (e *engine) warnings(rep *report.Report, rd *tracefmt.Reader, dec *timeline.Decoder, cut error) {
	warn := func(code, text string) {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: code, Text: text})
	}
	for _, w := range rd.Warnings() {
		warn(w.Code, w.Text)
	}
	if cut != nil {
		warn("truncated", fmt.Sprintf("%v; %s before it are reported", cut, plural(e.rt.gens, "whole generation")))
	}
	if typ, ok := dec.UnknownType(); ok {
		warn("unknown-event", fmt.Sprintf("events of type %d are not known to this build; the rest of %s was left out", typ, plural(int(dec.Unknown), "batch")))
	}
	if dec.LateTimes > 0 {
		warn("clock", fmt.Sprintf("%s had times that cannot be", plural(int(dec.LateTimes), "event")))
	}
	if dec.Orphans > 0 {
		warn("lost-events", fmt.Sprintf("%s stood without the goroutine or P they belong to and were left out", plural(int(dec.Orphans), "event")))
	}
	named, unnamed := 0, 0
	handlers := 0
	for _, g := range rep.Groups {
		if g.Kind != report.KindHTTP1 && g.Kind != report.KindHTTP2 && g.Kind != report.KindGRPC {
			continue
		}
		if g.Named {
			named += g.Count
			handlers++
		} else {
			unnamed += g.Count
		}
	}
	if handlers > 1 && float64(unnamed) > 0.05*float64(named+unnamed) {
		warn("unnamed-requests", fmt.Sprintf("%d of %d requests never blocked and so show no handler; the percentiles of the named groups are biased upward", unnamed, named+unnamed))
	}
	if len(rep.Groups) == 0 || len(rep.Groups) == 1 && rep.Groups[0].Kind == report.KindFunc && e.opts.Request == nil {
		if e.opts.Request != nil {
			warn("no-requests", fmt.Sprintf("no call of a function that matches %q was seen", e.opts.Request))
		} else {
			warn("no-requests", "no requests were found in this trace: no server handled any, no goroutine did the same work again and again; name a function with --request, or record while the service is busy")
		}
	}
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "ch") {
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// runtimeStats adds up how the runtime behaved.
type runtimeStats struct {
	gens         int
	procs        int
	cycles       int
	markNS       int64
	phases       timeline.MarkPhases
	heapMax      uint64
	goalMax      uint64
	goroutines   int
	stw          map[string]*report.STW
	open         timeline.Stops
	snapshot     *tracefmt.ClockSnapshot
	snapshotTime int64
	series       series
}

func (s *runtimeStats) add(g *timeline.Gen, syms *tracefmt.Symbols) {
	s.gens++
	for _, p := range g.Procs {
		s.procs = p.N
	}
	for _, e := range g.GC {
		if e.Begin && !e.Active {
			s.cycles++
		}
	}
	s.phases.Each(g, s.addMark)
	for _, h := range g.Heap {
		if h.Goal {
			s.goalMax = max(s.goalMax, h.Bytes)
		} else {
			s.heapMax = max(s.heapMax, h.Bytes)
		}
	}
	s.series.add(g)
	if s.stw == nil {
		s.stw = make(map[string]*report.STW)
	}
	s.open.Each(g, func(r timeline.STWRange) {
		kind := syms.String(r.Kind)
		e := s.stw[kind]
		if e == nil {
			e = &report.STW{Kind: kind}
			s.stw[kind] = e
		}
		s.series.stw.add(r.Start, r.End-r.Start)
		e.Count++
		e.TotalNS += r.End - r.Start
		e.MaxNS = max(e.MaxNS, r.End-r.Start)
	})
	n := 0
	g.Goroutines(func(uint64) { n++ })
	s.goroutines = max(s.goroutines, n)
	if g.Snapshot != nil && s.snapshot == nil {
		s.snapshot, s.snapshotTime = g.Snapshot, g.SnapshotTime
	}
}

func (s *runtimeStats) addMark(from, to int64) {
	s.markNS += to - from
	s.series.gc.add(from, to-from)
}

func (s *runtimeStats) report(e *engine) report.Runtime {
	s.phases.Close(e.end, s.addMark)
	r := report.Runtime{
		GC:       report.GC{Cycles: s.cycles, MarkNS: s.markNS, HeapMaxBytes: int64(min(s.heapMax, 1<<62)), GoalMaxBytes: int64(min(s.goalMax, 1<<62))},
		Sched:    report.Sched{Goroutines: s.goroutines},
		Throttle: report.Throttle{Verdict: freeze.Unknown},
		STW:      []report.STW{},
		Series:   s.series.report(e.start, e.end),
	}
	if s.series.spanNS > 0 {
		r.Sched.PsIdle = float64(s.series.idleNS) / float64(s.series.spanNS)
	}
	for _, st := range s.stw {
		r.STW = append(r.STW, *st)
	}
	slices.SortFunc(r.STW, func(a, b report.STW) int {
		return cmp.Or(cmp.Compare(b.TotalNS, a.TotalNS), cmp.Compare(a.Kind, b.Kind))
	})
	return r
}
