package request

import (
	"slices"

	"github.com/whylate/whylate/internal/explain/entry"
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
	// ended are by the goroutine on which they began. They wait for the request of a protocol around them, which decides
	// whether they or that request is reported.
	ended map[uint64]*[]endedTask
}

type task struct {
	openRequest
	goroutine uint64 // on which the task began
	name      tracefmt.StringID
	isRequest bool
}

type endedTask struct {
	openRequest
	request Request
}

func (ts *taskSource) addEvent(c *collector, event *timeline.UserEvent) {
	if event.Kind == timeline.TaskBegin {
		parent := ts.open[event.Parent]
		ts.open[event.Task] = &task{
			openRequest: openAt(event.Time), goroutine: event.G, name: event.Name,
			isRequest: event.Parent == 0 || parent == nil || event.Time-parent.start >= containerTaskNS,
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
		*list = append(*list, endedTask{t.openRequest, Request{Kind: Task, End: event.Time, G: event.G, Name: t.name}})
	}
}

// emitInstead removes the tasks that began in a request from the waiting ones. If they cover half of the request or more,
// it emits them in place of the request. Otherwise they are parts of it.
func (ts *taskSource) emitInstead(out *[]Request, id uint64, begin *openRequest, end int64) bool {
	tasks := ts.ended[id]
	if tasks == nil {
		return false
	}
	var inside []endedTask
	var sum int64
	*tasks = slices.DeleteFunc(*tasks, func(t endedTask) bool {
		isInside := begin.cutAtStart || begin.start <= t.start && t.start <= end
		if isInside {
			inside = append(inside, t)
			sum += min(t.request.End, end) - t.start
		}
		return isInside
	})
	if begin.cutAtStart || len(inside) == 0 || 2*sum < end-begin.start {
		return false
	}
	for i := range inside {
		*out = append(*out, inside[i].complete(inside[i].request))
	}
	return true
}

// settle emits the tasks that are in no open request.
func (ts *taskSource) settle(c *collector, _ *timeline.Gen) {
	for id, tasks := range ts.ended {
		o := c.openServed(id)
		*tasks = slices.DeleteFunc(*tasks, func(t endedTask) bool {
			isFree := o == nil || o.start > t.start
			if isFree {
				c.emit(&t.openRequest, t.request)
			}
			return isFree
		})
		if len(*tasks) == 0 {
			delete(ts.ended, id)
		}
	}
}

func (ts *taskSource) isOpenAt(g uint64, t int64) bool {
	for _, task := range ts.open {
		if task.goroutine == g && task.start <= t {
			return true
		}
	}
	return false
}

func (ts *taskSource) visitOpen(visit func(*openRequest, Request)) {
	for _, t := range ts.open {
		if t.isRequest {
			visit(&t.openRequest, Request{Kind: Task, G: t.goroutine, Name: t.name})
		}
	}
}
