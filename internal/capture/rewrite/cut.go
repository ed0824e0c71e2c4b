package rewrite

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An Excerpt describes the part of a trace that Cut has copied.
type Excerpt struct {
	// Start and End count from the trace's start. In the last generation, End is the start of the last
	// batch.
	Start, End  time.Duration
	Generations int
	Loss
}

// hostMargin is how much longer than the excerpt, on each side, its host samples are: some counters
// are read once a second, and only differences have a meaning.
const hostMargin = 1100 * time.Millisecond

// kernelMargin is how much longer than the excerpt, on each side, its kernel events are: the first event of each thread
// shows its state, and the end of a wait shows its kind.
const kernelMargin = 300 * time.Millisecond

// ErrEmptyRange is wrapped by errors about a range of time without any part of the trace.
var ErrEmptyRange = errors.New("the trace has nothing in that time")

// Cut copies the generations of a trace that overlap [from, to), counted from its start, as a complete
// trace. Like those of the flight recorder, each generation can be read without the others, so the
// excerpt is at most about a second longer on each side than the range. A to of 0 means the end. Cut
// drops the CPU profile of a bundle, which covers the whole time; the trace has its samples, too. It
// keeps the allocation profile, because reports read only shares from it.
//
// An error wraps ErrEmptyRange, or is an error of reading s or of writing w; then the output is
// unusable. Damage is not an error: Excerpt.Loss and the metadata of a bundle report it.
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
		if first != nil {
			var offset int64
			if k := entries.meta.Kernel; k != nil {
				offset = k.ClockOffsetNS
			}
			start := int64(clockTime(first, first.MinTime)) - offset
			begin, end := start+int64(excerpt.Start)-int64(kernelMargin), start+int64(excerpt.End)+int64(kernelMargin)
			entries.rewriteKernelEvents(func(e *kernelevents.Event) bool { return e.Time >= begin && e.Time <= end }, func(t *kernelevents.Tables) {
				t.Start, t.End = max(t.Start, begin), min(t.End, end)
			})
		}
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

// cutTrace writes the excerpt of a trace. first is the trace's first generation without its batches, of which the excerpt need not have any.
func cutTrace(w io.Writer, s *Source, from, to time.Duration) (excerpt Excerpt, first *tracefmt.Generation, err error) {
	reader, err := s.newReader()
	if err != nil {
		return excerpt, nil, err
	}
	if _, err := w.Write(traceHeader(reader.Minor())); err != nil {
		return excerpt, nil, err
	}
	var previous *tracefmt.Generation // the generation before
	writeIfInside := func(g *tracefmt.Generation, end time.Duration) error {
		begin := startOffset(g, first)
		if from > 0 && end <= from || begin >= to {
			return nil
		}
		if excerpt.Generations++; excerpt.Generations == 1 {
			excerpt.Start = begin
		}
		excerpt.End = end
		for _, part := range g.Parts {
			if _, err := w.Write(part); err != nil {
				return err
			}
		}
		return nil
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
	// The events of a batch follow its time; a generation takes about a second.
	if err := writeIfInside(previous, end+time.Second); err != nil {
		return excerpt, first, err
	}
	excerpt.End = min(excerpt.End, end)
	if excerpt.Generations == 0 {
		return excerpt, first, fmt.Errorf("%w: it lasts about %v", ErrEmptyRange, end.Round(10*time.Millisecond))
	}
	return excerpt, first, nil
}

// startOffset returns when a generation begins, counted from the first one.
func startOffset(g, first *tracefmt.Generation) time.Duration {
	return clockTime(g, g.MinTime) - clockTime(first, first.MinTime)
}

// clockTime converts a time of a generation's clock.
func clockTime(g *tracefmt.Generation, units uint64) time.Duration {
	return time.Duration(tracefmt.NewScale(g.Freq).NS(units))
}
