package tracetext

import "github.com/whylate/whylate/internal/trace/tracefmt"

// Proc returns the number of the P that the thread holds, -1 for none.
func (th *Thread) Proc() int { return th.p }

// Running returns the goroutine that the thread runs, 0 for none.
func (th *Thread) Running() uint64 { return th.g }

// cur returns the goroutine that the thread runs, if it has the status.
func (th *Thread) cur(what string, status uint64) *goroutine {
	g := th.b.gs[th.g]
	if th.g == 0 || g == nil || g.status != status {
		th.b.fail("%s on thread %d: it runs no goroutine in status %d", what, th.id, status)
		return &goroutine{}
	}
	return g
}

func (th *Thread) other(what string, id, status uint64) *goroutine {
	g := th.b.gs[id]
	if g == nil || g.status != status {
		th.b.fail("%s of goroutine %d: it is not in status %d", what, id, status)
		return &goroutine{}
	}
	return g
}

func (th *Thread) needProc(what string) {
	if th.p == noProc {
		th.b.fail("%s on thread %d, which holds no P", what, th.id)
	}
}

// let takes the thread's goroutine off it.
func (th *Thread) let() {
	if g := th.b.gs[th.g]; g != nil {
		g.on = nil
	}
	th.g = 0
}

func (th *Thread) bind(id uint64, g *goroutine) {
	g.on, th.g = th, id
}

// Was tells that goroutine id has run on the thread since before the trace.
func (th *Thread) Was(id uint64) {
	b := th.b
	if b.gen != 1 || b.gs[id] != nil || th.g != 0 {
		b.fail("goroutine %d cannot have been on thread %d before the trace", id, th.id)
		return
	}
	g := &goroutine{status: tracefmt.GoRunning}
	b.gs[id] = g
	th.bind(id, g)
	th.event(b.start, "GoStatus", id, th.id, g.status)
}

// Create makes goroutine id, which begins at the function start, at the place
// given by frames (none: made by the runtime).
func (th *Thread) Create(t int64, id uint64, start string, frames ...string) {
	th.create("GoCreate", t, id, tracefmt.GoRunnable, start, frames)
}

// CreateBlocked makes a goroutine that waits to be switched to (iter.Pull).
func (th *Thread) CreateBlocked(t int64, id uint64, start string, frames ...string) {
	th.create("GoCreateBlocked", t, id, tracefmt.GoWaiting, start, frames)
}

func (th *Thread) create(name string, t int64, id, status uint64, start string, frames []string) {
	th.needProc(name)
	if th.b.gs[id] != nil {
		th.b.fail("%s of goroutine %d, which exists", name, id)
	}
	th.b.gs[id] = &goroutine{status: status}
	var first []string
	if start != "" {
		first = []string{start}
	}
	th.event(t, name, id, th.b.stack(first), th.b.stack(frames))
}

// CreateInSyscall makes a goroutine for a thread that comes from C.
func (th *Thread) CreateInSyscall(t int64, id uint64) {
	if th.g != 0 || th.b.gs[id] != nil {
		th.b.fail("goroutine %d cannot come from C on thread %d", id, th.id)
	}
	g := &goroutine{status: tracefmt.GoSyscall}
	th.b.gs[id] = g
	th.bind(id, g)
	th.event(t, "GoCreateSyscall", id)
}

// DestroyInSyscall ends the thread's goroutine as it goes back to C. Its P,
// if it has one, is then abandoned until another thread steals it.
func (th *Thread) DestroyInSyscall(t int64) {
	th.cur("GoDestroySyscall", tracefmt.GoSyscall)
	delete(th.b.gs, th.g)
	th.g = 0
	if th.p != noProc {
		th.b.ps[th.p].status = tracefmt.ProcSyscallAbandoned
		th.p = noProc
	}
	th.event(t, "GoDestroySyscall")
}

// Start runs a runnable goroutine.
func (th *Thread) Start(t int64, id uint64) {
	th.needProc("GoStart")
	if th.g != 0 {
		th.b.fail("thread %d cannot start goroutine %d: it runs %d", th.id, id, th.g)
	}
	g := th.other("GoStart", id, tracefmt.GoRunnable)
	g.status = tracefmt.GoRunning
	g.seq++
	th.bind(id, g)
	th.event(t, "GoStart", id, g.seq)
}

