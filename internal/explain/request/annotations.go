package request

import (
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// containerTaskNS is how long a task may be open before its children count as requests. A task around the whole service
// is no request.
const containerTaskNS = 2e9

type task struct {
	openRequest
	goroutine uint64 // on which the task began
	name      tracefmt.StringID
	isRequest bool
}

type region struct {
	openRequest
	name        tracefmt.StringID
	beginStack  tracefmt.StackID // of the event that began the region
	isOutermost bool             // in no task and in no other region
}

// An endedTask waits for the request of a protocol around it, which decides whether the task or that request is
// reported.
type endedTask struct {
	openRequest
	request Request
}

// emitTasksInstead removes the tasks that began in a request on goroutine id from the waiting ones. If they cover half
// of the request or more, it emits them in place of the request and returns true. Otherwise they are parts of it.
func (f *Finder) emitTasksInstead(id uint64, start, end int64) bool {
	var inside, outside []endedTask
	var sum int64
	for _, t := range f.endedTasks[id] {
		if t.start >= start && t.start <= end {
			inside = append(inside, t)
			sum += min(t.request.End, end) - t.start
		} else {
			outside = append(outside, t)
		}
	}
	if len(inside) == 0 {
		return false
	}
	f.endedTasks[id] = outside
	if 2*sum < end-start {
		return false
	}
	for i := range inside {
		f.emit(&inside[i].openRequest, inside[i].request)
	}
	return true
}

// emitFreeTasks emits the tasks that are in no open request.
func (f *Finder) emitFreeTasks() {
	for id, tasks := range f.endedTasks {
		var held []endedTask
		for i := range tasks {
			if o := f.protocolRequest(id); o != nil && o.start <= tasks[i].start {
				held = append(held, tasks[i])
			} else {
				f.emit(&tasks[i].openRequest, tasks[i].request)
			}
		}
		if len(held) == 0 {
			delete(f.endedTasks, id)
		} else {
			f.endedTasks[id] = held
		}
	}
}

// followAnnotations processes the generation's user tasks, regions and marks.
func (f *Finder) followAnnotations(g *timeline.Gen) {
	for i := range g.User {
		event := &g.User[i]
		switch event.Kind {
		case timeline.LogMessage:
			if !f.opts.IgnoreMarks {
				f.followMark(event)
			}
		case timeline.TaskBegin:
			t := &task{
				openRequest: openRequest{start: event.Time, pieceStart: event.Time}, goroutine: event.G, name: event.Name, isRequest: true,
			}
			if p := f.tasks[event.Parent]; event.Parent != 0 && p != nil && event.Time-p.start < containerTaskNS {
				t.isRequest = false
			}
			f.tasks[event.Task] = t
		case timeline.TaskEnd:
			t := f.tasks[event.Task]
			if t == nil {
				continue
			}
			delete(f.tasks, event.Task)
			f.work.addAnnotation(t.goroutine, t.start, event.Time)
			f.work.annotated[event.G] = true
			if !t.isRequest || t.name == 0 || f.isPartlyMarked(t.goroutine, &t.openRequest) {
				continue
			}
			f.endedTasks[t.goroutine] = append(f.endedTasks[t.goroutine], endedTask{
				t.openRequest, Request{Kind: Task, End: event.Time, G: event.G, Name: t.name},
			})
		case timeline.RegionBegin:
			nested := f.openRegions[event.G]
			f.openRegions[event.G] = append(nested, region{
				openRequest: openRequest{start: event.Time, pieceStart: event.Time},
				name:        event.Name,
				beginStack:  event.Stack,
				isOutermost: len(nested) == 0 && event.Task == 0 && f.connections[event.G] == nil && f.streams[event.G] == nil,
			})
		case timeline.RegionEnd:
			nested := f.openRegions[event.G]
			if len(nested) == 0 {
				continue
			}
			last := nested[len(nested)-1]
			if last.name != event.Name {
				// The region of this end began before the trace.
				continue
			}
			isServices := f.inspectRegion(event.G, &last, event)
			if isServices {
				f.work.addAnnotation(event.G, last.start, event.Time)
			}
			if nested = nested[:len(nested)-1]; len(nested) == 0 {
				delete(f.openRegions, event.G)
			} else {
				f.openRegions[event.G] = nested
			}
			if last.isOutermost && !f.isPartlyMarked(event.G, &last.openRequest) {
				o := f.originFor(Region, last.name, 0)
				o.total++
				o.isOwned = o.isOwned || isServices
				f.emit(&last.openRequest, Request{Kind: Region, End: event.Time, G: event.G, Name: last.name})
			}
		}
	}
	removeEnded(f.openRegions, g, nil)
}

// inspectRegion reports whether a region of goroutine g delimits work of the service. It does if the innermost function
// that encloses both its ends is service code, or if service code ran in it, as when a framework marks its calls of the
// service. Regions of a library around its own work are no requests; their callers may be. It counts the inspection.
func (f *Finder) inspectRegion(g uint64, r *region, end *timeline.UserEvent) bool {
	if f.isCommonCallerOwned(r.beginStack, end.Stack) {
		return true
	}
	origin := f.originFor(Region, r.name, 0)
	if origin.isOwned || origin.inspected >= settledCount {
		return origin.isOwned
	}
	origin.inspected++
	caller := f.stackInfo(end.Stack).innerOwned
	f.spanBuffer = f.window.SpansCoarse(g, max(r.start, f.window.Start()), end.Time, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		span := &f.spanBuffer[i]
		if span.Stack == 0 || span.End >= end.Time || span.Origin == timeline.OriginCreated {
			continue // the run continues after the region, and its stack is from its end
		}
		if in := f.stackInfo(span.Stack).innerOwned; in != 0 && in != caller {
			return true
		}
	}
	return false
}

// isCommonCallerOwned reports whether the innermost function that two stacks share, except for the standard library's,
// is service code. If they share none, the innermost function of the end's stack decides.
func (f *Finder) isCommonCallerOwned(begin, end tracefmt.StackID) bool {
	innermost := tracefmt.FrameID(0)
	for _, fr := range f.syms.Stack(end) {
		frame := f.syms.Frame(fr)
		if f.namer.frameFunction(fr).Has(knowledge.Stdlib) {
			continue
		}
		if innermost == 0 {
			innermost = fr
		}
		for _, beginFrame := range f.syms.Stack(begin) {
			if f.syms.Frame(beginFrame).Func == frame.Func {
				return f.namer.isOwned(frame)
			}
		}
	}
	return innermost == 0 || f.namer.isOwned(f.syms.Frame(innermost))
}
