package request

import (
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// container is how long a task may be open before its children count as
// requests of their own: a task around the whole service is not a request.
const container = 2e9

type task struct {
	open
	g    uint64 // where it began
	name tracefmt.StringID
	root bool
}

type region struct {
	open
	name  tracefmt.StringID
	stack tracefmt.StackID // where it began
	outer bool             // in no task and in no other region
}

// A doneTask is a task that ended, but may lie in a request found otherwise,
// which then decides which of the two is reported.
type doneTask struct {
	open
	r Request
}

// fills takes the tasks that lie in a request on goroutine id. If they fill
// half of it or more they are the better name for it: they are handed out,
// and true is returned. If not, they are a part of it and no requests.
func (f *Finder) fills(id uint64, start, end int64) bool {
	var in, rest []doneTask
	var sum int64
	for _, t := range f.done[id] {
		if t.start >= start && t.start <= end {
			in = append(in, t)
			sum += min(t.r.End, end) - t.start
		} else {
			rest = append(rest, t)
		}
	}
	if len(in) == 0 {
		return false
	}
	f.done[id] = rest
	if 2*sum < end-start {
		return false
	}
	for i := range in {
		f.emit(&in[i].open, in[i].r)
	}
	return true
}

// freeTasks hands out the tasks that lie in no request that is still open.
func (f *Finder) freeTasks() {
	for id, ts := range f.done {
		var held []doneTask
		for i := range ts {
			if o := f.serving(id); o != nil && o.start <= ts[i].start {
				held = append(held, ts[i])
			} else {
				f.emit(&ts[i].open, ts[i].r)
			}
		}
		if len(held) == 0 {
			delete(f.done, id)
		} else {
			f.done[id] = held
		}
	}
}

// annotations follows user tasks and regions.
func (f *Finder) annotations(g *timeline.Gen) {
	for i := range g.User {
		e := &g.User[i]
		switch e.Kind {
		case timeline.LogMessage:
			if !f.opts.NoMarks {
				f.markEvent(e)
			}
		case timeline.TaskBegin:
			t := &task{open: open{start: e.Time, from: e.Time}, g: e.G, name: e.Name, root: true}
			if p := f.tasks[e.Parent]; e.Parent != 0 && p != nil && e.Time-p.start < container {
				t.root = false
			}
			f.tasks[e.Task] = t
		case timeline.TaskEnd:
			t := f.tasks[e.Task]
			if t == nil {
				continue
			}
			delete(f.tasks, e.Task)
			f.work.ended(t.g, t.start, e.Time)
			f.work.annotated[e.G] = true
			if !t.root || t.name == 0 || f.markedToo(t.g, &t.open) {
				continue
			}
			f.done[t.g] = append(f.done[t.g], doneTask{t.open, Request{Kind: Task, End: e.Time, G: e.G, Name: t.name}})
		case timeline.RegionBegin:
			rs := f.regions[e.G]
			f.regions[e.G] = append(rs, region{
				open:  open{start: e.Time, from: e.Time},
				name:  e.Name,
				stack: e.Stack,
				outer: len(rs) == 0 && e.Task == 0 && f.conns[e.G] == nil && f.streams[e.G] == nil,
			})
		case timeline.RegionEnd:
			rs := f.regions[e.G]
			if len(rs) == 0 {
				continue
			}
			last := rs[len(rs)-1]
			if last.name != e.Name {
				// Ends of regions that began before the trace.
				continue
			}
			own := f.ownRegion(e.G, &last, e)
			if own {
				f.work.ended(e.G, last.start, e.Time)
			}
			if rs = rs[:len(rs)-1]; len(rs) == 0 {
				delete(f.regions, e.G)
			} else {
				f.regions[e.G] = rs
			}
			if last.outer && !f.markedToo(e.G, &last.open) {
				o := f.origin(Region, last.name, 0)
				o.total++
				o.own = o.own || own
				f.emit(&last.open, Request{Kind: Region, End: e.Time, G: e.G, Name: last.name})
			}
		}
	}
	gone(f.regions, g, nil)
}

// ownRegion reports whether a region of goroutine g tells what the service does: the
// innermost function that lies around both of its ends is the service's own, or the
// service's own code was seen in it, as where a framework marks what it calls. Other
// regions tell what a library does when it is called, and who calls it is looked for
// all the same.
func (f *Finder) ownRegion(g uint64, r *region, end *timeline.UserEvent) bool {
	if f.around(r.stack, end.Stack) {
		return true
	}
	o := f.origin(Region, r.name, 0)
	if o.own || o.n >= manySeen {
		return o.own
	}
	o.n++
	caller := f.stackInfo(end.Stack).caller
	f.span = f.win.SpansCoarse(g, max(r.start, f.win.Start()), end.Time, f.span[:0])
	for i := range f.span {
		s := &f.span[i]
		if s.Stack == 0 || s.End >= end.Time || s.How == timeline.HowCreated {
			continue // a run that goes on is known by its end, which lies after the region
		}
		if in := f.stackInfo(s.Stack).caller; in != 0 && in != caller {
			return true
		}
	}
	return false
}

// around reports whether the innermost function that two stacks have in common,
// leaving aside the standard library's, is the service's own. Where they have none,
// the innermost of the second stands for it.
func (f *Finder) around(begin, end tracefmt.StackID) bool {
	first := tracefmt.FrameID(0)
	for _, fr := range f.syms.Stack(end) {
		frame := f.syms.Frame(fr)
		if f.namer.of(fr).is(std) {
			continue
		}
		if first == 0 {
			first = fr
		}
		for _, of := range f.syms.Stack(begin) {
			if f.syms.Frame(of).Func == frame.Func {
				return f.namer.owned(frame)
			}
		}
	}
	return first == 0 || f.namer.owned(f.syms.Frame(first))
}
