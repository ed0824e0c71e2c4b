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
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/allocs"
	"github.com/whylate/whylate/internal/cause"
	"github.com/whylate/whylate/internal/census"
	"github.com/whylate/whylate/internal/detailed"
	"github.com/whylate/whylate/internal/finding"
	"github.com/whylate/whylate/internal/freeze"
	"github.com/whylate/whylate/internal/groups"
	"github.com/whylate/whylate/internal/inspect"
	"github.com/whylate/whylate/internal/pass"
	"github.com/whylate/whylate/internal/path"
	"github.com/whylate/whylate/internal/predict"
	"github.com/whylate/whylate/internal/queues"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/spell"
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
	// NoMarks leaves the marks of service/mark aside: requests are found as if
	// the service had none.
	NoMarks bool
	// TraceID, if not zero, limits the report to requests of the trace with this
	// id in a tracing system. Only requests whose id the trace holds can be found
	// so: those of service/mark, and those about which a tracer wrote user logs.
	TraceID [16]byte
	// Slowest is how many of the slowest requests of a group are reported in
	// full; 0 means 3, negative none.
	Slowest int
	// From and To limit the report to requests that end in this part of the
	// trace, counted from its start; a To of 0 means the end.
	From, To time.Duration
	// PathMap rewrites the beginnings of file names; the first that fits counts.
	PathMap []spell.Rewrite
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
	// Keep, if not nil, is filled so that the trace can be replayed.
	Keep *Kept
	// Progress, if not nil, is called now and then, from the calling
	// goroutine, with the bytes of input consumed.
	Progress func(bytes int64)
	// Index, if not nil, is filled for later questions about this trace, those
	// of "whylate view".
	Index *inspect.Index
}

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
	if opts.Slowest == 0 {
		opts.Slowest = 3
	}
	e := &engine{
		opts: opts, groups: groups.New(), slowest: detailed.New(opts.Slowest), samples: predict.NewSamples(), queues: queues.New(), census: census.NewCollector(),
	}
	rd, err := newReader(r, opts)
	if err != nil {
		return nil, err
	}
	p := pass.New(opts.pass(path.Options{Freezes: &e.freezes}))
	p.Sums = []pass.Sum{e.groups, e.slowest, e.samples, e.queues}
	p.Listeners = []pass.Listener{freezeListener{&e.freezes}, e}
	if opts.Index != nil {
		p.Sums = append(p.Sums, opts.Index)
		p.Listeners = append(p.Listeners, opts.Index)
	}
	e.pass = p
	return e.finish(ctx, p.Run(ctx, rd))
}

// newReader returns a reader of a trace that keeps to the bound of memory.
func newReader(r io.Reader, opts Options) (*tracefmt.Reader, error) {
	rd, err := tracefmt.NewReader(r, tracefmt.Options{MaxGeneration: int(opts.MaxMemory / bytesPerRaw)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.name(), err)
	}
	return rd, nil
}