// Block makes the running goroutine wait.
func (th *Thread) Block(t int64, reason string, frames ...string) {
	th.cur("GoBlock", tracefmt.GoRunning).status = tracefmt.GoWaiting
	th.let()
	th.event(t, "GoBlock", th.b.string(reason), th.b.stack(frames))
}

// Stop makes the running goroutine runnable: it yielded or was preempted.
func (th *Thread) Stop(t int64, reason string, frames ...string) {
	th.cur("GoStop", tracefmt.GoRunning).status = tracefmt.GoRunnable
	th.let()
	th.event(t, "GoStop", th.b.string(reason), th.b.stack(frames))
}

// Destroy ends the running goroutine.
func (th *Thread) Destroy(t int64) {
	th.cur("GoDestroy", tracefmt.GoRunning)
	delete(th.b.gs, th.g)
	th.g = 0
	th.event(t, "GoDestroy")
}

// Unblock wakes a waiting goroutine: by the one that runs here, or, if none
// does, by the poller or a timer.
func (th *Thread) Unblock(t int64, id uint64, frames ...string) {
	g := th.other("GoUnblock", id, tracefmt.GoWaiting)
	g.status = tracefmt.GoRunnable
	g.seq++
	th.event(t, "GoUnblock", id, g.seq, th.b.stack(frames))
}

// Switch hands the thread over to a waiting coroutine; the one that runs waits.
func (th *Thread) Switch(t int64, id uint64) {
	th.cur("GoSwitch", tracefmt.GoRunning).status = tracefmt.GoWaiting
	th.switchTo("GoSwitch", t, id)
}

// SwitchDestroy hands the thread over to a waiting coroutine; the one that
// runs ends.
func (th *Thread) SwitchDestroy(t int64, id uint64) {
	th.cur("GoSwitchDestroy", tracefmt.GoRunning)
	delete(th.b.gs, th.g)
	th.switchTo("GoSwitchDestroy", t, id)
}

func (th *Thread) switchTo(name string, t int64, id uint64) {
	th.let()
	g := th.other(name, id, tracefmt.GoWaiting)
	g.status = tracefmt.GoRunning
	g.seq++
	th.bind(id, g)
	th.event(t, name, id, g.seq)
}

// Syscall begins a system call of the running goroutine.
func (th *Thread) Syscall(t int64, frames ...string) {
	th.needProc("GoSyscallBegin")
	th.cur("GoSyscallBegin", tracefmt.GoRunning).status = tracefmt.GoSyscall
	p := th.b.ps[th.p]
	if p == nil {
		p = new(proc)
	}
	p.status = tracefmt.ProcSyscall
	p.seq++
	th.event(t, "GoSyscallBegin", p.seq, th.b.stack(frames))
}

// SyscallEnd ends a system call during which the P was kept.
func (th *Thread) SyscallEnd(t int64) {
	th.needProc("GoSyscallEnd")
	th.cur("GoSyscallEnd", tracefmt.GoSyscall).status = tracefmt.GoRunning
	if p := th.b.ps[th.p]; p != nil {
		p.status = tracefmt.ProcRunning
	}
	th.event(t, "GoSyscallEnd")
}

// SyscallEndBlocked ends a system call during which the P was lost (see
// Steal): the goroutine is runnable.
func (th *Thread) SyscallEndBlocked(t int64) {
	if th.p != noProc && th.b.ps[th.p].status == tracefmt.ProcSyscall {
		th.b.fail("thread %d still has its P", th.id)
	}
	th.cur("GoSyscallEndBlocked", tracefmt.GoSyscall).status = tracefmt.GoRunnable
	th.let()
	th.event(t, "GoSyscallEndBlocked")
}

// Steal takes the P away from a thread in a system call; it is idle then.
func (th *Thread) Steal(t int64, from *Thread) {
	p := from.p
	if p == noProc || th.b.ps[p].status != tracefmt.ProcSyscall {
		th.b.fail("thread %d has no P in a system call", from.id)
		return
	}
	th.b.ps[p].status = tracefmt.ProcIdle
	th.b.ps[p].seq++
	from.p = noProc
	th.event(t, "ProcSteal", uint64(p), th.b.ps[p].seq, from.id)
}

// StealAbandoned takes over a P that a thread let go on its way back to C.
func (th *Thread) StealAbandoned(t int64, p int, from *Thread) {
	st := th.b.ps[p]
	if st == nil || st.status != tracefmt.ProcSyscallAbandoned {
		th.b.fail("P %d is not abandoned", p)
		return
	}
	st.status = tracefmt.ProcIdle
	st.seq++
	th.event(t, "ProcSteal", uint64(p), st.seq, from.id)
}

