package rewrite

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Part is what Cut kept.
type Part struct {
	// From and To are since the trace's start; of the last generation, To is the beginning of its last batch.
	From, To    time.Duration
	Generations int
	Loss
}

// beside is for how long before and after its part the samples of the host are kept: some are taken once a second, and
// counters mean something only as differences.
const beside = 1100 * time.Millisecond

// ErrOutside is wrapped where nothing of a trace lies in the time that was asked for.
var ErrOutside = errors.New("the trace has nothing in that time")

// Cut writes the generations of a trace that lie in [from, to), counted from its start, as a trace of its own: each stands
// for itself, as those of the flight recorder do, so a part is at most about a second longer on each side than asked for.
// A to of 0 means the end. The CPU profile of a bundle, which is of the whole time, is left out; its samples stand in the
// trace, too. The profile of allocations stays: only shares are read from it.
//
// An error wraps ErrOutside, or is what reading s or writing w failed with; what was written by then is of no use. Damage is not an
// error: Part.Loss says what could not be read, as does the metadata of a bundle.
func Cut(w io.Writer, s *Source, from, to time.Duration) (Part, error) {
	if to <= 0 {
		to = math.MaxInt64
	}
	if !s.isBundle() {
		p, _, err := cutTrace(w, s, from, to)
		return p, err
	}
	e := s.entries()
	var p Part
	var first *tracefmt.Generation
	err := e.write(w, func(w io.Writer) (err error) {
		p, first, err = cutTrace(w, s, from, to)
		return err
	}, func() (err error) {
		start, wall, ok := beginOf(first)
		if ok {
			begin, end := start+int64(p.From), start+int64(p.To)
			e.host, err = hostLines(e.host, func(l *host.Line) bool {
				once := l.Kind == host.KindStart || l.Kind == host.KindEnd
				return once || l.Kind != host.KindTrace && l.MonoNS >= begin-int64(beside) && l.MonoNS <= end+int64(beside)
			})
		}
		e.cpu = nil
		m, length := &e.meta, int64(p.To-p.From)
		if s.Bundle == nil && ok {
			m.Start = wall
		}
		m.Start = m.Start.Add(p.From)
		m.AskedNS, m.WindowNS, m.GotNS = length, length, length
		m.Warnings = append(m.Warnings, bundle.Warning{Code: "cut", Text: fmt.Sprintf("this is a part of a longer recording, from %v to %v of it", p.From.Round(time.Millisecond), p.To.Round(time.Millisecond))})
		e.loss.Truncated = p.Truncated
		p.Loss = e.loss
		return err
	})
	return p, err
}

// cutTrace writes a part of a trace. It returns the trace's first generation without its batches.
func cutTrace(w io.Writer, s *Source, from, to time.Duration) (p Part, first *tracefmt.Generation, err error) {
	rd, err := s.generations()
	if err != nil {
		return p, nil, err
	}
	if _, err := w.Write(header(rd.Minor())); err != nil {
		return p, nil, err
	}
	var last *tracefmt.Generation // the one before
	keep := func(g *tracefmt.Generation, until time.Duration) error {
		begin := since(g, first)
		if from > 0 && until <= from || begin >= to {
			return nil
		}
		if p.Generations++; p.Generations == 1 {
			p.From = begin
		}
		p.To = until
		_, err := w.Write(g.Data)
		return err
	}
	for {
		g, err := rd.Next()
		if err != nil {
			if p.Truncated, err = s.endOf(err); err != nil {
				return p, first, err
			}
			break
		}
		if first == nil {
			first = &tracefmt.Generation{MinTime: g.MinTime, Freq: g.Freq, Snapshot: g.Snapshot, HasSnapshot: g.HasSnapshot}
		}
		if last != nil {
			if err := keep(last, since(g, first)); err != nil {
				return p, first, err
			}
			last.Release()
		}
		last = g
		if since(g, first) >= to {
			break
		}
	}
	if last == nil {
		return p, first, fmt.Errorf("reading %s: %w: it has no complete generation", s.Name, ErrOutside)
	}
	end := since(last, first)
	for _, b := range last.Batches {
		end = max(end, at(last, b.Time)-at(first, first.MinTime))
	}
	// A batch holds events from its time on; a generation takes about a second.
	if err := keep(last, end+time.Second); err != nil {
		return p, first, err
	}
	p.To = min(p.To, end)
	if p.Generations == 0 {
		return p, first, fmt.Errorf("%w: it lasts about %v", ErrOutside, end.Round(10*time.Millisecond))
	}
	return p, first, nil
}

// since is when a generation begins, counted from the first one.
func since(g, first *tracefmt.Generation) time.Duration {
	return at(g, g.MinTime) - at(first, first.MinTime)
}

// at is a time of a generation's clock.
func at(g *tracefmt.Generation, units uint64) time.Duration {
	return time.Duration(tracefmt.NewScale(g.Freq).NS(units))
}
