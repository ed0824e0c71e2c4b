package request

import (
	"cmp"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// regionSource finds user regions outside of tasks and of requests.
type regionSource struct {
	sourceStubs
	marks       *markSource   // regions with marks are no requests
	connections *http1Source  // regions on their goroutines are parts of their requests,
	streams     *streamSource // or of streams
	work        *workIndex    // counts regions as work, because a library's regions are none
	open        map[uint64][]region
}

// A region is a user region that has begun.
type region struct {
	openRequest
	name        tracefmt.StringID
	beginStack  tracefmt.StackID // of the event that began the region
	isOutermost bool             // in no task and in no other region
}

// addEvent begins or ends a region. It emits a region that ended if the region is in no task, request or other region.
func (rs *regionSource) addEvent(c *collector, event *timeline.UserEvent) {
	nested := rs.open[event.G]
	if event.Kind == timeline.RegionBegin {
		rs.open[event.G] = append(nested, region{
			openRequest: openAt(event.Time),
			name:        event.Name,
			beginStack:  event.Stack,
			isOutermost: len(nested) == 0 && event.Task == 0 && !rs.connections.serves(event.G) && !rs.streams.serves(event.G),
		})
		return
	}
	if len(nested) == 0 {
		return
	}
	last := nested[len(nested)-1]
	if last.name != event.Name {
		return // the region of this end began before the trace
	}
	isServices := rs.inspectRegion(c, event.G, &last, event)
	if isServices {
		c.addAnnotation(event.G, last.start, event.Time)
	}
	if nested = nested[:len(nested)-1]; len(nested) == 0 {
		delete(rs.open, event.G)
	} else {
		rs.open[event.G] = nested
	}
	if last.isOutermost && !rs.marks.isPartlyMarked(event.G, &last.openRequest) {
		o := rs.work.originFor(Region, last.name, 0)
		o.total++
		o.hasServiceCode = o.hasServiceCode || isServices
		c.emit(&last.openRequest, Request{Kind: Region, End: event.Time, G: event.G, Name: last.name})
	}
}

func (rs *regionSource) add(_ *collector, g *timeline.Gen) { removeEnded(rs.open, g, nil) }

// emitInstead returns false: regions within a request are parts of it.
func (rs *regionSource) emitInstead(*[]Request, *openRequest, Request) bool { return false }

// isOpenAt reports whether goroutine g has an open region that began by t.
func (rs *regionSource) isOpenAt(g uint64, t int64) bool {
	nested := rs.open[g]
	return len(nested) > 0 && nested[0].start <= t
}

// visitOpen visits the outermost open region of each goroutine, unless a task or another kind of request contains it.
func (rs *regionSource) visitOpen(visit func(*openRequest, Request)) {
	for id, nested := range rs.open {
		if nested[0].isOutermost {
			visit(&nested[0].openRequest, Request{Kind: Region, G: id, Name: nested[0].name})
		}
	}
}

// inspectRegion reports whether a region of goroutine g, which ends now, is work of the service: the innermost function around
// both its ends is service code, or service code ran in it, as when a framework marks its calls of the service. Otherwise it is a
// library's region around its own work, and no request. It counts the inspection, and stops inspecting after settledCount.
func (rs *regionSource) inspectRegion(c *collector, g uint64, r *region, end *timeline.UserEvent) bool {
	if c.isCommonCallerServiceCode(r.beginStack, end.Stack) {
		return true
	}
	origin := rs.work.originFor(Region, r.name, 0)
	if origin.hasServiceCode || origin.inspected >= settledCount {
		return origin.hasServiceCode
	}
	origin.inspected++
	caller := c.stackInfo(end.Stack).innerServiceFrame
	c.spanBuffer = c.window.SpansCoarse(g, max(r.start, c.window.Start()), end.Time, c.spanBuffer[:0])
	for i := range c.spanBuffer {
		span := &c.spanBuffer[i]
		if span.Stack == 0 || span.End >= end.Time || span.Origin == timeline.OriginCreated {
			continue // the run continues after the region, and its stack is from its end
		}
		if in := c.stackInfo(span.Stack).innerServiceFrame; in != 0 && in != caller {
			return true
		}
	}
	return false
}

// isCommonCallerServiceCode reports whether the innermost function that two stacks share is service code; functions of the standard
// library do not count. If they share none, the innermost function of the end's stack decides.
func (sr *stackReader) isCommonCallerServiceCode(begin, end tracefmt.StackID) bool {
	innermost := tracefmt.FrameID(0)
	for _, fr := range sr.syms.Stack(end) {
		frame := sr.syms.Frame(fr)
		if sr.namer.frameFunction(fr).Has(knowledge.Stdlib) {
			continue
		}
		innermost = cmp.Or(innermost, fr)
		for _, beginFrame := range sr.syms.Stack(begin) {
			if sr.syms.Frame(beginFrame).Func == frame.Func {
				return sr.namer.isServiceCode(frame)
			}
		}
	}
	return innermost == 0 || sr.namer.isServiceCode(sr.syms.Frame(innermost))
}
