package request

import (
	"math"
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// containerTaskNS is how long a task may be open before its children count as requests. A task around the whole service
// is no request.
const containerTaskNS = 2e9

// taskSource finds user tasks.
type taskSource struct {
	sourceStubs
	marks *markSource      // tasks with marks are no requests
	open  map[uint64]*task // by the task's id
	// ended are by the goroutine on which they began. They wait for the request of a protocol around them.
	ended map[uint64]*[]endedTask
	// represents holds, by name of a task, whether tasks represent the requests of a protocol around them. The first
	// generation with such requests decides it, so that one handler's requests are in one group.
	represents map[tracefmt.StringID]bool
}

// A task is a user task that has begun.
type task struct {
	openRequest
	goroutine     uint64 // on which the task began
	name          tracefmt.StringID
	isRequest     bool
	isHandlerSpan bool
}

// An endedTask is a user task that has ended and was not emitted yet, because the request around it is open.
type endedTask struct {
	openRequest
	request       Request
	isHandlerSpan bool
	served        *Request // the protocol's request around it, if that ended
}

// addEvent begins or ends a user task. A task is a request if it has no open parent, or if its parent had been open for
// containerTaskNS when it began.
func (ts *taskSource) addEvent(c *collector, event *timeline.UserEvent) {
	if event.Kind == timeline.TaskBegin {
		parent := ts.open[event.Parent]
		ts.open[event.Task] = &task{
			openRequest: openAt(event.Time), goroutine: event.G, name: event.Name,
			isRequest:     event.Parent == 0 || parent == nil || event.Time-parent.start >= containerTaskNS,
			isHandlerSpan: c.isHandlerSpan(event.Stack),
		}
		return
	}
	t := ts.open[event.Task]
	if t == nil {
		return
	}
	delete(ts.open, event.Task)
	c.addAnnotation(t.goroutine, t.start, event.Time)
	c.annotated[event.G] = true
	if t.isRequest && t.name != 0 && !ts.marks.isPartlyMarked(t.goroutine, &t.openRequest) {
		list := entry.GetOrAdd(ts.ended, t.goroutine)
		*list = append(*list, endedTask{
			openRequest: t.openRequest, isHandlerSpan: t.isHandlerSpan,
			request: Request{Kind: Task, End: event.Time, G: event.G, Name: t.name},
		})
	}
}

// isHandlerSpan reports whether a task that began at this stack encloses the work of a handler: the outermost service function,
// or a library before any service code, called the tracing library itself. Clients of databases and peers begin tasks for their
// calls, which enclose only those.
func (sr *stackReader) isHandlerSpan(begin tracefmt.StackID) bool {
	if begin == 0 {
		return false
	}
	info, frames := sr.stackInfo(begin), sr.syms.Stack(begin)
	tracer := slices.IndexFunc(frames, func(f tracefmt.FrameID) bool { return !sr.namer.frameFunction(f).Has(knowledge.Stdlib) })
	switch {
	case info.serviceDepth > 1 || info.isClientCall || tracer < 0:
		return false
	case info.outerServiceFrame == 0 || tracer == info.innerServiceIndex:
		return true
	}
	library := libraryOf(sr.namer.frameFunction(frames[tracer]).name)
	return !slices.ContainsFunc(frames[tracer:info.innerServiceIndex], func(f tracefmt.FrameID) bool {
		return libraryOf(sr.namer.frameFunction(f).name) != library
	})
}

// emitInstead stores a request of a protocol with the ended tasks within it. It returns true if there were any: finishGeneration
// then emits either the request or its tasks.
func (ts *taskSource) emitInstead(_ *[]Request, begin *openRequest, served Request) (found bool) {
	tasks := ts.ended[served.G]
	if tasks == nil {
		return false
	}
	isInside := func(t *endedTask) bool {
		return t.served == nil && t.start <= served.End && (begin.cutAtStart || begin.start <= t.start)
	}
	if begin.cutAtStart {
		*tasks = slices.DeleteFunc(*tasks, func(t endedTask) bool { return isInside(&t) })
		return false
	}
	whole := begin.complete(served)
	if begin.pieceTask != 0 {
		whole.Kind, whole.Name = Task, begin.pieceTask
	}
	for i := range *tasks {
		if t := &(*tasks)[i]; isInside(t) {
			t.served, found = &whole, true
		}
	}
	return found
}

// finishGeneration emits the ended tasks that are in no open request. Of a request with tasks it emits the tasks if these
// represent it (decideRepresenting), else the request. A single task gets the bounds of its request, for which the client waits.
func (ts *taskSource) finishGeneration(c *collector, _ *timeline.Gen) {
	ts.decideRepresenting()
	for id, tasks := range ts.ended {
		o := c.openServed(id)
		for i := 0; i < len(*tasks); {
			t := &(*tasks)[i]
			n := t.countInSameRequest((*tasks)[i:])
			switch {
			case t.served == nil:
				if o == nil || o.start > t.start {
					c.emit(&t.openRequest, t.request)
					t.request.Kind = 0
				}
			case !ts.represents[t.request.Name] || t.served.Piece != WholeRequest:
				c.emitted = append(c.emitted, *t.served)
			case n == 1:
				t.served.Kind, t.served.Name = Task, t.request.Name
				c.emitted = append(c.emitted, *t.served)
			default:
				for k := i; k < i+n; k++ {
					c.emit(&(*tasks)[k].openRequest, (*tasks)[k].request)
				}
			}
			i += n
		}
		*tasks = slices.DeleteFunc(*tasks, func(t endedTask) bool { return t.served != nil || t.request.Kind == 0 })
		if len(*tasks) == 0 {
			delete(ts.ended, id)
		}
	}
}

// decideRepresenting decides, for each new name of tasks, whether such tasks represent the requests that they are in. They do if
// at least half of these requests have one task around the handler's work, or tasks that cover half of the request.
func (ts *taskSource) decideRepresenting() {
	type votes struct{ represented, all int }
	count := map[tracefmt.StringID]votes{}
	for _, tasks := range ts.ended {
		for i := 0; i < len(*tasks); {
			t := &(*tasks)[i]
			n := t.countInSameRequest((*tasks)[i:])
			if t.served != nil {
				sum := int64(0)
				for _, inside := range (*tasks)[i : i+n] {
					sum += min(inside.request.End, t.served.End) - inside.start
				}
				v := count[t.request.Name]
				v.all++
				if n == 1 && t.isHandlerSpan || 2*sum >= t.served.End-t.served.wholeStart {
					v.represented++
				}
				count[t.request.Name] = v
			}
			i += n
		}
	}
	for name, v := range count {
		if _, ok := ts.represents[name]; !ok {
			ts.represents[name] = 2*v.represented >= v.all
		}
	}
}

// countInSameRequest returns how many of the tasks, which begin with t, are in the same request as t.
func (t *endedTask) countInSameRequest(tasks []endedTask) int {
	n := 1
	for t.served != nil && n < len(tasks) && tasks[n].served == t.served {
		n++
	}
	return n
}

// finishTrace emits the requests that the protocols ended at the end of the trace.
func (ts *taskSource) finishTrace(c *collector, _ int64) { ts.finishGeneration(c, nil) }

// nameOfRepresentingTask returns the name of the first task in an open request of a protocol, if such tasks represent requests;
// else 0.
func (ts *taskSource) nameOfRepresentingTask(goroutine uint64, served *openRequest) (name tracefmt.StringID) {
	first := int64(math.MaxInt64)
	if tasks := ts.ended[goroutine]; tasks != nil {
		for _, t := range *tasks {
			if t.served == nil && t.start >= served.start && t.start < first {
				name, first = t.request.Name, t.start
			}
		}
	}
	for _, t := range ts.open {
		if t.goroutine == goroutine && t.isRequest && t.start >= served.start && t.start < first {
			name, first = t.name, t.start
		}
	}
	if !ts.represents[name] {
		return 0
	}
	return name
}

// isOpenAt reports whether a task that is open on goroutine g had begun at t.
func (ts *taskSource) isOpenAt(g uint64, t int64) bool {
	for _, task := range ts.open {
		if task.goroutine == g && task.start <= t {
			return true
		}
	}
	return false
}

// visitOpen visits the open tasks that are requests.
func (ts *taskSource) visitOpen(visit func(*openRequest, Request)) {
	for _, t := range ts.open {
		if t.isRequest {
			visit(&t.openRequest, Request{Kind: Task, G: t.goroutine, Name: t.name})
		}
	}
}
