package request

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Start describes the goroutines of one start function. It is a choice that a user has if no requests were found.
type Start struct {
	// RootFrame is a frame of the outermost service function, or of the start function if there is none.
	RootFrame tracefmt.FrameID
	// InnerFrame is a frame of the service function that RootFrame's function called most often, 0 for none. Its calls
	// have a beginning and an end.
	InnerFrame tracefmt.FrameID
	Goroutines int
	Wakes      int   // waits that ended
	RunningNS  int64 // sum over the goroutines
}

// startCounter measures the goroutines of start functions as long as no requests are found.
type startCounter struct {
	byStartFunc map[tracefmt.StringID]*startStats
	byGoroutine map[uint64]*startStats // goroutines that were counted
	spans       []timeline.Span
}

type startStats struct {
	Start
	innerCounts map[tracefmt.FrameID]int // how often each frame appeared after another
	lastInner   tracefmt.StringID
}

func (s *startCounter) add(f *Finder, g *timeline.Gen) {
	if s.byStartFunc == nil {
		s.byStartFunc, s.byGoroutine = make(map[tracefmt.StringID]*startStats), make(map[uint64]*startStats)
	}
	removeUnknown(s.byGoroutine, g)
	g.Goroutines(func(id uint64) {
		s.spans = f.window.Spans(id, g.Base, g.End, s.spans[:0])
		stats := s.byGoroutine[id]
		if stats == nil {
			if stats = s.statsFor(f); stats == nil {
				return
			}
			stats.Goroutines++
			s.byGoroutine[id] = stats
		}
		for i := range s.spans {
			stats.add(f, &s.spans[i])
		}
	})
}

// statsFor returns the statistics of the goroutine that has s.spans. It is nil if the spans have no stack or the
// goroutine is of no interest.
func (s *startCounter) statsFor(f *Finder) *startStats {
	outer := tracefmt.FrameID(0)
	for i := range s.spans {
		span := &s.spans[i]
		if span.Stack == 0 || span.Origin == timeline.OriginCreated {
			continue
		}
		info := f.stackInfo(span.Stack)
		if info.role == roleServer || f.namer.function(info.startFunc).Has(knowledge.TraceRecorder) {
			return nil
		}
		if info.outerOwned != 0 {
			outer = info.outerOwned
			break
		}
		if frames := f.syms.Stack(span.Stack); info.role == roleUnclaimed && len(frames) > 0 {
			outer = frames[len(frames)-1]
		}
	}
	if outer == 0 {
		return nil
	}
	fn := f.syms.Frame(outer).Func
	stats := s.byStartFunc[fn]
	if stats == nil {
		stats = &startStats{Start: Start{RootFrame: outer}, innerCounts: make(map[tracefmt.FrameID]int)}
		s.byStartFunc[fn] = stats
	}
	return stats
}

// add counts a span.
func (sum *startStats) add(f *Finder, span *timeline.Span) {
	switch {
	case span.State == timeline.Running:
		sum.RunningNS += span.End - max(span.Start, f.traceStart)
	case span.State == timeline.Waiting && span.Woken:
		sum.Wakes++
	}
	if span.Stack == 0 || span.Origin == timeline.OriginCreated {
		return
	}
	// Find the service function that the root calls.
	frames := f.syms.Stack(span.Stack)
	innerFrame, isBelowRoot := tracefmt.FrameID(0), false
	for k := len(frames) - 1; k >= 0; k-- {
		fr := f.syms.Frame(frames[k])
		if isBelowRoot && f.namer.isOwned(fr) {
			innerFrame = frames[k]
			break
		}
		isBelowRoot = isBelowRoot || fr.Func == f.syms.Frame(sum.RootFrame).Func
	}
	fn := tracefmt.StringID(0)
	if innerFrame != 0 {
		fn = f.syms.Frame(innerFrame).Func
	}
	if fn != sum.lastInner && innerFrame != 0 {
		sum.innerCounts[innerFrame]++
	}
	sum.lastInner = fn
}

// Starts returns the start functions, those with the most wakes first. It is for traces without requests.
func (f *Finder) Starts() []Start {
	var out []Start
	for _, stats := range f.starts.byStartFunc {
		start := stats.Start
		maxCount := 0
		countByFunc := make(map[tracefmt.StringID]int)
		for fr, n := range stats.innerCounts {
			countByFunc[f.syms.Frame(fr).Func] += n
		}
		for fr := range stats.innerCounts {
			n := countByFunc[f.syms.Frame(fr).Func]
			if n > maxCount || n == maxCount && f.isFrameBefore(fr, start.InnerFrame) {
				maxCount, start.InnerFrame = n, fr
			}
		}
		out = append(out, start)
	}
	slices.SortFunc(out, func(a, b Start) int {
		return cmp.Or(cmp.Compare(b.Wakes, a.Wakes), cmp.Compare(b.RunningNS, a.RunningNS),
			cmp.Compare(b.Goroutines, a.Goroutines), cmp.Compare(f.frameFuncName(a.RootFrame), f.frameFuncName(b.RootFrame)))
	})
	return out
}

func (f *Finder) frameFuncName(fr tracefmt.FrameID) string {
	return f.syms.String(f.syms.Frame(fr).Func)
}

// isFrameBefore orders frames by function and line.
func (f *Finder) isFrameBefore(a, b tracefmt.FrameID) bool {
	return cmp.Or(cmp.Compare(f.frameFuncName(a), f.frameFuncName(b)), cmp.Compare(f.syms.Frame(a).Line, f.syms.Frame(b).Line)) < 0
}
