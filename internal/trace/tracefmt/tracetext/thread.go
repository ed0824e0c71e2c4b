package tracetext

import "github.com/whylate/whylate/internal/trace/tracefmt"

// Proc returns the number of the P that the thread holds, -1 for none.
func (th *Thread) Proc() int { return th.p }

// Running returns the goroutine that the thread runs, 0 for none.
func (th *Thread) Running() uint64 { return th.g }

// currentGoroutine returns the goroutine that the thread runs. If there is none, or its status is another one, it stores an
// error that names the event, and returns a new goroutine that the caller may change without effect.
func (th *Thread) currentGoroutine(event string, status uint64) *goroutine {
	g := th.b.goroutines[th.g]
	if th.g == 0 || g == nil || g.status != status {
		th.b.fail("%s on thread %d: it runs no goroutine in status %d", event, th.id, status)
		return &goroutine{}
	}
	return g
}

// otherGoroutine returns goroutine id. If there is none, or its status is another one, it stores an error that names the event,
// and returns a new goroutine that the caller may change without effect.
func (th *Thread) otherGoroutine(event string, id, status uint64) *goroutine {
	g := th.b.goroutines[id]
	if g == nil || g.status != status {
		th.b.fail("%s of goroutine %d: it is not in status %d", event, id, status)
		return &goroutine{}
	}
	return g
}

// requireProc stores an error if the thread holds no P.
func (th *Thread) requireProc(event string) {
	if th.p == noProc {
		th.b.fail("%s on thread %d, which holds no P", event, th.id)
	}
}

// unbind removes the goroutine from the thread.
func (th *Thread) unbind() {
	if g := th.b.goroutines[th.g]; g != nil {
		g.thread = nil
	}
	th.g = 0
}

// bind makes the thread run a goroutine.
func (th *Thread) bind(id uint64, g *goroutine) {
	g.thread, th.g = th, id
}

// HasRun adds a goroutine that has run on the thread since before the trace.
func (th *Thread) HasRun(id uint64) {
	b := th.b
	if b.gen != 1 || b.goroutines[id] != nil || th.g != 0 {
		b.fail("goroutine %d cannot have been on thread %d before the trace", id, th.id)
		return
	}
	g := &goroutine{status: tracefmt.GoRunning}
	b.goroutines[id] = g
	th.bind(id, g)
	th.addEvent(b.start, "GoStatus", id, th.id, g.status)
}

// Create creates goroutine id with a start function, at the stack frames (none: the runtime creates it).
func (th *Thread) Create(t int64, id uint64, start string, frames ...string) {
	th.create("GoCreate", t, id, tracefmt.GoRunnable, start, frames)
}

// CreateBlocked creates goroutine id, whose first function is start, and which waits for a switch to it (iter.Pull).
func (th *Thread) CreateBlocked(t int64, id uint64, start string, frames ...string) {
	th.create("GoCreateBlocked", t, id, tracefmt.GoWaiting, start, frames)
}

// create writes an event, name, by which the thread creates goroutine id in a status. start is its first function, "" if
// unknown; frames is the stack that created it. It stores an error if the thread holds no P or the goroutine exists.
func (th *Thread) create(name string, t int64, id, status uint64, start string, frames []string) {
	th.requireProc(name)
	if th.b.goroutines[id] != nil {
		th.b.fail("%s of goroutine %d, which exists", name, id)
	}
	th.b.goroutines[id] = &goroutine{status: status}
	var first []string
	if start != "" {
		first = []string{start}
	}
	th.addEvent(t, name, id, th.b.stackID(first), th.b.stackID(frames))
}

// CreateInSyscall creates a goroutine for a thread that comes from C.
func (th *Thread) CreateInSyscall(t int64, id uint64) {
	if th.g != 0 || th.b.goroutines[id] != nil {
		th.b.fail("goroutine %d cannot come from C on thread %d", id, th.id)
	}
	g := &goroutine{status: tracefmt.GoSyscall}
	th.b.goroutines[id] = g
	th.bind(id, g)
	th.addEvent(t, "GoCreateSyscall", id)
}

// DestroyInSyscall ends the thread's goroutine when the thread returns to C. If the thread has a P, it is
// abandoned until another thread steals it.
func (th *Thread) DestroyInSyscall(t int64) {
	th.currentGoroutine("GoDestroySyscall", tracefmt.GoSyscall)
	delete(th.b.goroutines, th.g)
	th.g = 0
	if th.p != noProc {
		th.b.procs[th.p].status = tracefmt.ProcSyscallAbandoned
		th.p = noProc
	}
	th.addEvent(t, "GoDestroySyscall")
}

// Start runs a runnable goroutine.
func (th *Thread) Start(t int64, id uint64) {
	th.requireProc("GoStart")
	if th.g != 0 {
		th.b.fail("thread %d cannot start goroutine %d: it runs %d", th.id, id, th.g)
	}
	g := th.otherGoroutine("GoStart", id, tracefmt.GoRunnable)
	g.status = tracefmt.GoRunning
	g.seq++
	th.bind(id, g)
	th.addEvent(t, "GoStart", id, g.seq)
}