// pass returns the options of a pass.
func (o *Options) pass(p path.Options) pass.Options {
	out := pass.Options{Workers: o.Workers, NoMarks: o.NoMarks, TraceID: o.TraceID, From: o.From, To: o.To, Progress: o.Progress, Path: p}
	if o.Request != nil {
		out.Match = o.Request.MatchString
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
	opts    Options
	pass    *pass.Pass
	groups  *groups.Sum
	slowest *detailed.Sum
	samples *predict.Samples
	queues  *queues.Sum
	census  *census.Collector
	rt      runtimeStats
	freezes freeze.Detector
	model   *predict.Model
	// selected says which groups are reported.
	selected groups.Selection
	beside   sync.WaitGroup
}

// A freezeListener gives generations to a detector of freezes.
type freezeListener struct{ *freeze.Detector }

// Decoded implements pass.Listener.
func (f freezeListener) Decoded(g *timeline.Gen, _ *tracefmt.Symbols, gap bool) {
	if gap {
		f.Skip()
	}
	f.Add(g)
}

// Walked implements pass.Listener.
func (freezeListener) Walked() {}

// Dropped implements pass.Listener.
func (freezeListener) Dropped(*timeline.Gen, map[uint64]timeline.Span) bool { return false }

// Decoded implements pass.Listener.
func (e *engine) Decoded(g *timeline.Gen, syms *tracefmt.Symbols, _ bool) {
	e.beside.Go(func() {
		e.rt.add(g, syms)
		e.census.Add(g)
	})
}

// Walked implements pass.Listener.
func (e *engine) Walked() { e.beside.Wait() }

// Dropped implements pass.Listener.
func (e *engine) Dropped(*timeline.Gen, map[uint64]timeline.Span) bool { return false }

// finish makes the report when the trace was read; cut says why not to its end.
func (e *engine) finish(ctx context.Context, cut error) (*report.Report, error) {
	name := e.opts.name()
	if e.pass.Generations == 0 {
		if cut == nil {
			cut = &tracefmt.Error{Kind: tracefmt.Truncated, Text: "the trace holds no events"}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", name, context.Cause(ctx))
		}
		return nil, fmt.Errorf("%s: %w: %w", name, ErrNothing, cut)
	}
	rep := e.report(cut)
	if err := e.whatIf(rep); err != nil {
		return rep, fmt.Errorf("%s: %w", name, err)
	}
	if ctx.Err() != nil {
		return rep, fmt.Errorf("%s: %w", name, context.Cause(ctx))
	}
	return rep, nil
}

func (e *engine) report(cut error) *report.Report {
	p := e.pass
	samples, sampleErr := e.readHost()
	froze := e.freezes.Verdict()
	sp := &spell.Speller{
		Syms: &p.Symbols, Sites: p.Stages[0].Sites, Start: p.Start, End: p.End, Paths: e.opts.PathMap, Settled: cause.Settle(froze.IsFreeze),
	}
	ts := path.Merge(p.Stages)
	became := e.groups.Merge(ts)
	path.Regroup(ts, became)
	e.slowest.Merge(ts)
	e.samples.Merge(ts)
	e.queues.Merge()
	e.model = predict.NewModel(sp.Syms, sp.Settled, p.End-p.Start, e.groups.Under)

	rep := &report.Report{
		Schema: report.Schema,
		Input: report.Input{
			Name: e.opts.Name, Bytes: p.Reader.Unpacked(), Events: p.Events, DurationNS: p.End - p.Start,
			Go: fmt.Sprintf("1.%d", p.Reader.Minor()), GOMAXPROCS: e.rt.procs, Truncated: cut != nil, Observer: e.groups.Observer(), Warnings: []report.Warning{},
		},
		Findings: []report.Finding{},
	}
	if s := e.rt.snapshot; s != nil {
		wall := time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).Add(-time.Duration(e.rt.snapshotTime - p.Start)).UTC()
		rep.Input.Start = &wall
	}
	e.selected = groups.Selection{Name: e.opts.Group, Kinds: e.kinds()}
	rep.Groups = e.rows(sp)
	rep.Runtime = e.rt.report(p.Start, p.End)
	throttle(&rep.Runtime, &froze, p.Start)
	e.warnings(rep, cut)
	e.addHost(rep, samples, sampleErr)
	rep.Findings = finding.Find(&finding.Input{
		Report: rep, Census: e.takeCensus(sp), Turns: e.queues.Turns(sp, e.selected.Kinds), Allocs: e.allocs(rep, sp), Predict: e.model.WhatIf,
	}, finding.All())
	if e.opts.Keep != nil {
		e.opts.Keep.fill(e, rep, became, sp)
	}
	if e.opts.Index != nil {
		e.opts.Index.Finish(p, ts, e.groups.IDs(sp, e.selected), &e.freezes, sp)
	}
	return rep
}

// rows returns the groups of the report, and makes them known to the model.
func (e *engine) rows(sp *spell.Speller) []report.Group {
	out := []report.Group{}
	for _, row := range e.groups.Rows(sp, e.selected) {
		g := row.Group
		e.slowest.Fill(&g, row.Of, row.MedianNS, sp)
		if g.Count > 0 {
			e.model.Group(g.ID, e.samples.Of(row.Of), g.LatencyNS.P50, g.LatencyNS.P99)
		}
		out = append(out, g)
	}
	return out
}

