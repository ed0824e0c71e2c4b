package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/whylate/whylate/internal/export"
	"github.com/whylate/whylate/internal/request"
	"github.com/whylate/whylate/internal/summary"
	"github.com/whylate/whylate/internal/timeline"
	"github.com/whylate/whylate/internal/tracefmt"
	"github.com/whylate/whylate/report"
)

// Kept is what Explain leaves, if Options.Keep asks for it, for reading the
// same trace again: then every request can be given in full, although nothing
// but sums was kept of them.
type Kept struct {
	opts   Options
	tables *summary.Tables
	groups map[string]*report.Group
}

func (k *Kept) fill(e *engine, all *summary.Tables, rep *report.Report) {
	k.opts, k.tables, k.groups = e.opts, all, make(map[string]*report.Group)
	for i := range rep.Groups {
		k.groups[rep.Groups[i].ID] = &rep.Groups[i]
	}
}

// Replay reads the trace that was explained again and gives it to a sink. It is the same run once more, so requests, groups
// and causes are the report's. It ends where nothing more can come that lies
// before Options.To.
func (k *Kept) Replay(ctx context.Context, r io.Reader, sink export.Sink) error {
	if k.tables == nil {
		return errors.New("reading a trace again: it was not explained")
	}
	opts := k.opts
	opts.Keep, opts.NoRules, opts.Slowest = nil, true, -1
	e := newEngine(opts)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e.again = &replay{kept: k, sink: sink, ids: k.tables.GroupIDs(), stop: stop, joined: true}
	for _, g := range k.groups {
		e.again.left += g.Count
	}
	rd, err := tracefmt.NewReader(r, tracefmt.Options{MaxGeneration: int(opts.MaxMemory / bytesPerRaw)})
	if err != nil {
		return fmt.Errorf("%s: %w", e.name(), err)
	}
	if _, err = e.run(ctx, rd); err == nil || e.again.err != nil || e.again.enough {
		err = e.again.err
	}
	if err == nil {
		err = sink.Close(e.end - e.start)
	}
	return err
}

// replay is what a second run does besides.
type replay struct {
	kept *Kept
	sink export.Sink
	ids  func(*summary.Tables, *summary.Whole) string
	stop context.CancelCauseFunc
	err  error
	left int // requests of the report that were not given yet
	// enough says that the sink has all that it wants.
	enough bool

	joined  bool
	dropped []*timeline.Gen // not needed by the engine any more
}

// tables returns the one table of a second run: the sink gets requests in
// order.
func (p *replay) tables(e *engine) []*summary.Tables {
	t := summary.New(&e.win, &e.syms, -1)
	t.Freezes, t.Froze = p.kept.tables.Freezes, p.kept.tables.Froze
	t.SetEach(func(w *summary.Whole) {
		if p.err != nil || p.enough {
			return
		}
		group := p.kept.groups[p.ids(t, w)]
		if group == nil {
			return
		}
		p.left--
		id := summary.RequestID(group.ID, w.Start-e.start, w.G)
		p.fail(p.sink.Request(&export.Request{
			Group: group, ID: id, StartNS: w.Start - e.start, LatencyNS: w.End - w.Start, Goroutine: w.G, CauseNS: w.Causes[:],
			Full: func() report.Request {
				return t.Request(w, group.ID, summary.View{Start: e.start, PathMap: e.paths})
			},
		}))
	})
	return []*summary.Tables{t}
}

func (p *replay) fail(err error) {
	if err != nil && p.err == nil {
		p.err = err
		p.stop(err)
	}
}

func (p *replay) generation(g *timeline.Gen, syms *tracefmt.Symbols) {
	if p.err == nil && !p.enough {
		p.fail(p.sink.Generation(g, syms, p.joined))
	}
	p.joined = true
}

// errEnough ends a second reading that need not go on.
var errEnough = errors.New("all that is wanted was read")

// walked ends the reading when all that lies before Options.To was given.
// That is not yet so when a generation begins after it: a request may be known
// for one only later, so they are counted.
func (p *replay) walked() {
	if p.kept.opts.To <= 0 || p.left > 0 || p.err != nil || p.enough {
		return
	}
	if s, ok := p.sink.(interface{ Enough() bool }); !ok || s.Enough() {
		p.enough = true
		p.stop(errEnough)
	}
}

// order brings the requests of a generation into an order that a trace alone
// decides.
func (p *replay) order(reqs []request.Request) {
	slices.SortStableFunc(reqs, request.Compare)
}

// recycle hands a generation back when the sink cannot need it any more.
func (p *replay) recycle(dec *timeline.Decoder, g *timeline.Gen) {
	p.dropped = append(p.dropped, g)
	if len(p.dropped) > export.KeepGenerations {
		dec.Recycle(p.dropped[0])
		p.dropped = slices.Delete(p.dropped, 0, 1)
	}
}