// Block makes the running goroutine wait.
func (th *Thread) Block(t int64, reason string, frames ...string) {
	th.currentGoroutine("GoBlock", tracefmt.GoRunning).status = tracefmt.GoWaiting
	th.unbind()
	th.addEvent(t, "GoBlock", th.b.stringID(reason), th.b.stackID(frames))
}

// Stop makes the running goroutine runnable: it yielded or was preempted.
func (th *Thread) Stop(t int64, reason string, frames ...string) {
	th.currentGoroutine("GoStop", tracefmt.GoRunning).status = tracefmt.GoRunnable
	th.unbind()
	th.addEvent(t, "GoStop", th.b.stringID(reason), th.b.stackID(frames))
}

// Destroy ends the running goroutine.
func (th *Thread) Destroy(t int64) {
	th.currentGoroutine("GoDestroy", tracefmt.GoRunning)
	delete(th.b.goroutines, th.g)
	th.g = 0
	th.addEvent(t, "GoDestroy")
}

// Unblock wakes a waiting goroutine. The waker is the goroutine that runs on the thread; if none runs, it is the
// poller or a timer.
func (th *Thread) Unblock(t int64, id uint64, frames ...string) {
	g := th.otherGoroutine("GoUnblock", id, tracefmt.GoWaiting)
	g.status = tracefmt.GoRunnable
	g.seq++
	th.addEvent(t, "GoUnblock", id, g.seq, th.b.stackID(frames))
}

// Switch passes the thread from the running goroutine, which then waits, to a waiting coroutine.
func (th *Thread) Switch(t int64, id uint64) {
	th.currentGoroutine("GoSwitch", tracefmt.GoRunning).status = tracefmt.GoWaiting
	th.switchTo("GoSwitch", t, id)
}

// SwitchDestroy passes the thread from the running goroutine, which ends, to a waiting coroutine.
func (th *Thread) SwitchDestroy(t int64, id uint64) {
	th.currentGoroutine("GoSwitchDestroy", tracefmt.GoRunning)
	delete(th.b.goroutines, th.g)
	th.switchTo("GoSwitchDestroy", t, id)
}

// switchTo starts the waiting coroutine id; name is that of the event.
func (th *Thread) switchTo(name string, t int64, id uint64) {
	th.unbind()
	g := th.otherGoroutine(name, id, tracefmt.GoWaiting)
	g.status = tracefmt.GoRunning
	g.seq++
	th.bind(id, g)
	th.addEvent(t, name, id, g.seq)
}

// Syscall begins a system call of the running goroutine.
func (th *Thread) Syscall(t int64, frames ...string) {
	th.requireProc("GoSyscallBegin")
	th.currentGoroutine("GoSyscallBegin", tracefmt.GoRunning).status = tracefmt.GoSyscall
	p := th.b.procs[th.p]
	if p == nil {
		p = new(proc)
	}
	p.status = tracefmt.ProcSyscall
	p.seq++
	th.addEvent(t, "GoSyscallBegin", p.seq, th.b.stackID(frames))
}

// SyscallEnd ends a system call in which the thread kept its P.
func (th *Thread) SyscallEnd(t int64) {
	th.requireProc("GoSyscallEnd")
	th.currentGoroutine("GoSyscallEnd", tracefmt.GoSyscall).status = tracefmt.GoRunning
	if p := th.b.procs[th.p]; p != nil {
		p.status = tracefmt.ProcRunning
	}
	th.addEvent(t, "GoSyscallEnd")
}

// SyscallEndBlocked ends a system call in which the thread lost its P (see Steal): the goroutine becomes runnable.
func (th *Thread) SyscallEndBlocked(t int64) {
	if th.p != noProc && th.b.procs[th.p].status == tracefmt.ProcSyscall {
		th.b.fail("thread %d still has its P", th.id)
	}
	th.currentGoroutine("GoSyscallEndBlocked", tracefmt.GoSyscall).status = tracefmt.GoRunnable
	th.unbind()
	th.addEvent(t, "GoSyscallEndBlocked")
}

// Steal takes the P of a thread in a system call; the P becomes idle.
func (th *Thread) Steal(t int64, from *Thread) {
	p := from.p
	if p == noProc || th.b.procs[p].status != tracefmt.ProcSyscall {
		th.b.fail("thread %d has no P in a system call", from.id)
		return
	}
	th.b.procs[p].status = tracefmt.ProcIdle
	th.b.procs[p].seq++
	from.p = noProc
	th.addEvent(t, "ProcSteal", uint64(p), th.b.procs[p].seq, from.id)
}