// ProcStop lets the thread's P go idle.
func (th *Thread) ProcStop(t int64) {
	th.needProc("ProcStop")
	if th.p == noProc {
		return
	}
	th.b.ps[th.p].status = tracefmt.ProcIdle
	th.p = noProc
	th.event(t, "ProcStop")
}

// ProcStart takes an idle P.
func (th *Thread) ProcStart(t int64, p int) {
	st := th.b.ps[p]
	if st == nil || st.status != tracefmt.ProcIdle || th.p != noProc {
		th.b.fail("thread %d cannot take P %d", th.id, p)
		return
	}
	st.status = tracefmt.ProcRunning
	st.seq++
	th.p = p
	th.event(t, "ProcStart", uint64(p), st.seq)
}

// ProcsChange tells the value of GOMAXPROCS.
func (th *Thread) ProcsChange(t int64, n int, frames ...string) {
	th.event(t, "ProcsChange", uint64(n), th.b.stack(frames))
}

// StopWorld begins a stop of the world by the running goroutine.
func (th *Thread) StopWorld(t int64, kind string, frames ...string) {
	th.event(t, "STWBegin", th.b.string(kind), th.b.stack(frames))
}

// StartWorld ends it.
func (th *Thread) StartWorld(t int64) { th.event(t, "STWEnd") }

// GCBegin begins the mark phase of a GC cycle.
func (th *Thread) GCBegin(t int64, frames ...string) {
	th.b.gcSeq++
	th.event(t, "GCBegin", th.b.gcSeq, th.b.stack(frames))
}

// GCEnd ends it.
func (th *Thread) GCEnd(t int64) {
	th.b.gcSeq++
	th.event(t, "GCEnd", th.b.gcSeq)
}

// AssistBegin begins a mark assist of the running goroutine.
func (th *Thread) AssistBegin(t int64, frames ...string) {
	th.event(t, "GCMarkAssistBegin", th.b.stack(frames))
}

// AssistEnd ends it.
func (th *Thread) AssistEnd(t int64) { th.event(t, "GCMarkAssistEnd") }

// AssistActive tells, at the start of a generation, that a goroutine is inside
// a mark assist.
func (th *Thread) AssistActive(t int64, id uint64) { th.event(t, "GCMarkAssistActive", id) }

// Sweep writes a sweep by the thread's P.
func (th *Thread) Sweep(from, to int64, swept, reclaimed uint64, frames ...string) {
	th.event(from, "GCSweepBegin", th.b.stack(frames))
	th.event(to, "GCSweepEnd", swept, reclaimed)
}

// HeapAlloc tells the live heap.
func (th *Thread) HeapAlloc(t int64, bytes uint64) { th.event(t, "HeapAlloc", bytes) }

// HeapGoal tells the heap goal.
func (th *Thread) HeapGoal(t int64, bytes uint64) { th.event(t, "HeapGoal", bytes) }

// Label names the running goroutine as one of the runtime's.
func (th *Thread) Label(t int64, label string) { th.event(t, "GoLabel", th.b.string(label)) }

// TaskBegin begins a user task; parent 0 is none.
func (th *Thread) TaskBegin(t int64, task, parent uint64, name string, frames ...string) {
	th.event(t, "UserTaskBegin", task, parent, th.b.string(name), th.b.stack(frames))
}

// TaskEnd ends a user task.
func (th *Thread) TaskEnd(t int64, task uint64, frames ...string) {
	th.event(t, "UserTaskEnd", task, th.b.stack(frames))
}

// RegionBegin begins a user region of the running goroutine.
func (th *Thread) RegionBegin(t int64, task uint64, name string, frames ...string) {
	th.event(t, "UserRegionBegin", task, th.b.string(name), th.b.stack(frames))
}

// RegionEnd ends a user region of the running goroutine.
func (th *Thread) RegionEnd(t int64, task uint64, name string, frames ...string) {
	th.event(t, "UserRegionEnd", task, th.b.string(name), th.b.stack(frames))
}

// Log writes a user's log message.
func (th *Thread) Log(t int64, task uint64, key, value string, frames ...string) {
	th.event(t, "UserLog", task, th.b.string(key), th.b.string(value), th.b.stack(frames))
}