// allocs reads the allocation profile; what is wrong with it is a warning.
func (e *engine) allocs(rep *report.Report, sp *spell.Speller) *allocs.Profile {
	if e.opts.Allocs == nil {
		return nil
	}
	p, err := allocs.Read(e.opts.Allocs, func(s report.Site) report.Site {
		s.File = sp.File(s.File)
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
func (e *engine) takeCensus(sp *spell.Speller) *census.Census {
	c := e.census.Census(&census.Names{Symbols: sp.Syms, Sites: sp.Sites, Site: sp.Site})
	c.Hubs = e.queues.Hubs(sp)
	return c
}

// kinds leaves out what was only looked at in case that nothing better would
// be found.
func (e *engine) kinds() func(request.Kind) bool {
	if e.opts.Request != nil {
		return nil
	}
	if e.pass.Finder.Sure() {
		return func(k request.Kind) bool {
			return k != request.Goroutine && k != request.Loop && k != request.Main
		}
	}
	some := e.groups.Has(func(k request.Kind) bool { return k != request.Main })
	return func(k request.Kind) bool { return k != request.Main || !some }
}

func (e *engine) warnings(rep *report.Report, cut error) {
	dec := e.pass.Decoder
	warn := func(code, text string) {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: code, Text: text})
	}
	for _, w := range e.pass.Reader.Warnings() {
		warn(w.Code, w.Text)
	}
	if cut != nil {
		warn("truncated", fmt.Sprintf("%v; %s before it are reported", cut, plural(e.pass.Generations, "whole generation")))
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
	for i := range rep.Groups {
		if text := beforeMarks(&rep.Groups[i]); text != "" {
			warn("before-marks", text)
			break
		}
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
	if id := e.opts.TraceID; id != [16]byte{} && len(rep.Groups) == 0 {
		warn("no-requests", fmt.Sprintf("no request of the trace %x ended in this recording, or none says that it is of it: marks of service/mark do, and tracers that write ids as user logs", id))
		return
	}
	if len(rep.Groups) == 0 || len(rep.Groups) == 1 && rep.Groups[0].Kind == report.KindFunc && e.opts.Request == nil {
		if e.opts.Request != nil {
			warn("no-requests", fmt.Sprintf("no call of a function that matches %q was seen", e.opts.Request))
		} else {
			warn("no-requests", "no requests were found in this trace: no server handled any, no goroutine did the same work again and again; name a function with --request, or record while the service is busy")
		}
	}
}

// beforeMarks says so where requests spent much of their time before their
// marks began, which is no part of their latency.
func beforeMarks(g *report.Group) string {
	const much = 1_000_000
	last := func(p99, top *int64) int64 {
		switch {
		case p99 != nil:
			return *p99
		case top != nil:
			return *top
		}
		return 0
	}
	if g.BeforeNS == nil {
		return ""
	}
	before, in := last(g.BeforeNS.P99, g.BeforeNS.Max), last(g.LatencyNS.P99, g.LatencyNS.Max)
	if before < much || before < in/2 {
		return ""
	}
	return fmt.Sprintf("requests of %s spent up to %v in this process before their marks began, which is not in their latency; --no-marks tells on what", g.Name, time.Duration(before).Round(10*time.Microsecond))
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

func (s *runtimeStats) report(start, end int64) report.Runtime {
	s.phases.Close(end, s.addMark)
	r := report.Runtime{
		GC:       report.GC{Cycles: s.cycles, MarkNS: s.markNS, HeapMaxBytes: int64(min(s.heapMax, 1<<62)), GoalMaxBytes: int64(min(s.goalMax, 1<<62))},
		Sched:    report.Sched{Goroutines: s.goroutines},
		Throttle: report.Throttle{Verdict: freeze.Unknown},
		STW:      []report.STW{},
		Series:   s.series.report(start, end),
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