// StealAbandoned takes a P that a thread abandoned when it returned to C.
func (th *Thread) StealAbandoned(t int64, p int, from *Thread) {
	st := th.b.procs[p]
	if st == nil || st.status != tracefmt.ProcSyscallAbandoned {
		th.b.fail("P %d is not abandoned", p)
		return
	}
	st.status = tracefmt.ProcIdle
	st.seq++
	th.addEvent(t, "ProcSteal", uint64(p), st.seq, from.id)
}

// ProcStop makes the thread's P idle.
func (th *Thread) ProcStop(t int64) {
	th.requireProc("ProcStop")
	if th.p == noProc {
		return
	}
	th.b.procs[th.p].status = tracefmt.ProcIdle
	th.p = noProc
	th.addEvent(t, "ProcStop")
}

// ProcStart takes an idle P.
func (th *Thread) ProcStart(t int64, p int) {
	st := th.b.procs[p]
	if st == nil || st.status != tracefmt.ProcIdle || th.p != noProc {
		th.b.fail("thread %d cannot take P %d", th.id, p)
		return
	}
	st.status = tracefmt.ProcRunning
	st.seq++
	th.p = p
	th.addEvent(t, "ProcStart", uint64(p), st.seq)
}

// ProcsChange writes the value of GOMAXPROCS.
func (th *Thread) ProcsChange(t int64, n int, frames ...string) {
	th.addEvent(t, "ProcsChange", uint64(n), th.b.stackID(frames))
}

// StopWorld begins a stop of the world by the running goroutine.
func (th *Thread) StopWorld(t int64, kind string, frames ...string) {
	th.addEvent(t, "STWBegin", th.b.stringID(kind), th.b.stackID(frames))
}

// StartWorld ends the stop of the world.
func (th *Thread) StartWorld(t int64) { th.addEvent(t, "STWEnd") }

// GCBegin begins the mark phase of a GC cycle.
func (th *Thread) GCBegin(t int64, frames ...string) {
	th.b.gcSeq++
	th.addEvent(t, "GCBegin", th.b.gcSeq, th.b.stackID(frames))
}

// GCEnd ends the mark phase.
func (th *Thread) GCEnd(t int64) {
	th.b.gcSeq++
	th.addEvent(t, "GCEnd", th.b.gcSeq)
}

// AssistBegin begins a mark assist of the running goroutine.
func (th *Thread) AssistBegin(t int64, frames ...string) {
	th.addEvent(t, "GCMarkAssistBegin", th.b.stackID(frames))
}

// AssistEnd ends the mark assist.
func (th *Thread) AssistEnd(t int64) { th.addEvent(t, "GCMarkAssistEnd") }

// AssistActive reports, at the start of a generation, that a goroutine is inside a mark assist.
func (th *Thread) AssistActive(t int64, id uint64) { th.addEvent(t, "GCMarkAssistActive", id) }

// Sweep writes the begin (at from) and the end (at to) of a sweep on the thread's P, with the bytes that were swept and those
// reclaimed.
func (th *Thread) Sweep(from, to int64, swept, reclaimed uint64, frames ...string) {
	th.addEvent(from, "GCSweepBegin", th.b.stackID(frames))
	th.addEvent(to, "GCSweepEnd", swept, reclaimed)
}

// HeapAlloc writes the size of the live heap.
func (th *Thread) HeapAlloc(t int64, bytes uint64) { th.addEvent(t, "HeapAlloc", bytes) }

// HeapGoal writes the heap goal.
func (th *Thread) HeapGoal(t int64, bytes uint64) { th.addEvent(t, "HeapGoal", bytes) }

// Label gives the running goroutine a label, as the runtime does for its own goroutines.
func (th *Thread) Label(t int64, label string) { th.addEvent(t, "GoLabel", th.b.stringID(label)) }

// TaskBegin begins a user task; parent 0 is none.
func (th *Thread) TaskBegin(t int64, task, parent uint64, name string, frames ...string) {
	th.addEvent(t, "UserTaskBegin", task, parent, th.b.stringID(name), th.b.stackID(frames))
}

// TaskEnd ends a user task.
func (th *Thread) TaskEnd(t int64, task uint64, frames ...string) {
	th.addEvent(t, "UserTaskEnd", task, th.b.stackID(frames))
}

// RegionBegin begins a user region of the running goroutine, within a task (its id, 0 for none).
func (th *Thread) RegionBegin(t int64, task uint64, name string, frames ...string) {
	th.addEvent(t, "UserRegionBegin", task, th.b.stringID(name), th.b.stackID(frames))
}

// RegionEnd ends a user region of the running goroutine, within a task (its id, 0 for none).
func (th *Thread) RegionEnd(t int64, task uint64, name string, frames ...string) {
	th.addEvent(t, "UserRegionEnd", task, th.b.stringID(name), th.b.stackID(frames))
}

// Log writes a user's log message, a key and a value, within a task (its id, 0 for none).
func (th *Thread) Log(t int64, task uint64, key, value string, frames ...string) {
	th.addEvent(t, "UserLog", task, th.b.stringID(key), th.b.stringID(value), th.b.stackID(frames))
}
