package queues

import (
	"cmp"
	"maps"
	"slices"

	"github.com/whylate/whylate/internal/explain/critpath"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/path"
	"github.com/whylate/whylate/internal/explain/request"
	"github.com/whylate/whylate/internal/explain/spell"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// A request that hands a task to the workers of a pool waits for the worker that ends the task. Until that worker begins the task, it
// works on others, and the request queues, whether a dispatcher, a list or a channel holds the task. The worker begins it where its loop
// last received something before it ends the wait: the functions of the receive are the outermost ones of the stack that ends the wait,
// which is in a call of the loop. A loop that takes tasks from a list under a lock receives nothing while there are any: then a task
// begins after the last event of another one (listTaskBegin).

// A taskWaitSum adds up the waits with one slotKey for the ends of tasks.
type taskWaitSum struct {
	waits, queued     int64 // queued: the worker was at work on other tasks first
	waitNS, otherNS   int64 // otherNS is the part of waitNS in which the workers worked on other tasks
	knownNS, beforeNS int64 // of waits of which it is known when the task began: their time, and the part before that
	workers           goroutineSet
	entries           map[tracefmt.FrameID]taskTime // by the outermost frame of a task outside of the pool's own package
	ownPackageLoop    tracefmt.FrameID              // the loop of workers whose tasks are in its package; 0 if there is none
}

// A taskTime is for how long workers did their own, and other, tasks.
type taskTime struct{ ownNS, otherNS int64 }

func (t taskTime) plus(addend taskTime) taskTime {
	return taskTime{t.ownNS + addend.ownNS, t.otherNS + addend.otherNS}
}

// addTaskWaits adds the waits on a request's path for tasks on other goroutines.
func (p *workerSum) addTaskWaits(w *path.WalkResult) {
	if w.Req.Kind == request.Loop && !w.Req.AnswersClient || w.Req.Kind == request.Run {
		return // the stages of a pipeline wait for each other
	}
	waits := w.FollowedWaits()
	for i := range waits[:min(len(waits), maxRequestWaits)] {
		wait := &waits[i]
		switch wait.Kind {
		case critpath.WaitChan, critpath.WaitSelect, critpath.WaitCond, critpath.WaitGroup:
		default:
			continue
		}
		birth, ok := p.stage.Win.BirthBefore(wait.Waker, wait.End)
		if wait.Waker == 0 || wait.Waker == w.Req.G || ok && isNewFor(&birth, wait, w.Start) || !p.stage.IsOnBehalf(w.Req, wait.G, wait.End) {
			continue
		}
		sum := entry.GetOrAdd(p.taskWaits, slotKey{wait.Kind, p.stage.Sites.SiteOf(wait.Stack), p.stage.Sites.CallOf(wait.Stack)})
		sum.waits, sum.waitNS = sum.waits+1, sum.waitNS+wait.End-wait.Start
		begin, otherNS, loop := p.taskBegin(wait)
		if begin == 0 {
			continue
		}
		sum.knownNS, sum.beforeNS = sum.knownNS+wait.End-wait.Start, sum.beforeNS+begin-wait.Start
		if stack := p.stage.Syms.Stack(wait.WakerStack); loop.ownPackage {
			sum.ownPackageLoop = max(sum.ownPackageLoop, stack[len(stack)-1])
		}
		if sum.workers.add(wait.Waker); otherNS > threshold.IdleCheckNS {
			sum.queued, sum.otherNS = sum.queued+1, sum.otherNS+otherNS
		}
		if ownEntry := p.taskEntry(wait.WakerStack, loop); ownEntry != 0 {
			addToKey(&sum.entries, ownEntry, taskTime{ownNS: wait.End - begin}, taskTime.plus)
		}
		p.addTaskEntries(sum, w, int32(i), begin, loop)
	}
}

// isNewFor reports whether the goroutine that ends a wait was born for it, and so does this task first: during the wait, or before it by the
// waiter itself, since the request started at requestStart.
func isNewFor(birth *timeline.Birth, wait *critpath.FollowedWait, requestStart int64) bool {
	return birth.Time >= wait.Start || birth.Time >= requestStart && birth.Creator == wait.G
}

// A workerLoop shows where a worker's tasks begin in its stacks: below its loop, which has the outermost frames. Tasks are of other packages
// than the loop's, unless ownPackage is true: a service may have both in one package, a library has none.
type workerLoop struct {
	frames     int
	ownPackage bool
}

// taskBegin returns when the goroutine that ended a wait began the task that was waited for, 0 if that is not known; for how long it
// worked on others before, during the wait; and its loop.
func (p *workerSum) taskBegin(wait *critpath.FollowedWait) (begin, otherNS int64, loop workerLoop) {
	ending := p.withoutStdlib(wait.WakerStack)
	if len(ending) == 0 {
		return 0, 0, loop // the reader of a connection, for example
	}
	visit := func(time int64, stack tracefmt.StackID) bool {
		if !p.stage.Sites.HasRole(stack, knowledge.ReceiveWait) && !p.stage.Sites.HasRole(stack, knowledge.SelectWait) {
			return false
		}
		frames := p.withoutStdlib(stack)
		isReceive := len(frames) > 0 && len(frames) < len(ending) && p.isInFunctionOf(ending, frames, len(frames))
		if isReceive && time > begin { // the worker may begin before the request has handed the task over and waits
			begin, loop.frames = max(time, wait.Start), len(frames)
		}
		return isReceive
	}
	var events []taskEvent
	complete := p.stage.Win.EachWake(wait.Waker, wait.Start, wait.End, func(woken timeline.WokenGoroutine, stack tracefmt.StackID) bool {
		visit(woken.Time, stack)
		events = append(events, taskEvent{woken.Time, stack, stack == wait.WakerStack})
		return true
	})
	p.spans = p.stage.Win.Spans(wait.Waker, wait.Start-threshold.IdleCheckNS, wait.End, p.spans[:0])
	p.spans = slices.DeleteFunc(p.spans, func(span timeline.Span) bool { return span.State != timeline.Waiting || span.End >= wait.End })
	for i := range p.spans {
		if visit(p.spans[i].End, p.spans[i].Stack); p.spans[i].End > wait.Start {
			events = append(events, taskEvent{p.spans[i].End, p.spans[i].Stack, false})
		}
	}
	if complete && begin == 0 {
		begin, loop = p.listTaskBegin(events, wait.Stack)
	}
	if !complete || begin == 0 {
		return 0, 0, loop
	}
	idleNS := int64(0)
	for i := range p.spans {
		if span := &p.spans[i]; span.End <= begin && span.Stack != 0 && p.taskEntry(span.Stack, loop) == 0 {
			idleNS += max(0, span.End-max(span.Start, wait.Start)) // in its loop, not in a task
		}
	}
	return begin, max(0, begin-wait.Start-idleNS), loop
}

// A taskEvent is the end of a wait of a pool's worker, or a wake by it, which may be the one that ends a task.
type taskEvent struct {
	time    int64
	stack   tracefmt.StackID
	isAnEnd bool
}

// listTaskBegin returns when a worker's last task began, from its events, if its start function is that of its loop: at the last event before
// those of the task, which is one in another function's task, of the loop, or the end of another task. It returns 0 if there is none, or if
// the task has no event, because then one task may end several waits. The task is of a package that the waiter is in, as the function is that
// it hands over: the reader of a connection only ends waits.
func (p *workerSum) listTaskBegin(events []taskEvent, waiter tracefmt.StackID) (begin int64, loop workerLoop) {
	slices.SortStableFunc(events, func(a, b taskEvent) int { return cmp.Compare(a.time, b.time) })
	loop = workerLoop{frames: 1}
	loop.ownPackage = !slices.ContainsFunc(events, func(e taskEvent) bool { return p.taskEntry(e.stack, loop) != 0 })
	ownFunc := tracefmt.StringID(0)
	for _, e := range slices.Backward(events) {
		frame, fn := p.taskEntry(e.stack, loop), tracefmt.StringID(0)
		if frame != 0 {
			fn = p.stage.Syms.Frame(frame).Func
		}
		switch {
		case ownFunc != 0 && (e.isAnEnd || fn != ownFunc):
			return e.time, loop
		case e.isAnEnd, frame != 0 && !slices.ContainsFunc(p.withoutStdlib(waiter), func(f tracefmt.FrameID) bool { return p.packageAt(f) == p.packageAt(frame) }):
			return 0, loop
		}
		ownFunc = fn
	}
	return 0, loop
}

// withoutStdlib returns the frames of a stack without those of the standard library that it ends in.
func (p *workerSum) withoutStdlib(stack tracefmt.StackID) []tracefmt.FrameID {
	frames := p.stage.Syms.Stack(stack)
	for len(frames) > 0 && !p.stage.Sites.RolesOf(frames[0]).Has(knowledge.NonStdlib) {
		frames = frames[1:]
	}
	return frames
}

// addTaskEntries adds the times of the tasks of a wait's worker in the path's waits and system calls, by the functions that the worker
// calls for them.
func (p *workerSum) addTaskEntries(sum *taskWaitSum, w *path.WalkResult, wait int32, begin int64, loop workerLoop) {
	waits := w.FollowedWaits()
	for step := range entry.Each(w.Steps) {
		if step.Kind == critpath.CPU || step.Kind == critpath.Runnable || step.FollowedWait < 0 {
			continue // its stack is that of the event at its end
		}
		stack, k := step.Stack, step.FollowedWait
		for ; k >= 0 && k != wait; k = waits[k].Parent {
			stack = waits[k].Stack
		}
		frame := p.taskEntry(stack, loop)
		if k < 0 || frame == 0 {
			continue
		}
		ownNS := max(0, step.End-max(step.Start, begin))
		addToKey(&sum.entries, frame, taskTime{ownNS, step.End - step.Start - ownNS}, taskTime.plus)
	}
}

// taskEntry returns the frame of a worker's stack in which its task begins: the outermost one outside of the loop, its package (see
// workerLoop) and the standard library; 0 if there is none. A function of the loop's package that itself waits to receive belongs to the loop.
func (p *workerSum) taskEntry(stack tracefmt.StackID, loop workerLoop) tracefmt.FrameID {
	frames := p.stage.Syms.Stack(stack)
	for i := len(frames) - loop.frames - 1; i >= 0; i-- {
		switch {
		case !p.stage.Sites.RolesOf(frames[i]).Has(knowledge.NonStdlib):
		case p.packageAt(frames[i]) != p.packageAt(frames[len(frames)-loop.frames]):
			return frames[i]
		case loop.ownPackage:
			if len(p.withoutStdlib(stack)) == len(frames)-i && (p.stage.Sites.HasRole(stack, knowledge.CondWait) || p.stage.Sites.HasRole(stack, knowledge.ReceiveWait) || p.stage.Sites.HasRole(stack, knowledge.SelectWait)) {
				return 0
			}
			return frames[i]
		}
	}
	return 0
}

// packageAt returns the import path of the package of a frame's function.
func (p *workerSum) packageAt(f tracefmt.FrameID) string {
	return stdlib.Package(p.stage.Syms.String(p.stage.Syms.Frame(f).Func))
}

// add adds another sum.
func (s *taskWaitSum) add(addend *taskWaitSum) {
	s.waits, s.queued, s.waitNS, s.otherNS = s.waits+addend.waits, s.queued+addend.queued, s.waitNS+addend.waitNS, s.otherNS+addend.otherNS
	s.knownNS, s.beforeNS = s.knownNS+addend.knownNS, s.beforeNS+addend.beforeNS
	s.ownPackageLoop = max(s.ownPackageLoop, addend.ownPackageLoop)
	s.workers.addAll(addend.workers)
	addSums(&s.entries, addend.entries, taskTime.plus)
}

// TaskWaits describes the waits at one line for tasks that workers of a pool do, one at a time.
type TaskWaits struct {
	Wait report.WaitKind
	Site *report.Site
	Call string // the library function in which the goroutines waited; "": none
	// Waits counts the waits, Queued those during which the worker first worked on other tasks, for OtherNS of the WaitNS in all.
	Waits, Queued   int
	WaitNS, OtherNS int64
	Workers         int
	// KnownNS is the part of WaitNS of which it is known when the task began, and BeforeNS the part before that.
	KnownNS, BeforeNS int64
	// Task is where the pool's workers begin the tasks that take most of OtherNS, and which the waiters do not hand over; nil if they are
	// tasks like theirs.
	Task *report.Site
}

// IsQueue reports whether tasks queue for the workers. A goroutine that always does the same task may be a stage of a pipeline that works
// for many requests at once.
func (t *TaskWaits) IsQueue() bool {
	return t != nil && (t.Workers > 1 || t.Task != nil) && t.Queued >= threshold.SmallSample && float64(t.OtherNS) >= threshold.MajorShare*float64(t.WaitNS)
}

// IsOwnWork reports whether workers begin the tasks as soon as they are waited for: requests queue before, if at all.
func (t *TaskWaits) IsOwnWork() bool {
	return t != nil && t.Waits >= threshold.SmallSample && float64(t.KnownNS) >= threshold.MostShare*float64(t.WaitNS) && float64(t.BeforeNS) < threshold.MinorShare*float64(t.WaitNS)
}

// OwnNS returns the mean time of a task of the waiters.
func (t *TaskWaits) OwnNS() int64 { return (t.WaitNS - t.OtherNS) / int64(max(t.Waits, 1)) }

// TaskWaits returns the waits for tasks, by slotKey, those with the most waiting time first. Merge must have been called.
func (s *Sum) TaskWaits(sp *spell.Speller) (out []TaskWaits) {
	compareKeys, all := compareSlotKeys(sp), s.workers[0].taskWaits
	keys := slices.SortedFunc(maps.Keys(all), func(a, b slotKey) int {
		return cmp.Or(cmp.Compare(all[b].waitNS, all[a].waitNS), compareKeys(a, b))
	})
	for _, key := range keys {
		sum := all[key]
		if loop := sp.Site(sum.ownPackageLoop); loop != nil && loop.Module != "" {
			continue
		}
		stats := TaskWaits{Wait: report.WaitKind(key.wait.String()), Site: sp.Site(key.site), Call: sp.Syms.String(key.call), Waits: int(sum.waits), Queued: int(sum.queued),
			WaitNS: sum.waitNS, OtherNS: sum.otherNS, Workers: len(sum.workers), KnownNS: sum.knownNS, BeforeNS: sum.beforeNS}
		entryNS := map[tracefmt.StringID]taskTime{}
		for frame, time := range sum.entries {
			fn := sp.Syms.Frame(frame).Func
			entryNS[fn] = entryNS[fn].plus(time)
		}
		mostFirst := func(a, b tracefmt.FrameID) int {
			return cmp.Or(cmp.Compare(sum.entries[b].otherNS, sum.entries[a].otherNS), sp.CompareFrames(a, b))
		}
		if frames := slices.SortedFunc(maps.Keys(sum.entries), mostFirst); len(frames) > 0 {
			time := entryNS[sp.Syms.Frame(frames[0]).Func]
			if float64(time.otherNS) >= threshold.HalfShare*float64(sum.otherNS) && float64(time.ownNS) < threshold.NoticeableShare*float64(time.otherNS) {
				stats.Task = sp.Site(frames[0])
			}
		}
		out = append(out, stats)
	}
	return out
}
