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
type Excerpt struct {
	// Start and To are since the trace's start; of the last generation, To is the beginning of its last batch.
	Start, End  time.Duration
	Generations int
	Loss
}

// hostMargin is for how long before and after its part the samples of the host are kept: some are taken once a second, and
// counters mean something only as differences.
const hostMargin = 1100 * time.Millisecond

// ErrEmptyRange is wrapped where nothing of a trace lies in the time that was asked for.
var ErrEmptyRange = errors.New("the trace has nothing in that time")

// Cut writes the generations of a trace that lie in [from, to), counted from its start, as a trace of its own: each stands
// for itself, as those of the flight recorder do, so a part is at most about a second longer on each side than asked for.
// A to of 0 means the end. The CPU profile of a bundle, which is of the whole time, is left out; its samples stand in the
// trace, too. The profile of allocations stays: only shares are read from it.
//
// An error wraps ErrEmptyRange, or is what reading s or writing w failed with; what was written by then is of no use. Damage is not an
// error: Part.Loss says what could not be read, as does the metadata of a bundle.
func Cut(w io.Writer, s *Source, from, to time.Duration) (Excerpt, error) {
	if to <= 0 {
		to = math.MaxInt64
	}
	if !s.isBundle() {
		excerpt, _, err := cutTrace(w, s, from, to)
		return excerpt, err
	}
	entries := s.readEntries()
	var excerpt Excerpt
	var first *tracefmt.Generation
	err := entries.writeBundle(w, func(w io.Writer) (err error) {
		excerpt, first, err = cutTrace(w, s, from, to)
		return err
	}, func() (err error) {
		start, wall, ok := startOf(first)
		if ok {
			begin, end := start+int64(excerpt.Start), start+int64(excerpt.End)
			entries.host, err = filterHostLines(entries.host, func(l *host.Line) bool {
				isFrame := l.Kind == host.KindStart || l.Kind == host.KindEnd
				return isFrame || l.Kind != host.KindTrace && l.MonoNS >= begin-int64(hostMargin) && l.MonoNS <= end+int64(hostMargin)
			})
		}
		entries.cpu = nil
		m, length := &entries.meta, int64(excerpt.End-excerpt.Start)
		if s.Bundle == nil && ok {
			m.Start = wall
		}
		m.Start = m.Start.Add(excerpt.Start)
		m.RequestedNS, m.WindowNS, m.ReceivedNS = length, length, length
		m.Warnings = append(m.Warnings, bundle.Warning{Code: "cut", Text: fmt.Sprintf("this is a part of a longer recording, from %v to %v of it", excerpt.Start.Round(time.Millisecond), excerpt.End.Round(time.Millisecond))})
		entries.loss.Truncated = excerpt.Truncated
		excerpt.Loss = entries.loss
		return err
	})
	return excerpt, err
}

// cutTrace writes a part of a trace. It returns the trace's first generation without its batches.
func cutTrace(w io.Writer, s *Source, from, to time.Duration) (excerpt Excerpt, first *tracefmt.Generation, err error) {
	reader, err := s.newReader()
	if err != nil {
		return excerpt, nil, err
	}
	if _, err := w.Write(traceHeader(reader.Minor())); err != nil {
		return excerpt, nil, err
	}
	var previous *tracefmt.Generation // the one before
	writeIfInside := func(g *tracefmt.Generation, end time.Duration) error {
		begin := startOffset(g, first)
		if from > 0 && end <= from || begin >= to {
			return nil
		}
		if excerpt.Generations++; excerpt.Generations == 1 {
			excerpt.Start = begin
		}
		excerpt.End = end
		_, err := w.Write(g.Data)
		return err
	}
	for {
		g, err := reader.Next()
		if err != nil {
			if excerpt.Truncated, err = s.classifyError(err); err != nil {
				return excerpt, first, err
			}
			break
		}
		if first == nil {
			first = &tracefmt.Generation{MinTime: g.MinTime, Freq: g.Freq, Snapshot: g.Snapshot, HasSnapshot: g.HasSnapshot}
		}
		if previous != nil {
			if err := writeIfInside(previous, startOffset(g, first)); err != nil {
				return excerpt, first, err
			}
			previous.Release()
		}
		previous = g
		if startOffset(g, first) >= to {
			break
		}
	}
	if previous == nil {
		return excerpt, first, fmt.Errorf("reading %s: %w: it has no complete generation", s.Name, ErrEmptyRange)
	}
	end := startOffset(previous, first)
	for _, b := range previous.Batches {
		end = max(end, clockTime(previous, b.Time)-clockTime(first, first.MinTime))
	}
	// A batch holds events from its time on; a generation takes about a second.
	if err := writeIfInside(previous, end+time.Second); err != nil {
		return excerpt, first, err
	}
	excerpt.End = min(excerpt.End, end)
	if excerpt.Generations == 0 {
		return excerpt, first, fmt.Errorf("%w: it lasts about %v", ErrEmptyRange, end.Round(10*time.Millisecond))
	}
	return excerpt, first, nil
}

// startOffset is when a generation begins, counted from the first one.
func startOffset(g, first *tracefmt.Generation) time.Duration {
	return clockTime(g, g.MinTime) - clockTime(first, first.MinTime)
}

// clockTime is a time of a generation's clock.
func clockTime(g *tracefmt.Generation, units uint64) time.Duration {
	return time.Duration(tracefmt.NewScale(g.Freq).NS(units))
}
