package request

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// containerTaskNS is how long a task may be open before its children count as
// requests of their own: a task around the whole service is not a request.
const containerTaskNS = 2e9

type task struct {
	openRequest
	goroutine uint64 // where it began
	name      tracefmt.StringID
	isRequest bool
}

type region struct {
	openRequest
	name        tracefmt.StringID
	beginStack  tracefmt.StackID // where it began
	isOutermost bool             // in no task and in no other region
}

// A endedTask is a task that ended, but may lie in a request found otherwise,
// which then decides which of the two is reported.
type endedTask struct {
	openRequest
	request Request
}

// emitTasksInstead takes the tasks that lie in a request on goroutine id. If they fill
// half of it or more they are the better name for it: they are handed out,
// and true is returned. If not, they are a part of it and no requests.
func (f *Finder) emitTasksInstead(id uint64, start, end int64) bool {
	var in, rest []endedTask
	var sum int64
	for _, t := range f.endedTasks[id] {
		if t.start >= start && t.start <= end {
			in = append(in, t)
			sum += min(t.request.End, end) - t.start
		} else {
			rest = append(rest, t)
		}
	}
	if len(in) == 0 {
		return false
	}
	f.endedTasks[id] = rest
	if 2*sum < end-start {
		return false
	}
	for i := range in {
		f.emit(&in[i].openRequest, in[i].request)
	}
	return true
}

// emitFreeTasks hands out the tasks that lie in no request that is still open.
func (f *Finder) emitFreeTasks() {
	for id, ts := range f.endedTasks {
		var held []endedTask
		for i := range ts {
			if o := f.protocolRequest(id); o != nil && o.start <= ts[i].start {
				held = append(held, ts[i])
			} else {
				f.emit(&ts[i].openRequest, ts[i].request)
			}
		}
		if len(held) == 0 {
			delete(f.endedTasks, id)
		} else {
			f.endedTasks[id] = held
		}
	}
}

// followAnnotations follows user tasks and regions.
func (f *Finder) followAnnotations(g *timeline.Gen) {
	for i := range g.User {
		e := &g.User[i]
		switch e.Kind {
		case timeline.LogMessage:
			if !f.opts.NoMarks {
				f.followMark(e)
			}
		case timeline.TaskBegin:
			t := &task{openRequest: openRequest{start: e.Time, pieceStart: e.Time}, goroutine: e.G, name: e.Name, isRequest: true}
			if p := f.tasks[e.Parent]; e.Parent != 0 && p != nil && e.Time-p.start < containerTaskNS {
				t.isRequest = false
			}
			f.tasks[e.Task] = t
		case timeline.TaskEnd:
			t := f.tasks[e.Task]
			if t == nil {
				continue
			}
			delete(f.tasks, e.Task)
			f.work.addAnnotation(t.goroutine, t.start, e.Time)
			f.work.annotated[e.G] = true
			if !t.isRequest || t.name == 0 || f.isPartlyMarked(t.goroutine, &t.openRequest) {
				continue
			}
			f.endedTasks[t.goroutine] = append(f.endedTasks[t.goroutine], endedTask{t.openRequest, Request{Kind: Task, End: e.Time, G: e.G, Name: t.name}})
		case timeline.RegionBegin:
			rs := f.openRegions[e.G]
			f.openRegions[e.G] = append(rs, region{
				openRequest: openRequest{start: e.Time, pieceStart: e.Time},
				name:        e.Name,
				beginStack:  e.Stack,
				isOutermost: len(rs) == 0 && e.Task == 0 && f.connections[e.G] == nil && f.streams[e.G] == nil,
			})
		case timeline.RegionEnd:
			rs := f.openRegions[e.G]
			if len(rs) == 0 {
				continue
			}
			last := rs[len(rs)-1]
			if last.name != e.Name {
				// Ends of regions that began before the trace.
				continue
			}
			own := f.inspectRegion(e.G, &last, e)
			if own {
				f.work.addAnnotation(e.G, last.start, e.Time)
			}
			if rs = rs[:len(rs)-1]; len(rs) == 0 {
				delete(f.openRegions, e.G)
			} else {
				f.openRegions[e.G] = rs
			}
			if last.isOutermost && !f.isPartlyMarked(e.G, &last.openRequest) {
				o := f.originFor(Region, last.name, 0)
				o.total++
				o.isOwned = o.isOwned || own
				f.emit(&last.openRequest, Request{Kind: Region, End: e.Time, G: e.G, Name: last.name})
			}
		}
	}
	removeEnded(f.openRegions, g, nil)
}

// inspectRegion reports whether a region of goroutine g tells what the service does: the
// innermost function that lies around both of its ends is the service's own, or the
// service's own code was seen in it, as where a framework marks what it calls. Other
// regions tell what a library does when it is called, and who calls it is looked for
// all the same.
func (f *Finder) inspectRegion(g uint64, r *region, end *timeline.UserEvent) bool {
	if f.isCommonCallerOwned(r.beginStack, end.Stack) {
		return true
	}
	o := f.originFor(Region, r.name, 0)
	if o.isOwned || o.inspected >= settledCount {
		return o.isOwned
	}
	o.inspected++
	caller := f.stackInfo(end.Stack).innerOwned
	f.spanBuffer = f.window.SpansCoarse(g, max(r.start, f.window.Start()), end.Time, f.spanBuffer[:0])
	for i := range f.spanBuffer {
		s := &f.spanBuffer[i]
		if s.Stack == 0 || s.End >= end.Time || s.How == timeline.HowCreated {
			continue // a run that goes on is known by its end, which lies after the region
		}
		if in := f.stackInfo(s.Stack).innerOwned; in != 0 && in != caller {
			return true
		}
	}
	return false
}

// isCommonCallerOwned reports whether the innermost function that two stacks have in common,
// leaving aside the standard library's, is the service's own. Where they have none,
// the innermost of the second stands for it.
func (f *Finder) isCommonCallerOwned(begin, end tracefmt.StackID) bool {
	first := tracefmt.FrameID(0)
	for _, fr := range f.syms.Stack(end) {
		frame := f.syms.Frame(fr)
		if f.namer.frameFunction(fr).hasAny(standardLibrary) {
			continue
		}
		if first == 0 {
			first = fr
		}
		for _, of := range f.syms.Stack(begin) {
			if f.syms.Frame(of).Func == frame.Func {
				return f.namer.isOwned(frame)
			}
		}
	}
	return first == 0 || f.namer.isOwned(f.syms.Frame(first))
}
