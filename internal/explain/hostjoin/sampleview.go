package hostjoin

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Window is the time of a trace, and the relation of its clock to other clocks.
type Window struct {
	Start, End int64 // the trace's clock, ns
	// Snapshot, taken at SnapshotTime on the trace's clock, is nil for traces from before Go 1.25.
	Snapshot     *tracefmt.ClockSnapshot
	SnapshotTime int64
}

// The clock by which the times of samples were converted to the trace's clock.
const (
	clockMonotonic = "monotonic"
	clockWall      = "wall"
	clockRequested = "asked" // by the time at which the trace was requested
)

// maxClockStep is the largest change of the difference between wall and monotonic clock during a recording. Two
// machines did not boot in the same second.
const maxClockStep = time.Second

// clockOffset returns the time to add to the samples' monotonic clock to get the trace's clock, and the clock by which it was
// determined. ok is false if nothing connects the two clocks.
func clockOffset(s *host.Samples, w Window) (offset int64, clock string, ok bool) {
	if w.Snapshot == nil {
		if s.TraceRequest == nil {
			return 0, "", false
		}
		return w.Start - s.TraceRequest.MonoNS, clockRequested, true
	}
	mono := int64(min(w.Snapshot.Mono, 1<<62))
	wall := time.Unix(int64(min(w.Snapshot.UnixSec, 1<<33)), int64(min(w.Snapshot.UnixNsec, 1e9))).UnixNano()
	p := &s.Points[0]
	if d := (p.WallNS - p.MonoNS) - (wall - mono); mono > 0 && d < int64(maxClockStep) && d > -int64(maxClockStep) {
		return w.SnapshotTime - mono, clockMonotonic, true
	}
	return w.SnapshotTime - wall + (p.WallNS - p.MonoNS), clockWall, true
}

// A view is the part of the samples within the window of a trace.
type view struct {
	s        *host.Samples
	offset   int64 // trace clock minus sample clock
	start    int64 // of the trace, on the trace's clock
	from, to int64
}

// viewOf returns the samples in a window, and the clock by which their times were converted. ok is false if they cannot be
// converted. The view is empty (to <= from) if all samples are outside of the window.
func viewOf(s *host.Samples, w Window) (v view, clock string, ok bool) {
	offset, clock, ok := clockOffset(s, w)
	if !ok {
		return v, "", false
	}
	first, last := s.Points[0].MonoNS+offset, s.Points[len(s.Points)-1].MonoNS+offset
	return view{s: s, offset: offset, start: w.Start, from: max(w.Start, first), to: min(w.End, last)}, clock, true
}

// coverage returns the share of the window that the samples cover.
func (v *view) coverage(w Window) float64 { return float64(v.to-v.from) / float64(w.End-w.Start) }

// traceTime converts a time of the samples' monotonic clock to ns since the start of the trace.
func (v *view) traceTime(mono int64) int64 { return mono + v.offset - v.start }

// contains reports whether a time of the samples' clock is in the view.
func (v *view) contains(mono int64) bool { return mono+v.offset >= v.from && mono+v.offset <= v.to }

// enclosingSamples returns the last sample before the view and the first one after it, or the first and last sample of all. The
// growth of the control group's counters between them is the effect of quotas.
func (v *view) enclosingSamples() (from, to *host.Sample) {
	points := v.s.Points
	a, _ := slices.BinarySearchFunc(points, v.from-v.offset+1, func(x host.Sample, t int64) int { return cmp.Compare(x.MonoNS, t) })
	b, _ := slices.BinarySearchFunc(points, v.to-v.offset, func(x host.Sample, t int64) int { return cmp.Compare(x.MonoNS, t) })
	return &points[max(a-1, 0)], &points[min(b, len(points)-1)]
}

// A step is the growth of a counter between two samples that contain it.
type step struct {
	from, to int64 // on the trace's clock
	growth   int64
}

// growthIn returns the part of the growth within [from, to), assuming a constant rate between the two samples.
func (d *step) growthIn(from, to int64) int64 {
	a, b := max(d.from, from), min(d.to, to)
	if b <= a || d.to <= d.from {
		return 0
	}
	if a == d.from && b == d.to {
		return d.growth
	}
	return int64(float64(d.growth) * float64(b-a) / float64(d.to-d.from))
}

// stepsOf returns the growth of a counter between successive samples that have it, for the steps that overlap the view.
// isGroupCounter: it counts for a control group, so there is no step where the process moved to another group.
func (v *view) stepsOf(samples []host.Sample, isGroupCounter bool, counter func(*host.Sample) *int64) iter.Seq[step] {
	return func(yield func(step) bool) {
		var last *host.Sample
		for i := range samples {
			x := &samples[i]
			if counter(x) == nil {
				continue
			}
			if last != nil && (!isGroupCounter || x.GroupIndex == last.GroupIndex) {
				d := step{last.MonoNS + v.offset, x.MonoNS + v.offset, *counter(x) - *counter(last)}
				if d.growth >= 0 && d.to > v.from && d.from < v.to && !yield(d) {
					return
				}
			}
			last = x
		}
	}
}

// totalGrowth returns the total growth of a counter in the view; nil if no sample has the counter.
func (v *view) totalGrowth(steps iter.Seq[step]) *int64 {
	total, read := int64(0), false
	for d := range steps {
		total, read = total+d.growthIn(v.from, v.to), true
	}
	if !read {
		return nil
	}
	return &total
}
