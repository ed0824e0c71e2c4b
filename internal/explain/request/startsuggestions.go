package request

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
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

// startSource measures the goroutines of start functions as long as no requests are found. It emits none.
type startSource struct {
	sourceStubs
	work        *workIndex
	byStartFunc map[tracefmt.StringID]*startStats
	byGoroutine map[uint64]*startStats // goroutines that were counted
}

// A startStats measures the goroutines of one start function.
type startStats struct {
	Start
	innerCounts map[tracefmt.FrameID]int // how often each frame appeared after another
	lastInner   tracefmt.StringID
}

// add measures the goroutines of a generation by start function, as long as no request was found.
func (s *startSource) add(c *collector, g *timeline.Gen) {
	if c.requestCount+len(c.emitted)+len(c.series.list) > 0 || s.work.isBatch {
		return
	}
	removeUnknown(s.byGoroutine, g)
	g.Goroutines(func(id uint64) {
		stats := s.byGoroutine[id]
		if stats == nil {
			if stats = s.statsFor(c, g, id); stats == nil {
				return
			}
			stats.Goroutines++
			s.byGoroutine[id] = stats
		}
		c.spanBuffer = c.window.EachSpans(id, g.Base, g.End, c.spanBuffer, func(spans []timeline.Span) bool {
			for i := range spans {
				stats.add(c, &spans[i])
			}
			return true
		})
	})
}

// statsFor returns the statistics of the outermost service function of a goroutine, or of its start function, by its stacks in a
// generation; it creates them on first use. It is nil if there is no stack, or if the goroutine is a server's or records the trace.
func (s *startSource) statsFor(c *collector, g *timeline.Gen, id uint64) *startStats {
	outer := tracefmt.FrameID(0)
	c.spanBuffer = c.window.EachSpans(id, g.Base, g.End, c.spanBuffer, func(spans []timeline.Span) bool {
		for span := range entry.Each(spans) {
			if span.Stack == 0 || span.Origin == timeline.OriginCreated {
				continue
			}
			info := c.stackInfo(span.Stack)
			if info.role == roleServer || c.namer.function(info.startFunc).Has(knowledge.TraceRecorder) {
				outer = 0
				return false
			}
			if info.outerServiceFrame != 0 {
				outer = info.outerServiceFrame
				return false
			}
			if frames := c.syms.Stack(span.Stack); info.role == roleUnclaimed && len(frames) > 0 {
				outer = frames[len(frames)-1]
			}
		}
		return true
	})
	if outer == 0 {
		return nil
	}
	fn := c.syms.Frame(outer).Func
	return entry.GetOrMake(s.byStartFunc, fn, func() *startStats {
		return &startStats{Start: Start{RootFrame: outer}, innerCounts: make(map[tracefmt.FrameID]int)}
	})
}

// add counts a span: running time, wakes, and which service function the root function calls.
func (sum *startStats) add(c *collector, span *timeline.Span) {
	switch {
	case span.State == timeline.Running:
		sum.RunningNS += span.End - max(span.Start, c.traceStart)
	case span.State == timeline.Waiting && span.Woken:
		sum.Wakes++
	}
	if span.Stack == 0 || span.Origin == timeline.OriginCreated {
		return
	}
	// Find the service function that the root calls.
	frames := c.syms.Stack(span.Stack)
	innerFrame, isBelowRoot := tracefmt.FrameID(0), false
	for k := len(frames) - 1; k >= 0; k-- {
		fr := c.syms.Frame(frames[k])
		if isBelowRoot && c.namer.isServiceCode(fr) {
			innerFrame = frames[k]
			break
		}
		isBelowRoot = isBelowRoot || fr.Func == c.syms.Frame(sum.RootFrame).Func
	}
	fn := tracefmt.StringID(0)
	if innerFrame != 0 {
		fn = c.syms.Frame(innerFrame).Func
	}
	if fn != sum.lastInner && innerFrame != 0 {
		sum.innerCounts[innerFrame]++
	}
	sum.lastInner = fn
}

// Starts returns the start functions of goroutines, those with the most wakes first: functions that a user may pass to --request
// if no requests were found.
func (f *Finder) Starts() (out []Start) {
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

// frameFuncName returns the name of a frame's function.
func (sr *stackReader) frameFuncName(fr tracefmt.FrameID) string {
	return sr.syms.String(sr.syms.Frame(fr).Func)
}

// isFrameBefore orders frames by function and line.
func (sr *stackReader) isFrameBefore(a, b tracefmt.FrameID) bool {
	return cmp.Or(cmp.Compare(sr.frameFuncName(a), sr.frameFuncName(b)), cmp.Compare(sr.syms.Frame(a).Line, sr.syms.Frame(b).Line)) < 0
}
