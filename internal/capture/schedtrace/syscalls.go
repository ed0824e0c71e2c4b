package schedtrace

import "github.com/whylate/whylate/internal/trace/tracefmt"

// The kernel's part of one system call between two events of it takes at most this time, in nanoseconds: between the waits for blocks
// of a file, and between writing to a socket and giving up the CPU.
const (
	betweenWaits = 200_000
	afterSend    = 20_000
)

// applySyscall adds the beginning or the end of a thread's wait in a system call, or a write to a socket. A call ends at the last of its
// events; a call whose events have equal stacks and follow each other immediately is one.
func (w *writer) applySyscall(t *thread, e *Event) {
	isCurrent := t.g != nil && t.g.id == e.G && t.g.state == inSyscall
	if e.Kind == SyscallEnd {
		if isCurrent {
			t.wokenAt = e.Time
		}
		return
	}
	if !isCurrent || t.wokenAt == 0 || t.callStack != e.Stack || e.Time-t.wokenAt > t.longestGap() || e.Kind == Send && t.hasSent {
		w.endSyscall(t, false, e.Time)
		if w.runs(t, e.G, e.Time) == nil {
			return
		}
		w.procs[t.p]++
		w.add(t, e.Time, tracefmt.EvGoSyscallBegin, w.procs[t.p], w.stackID(e.Stack))
		t.g.state, t.callStack, t.hasSent = inSyscall, e.Stack, false
	}
	t.wokenAt = 0
	if e.Kind == Send {
		t.wokenAt, t.hasSent = e.Time, true
	}
}

// longestGap returns the longest time, in ns, until an event that still belongs to the thread's present system call.
func (t *thread) longestGap() int64 {
	if t.hasSent {
		return afterSend
	}
	return betweenWaits
}

// endSyscall ends the system call of a thread, if it is in one: when the thread got a CPU again, or, if that is not known, at latest (ns). If
// lostProc is set, the thread lost its P during the call, and the goroutine becomes runnable.
func (w *writer) endSyscall(t *thread, lostProc bool, latest int64) {
	if t.g == nil || t.g.state != inSyscall {
		return
	}
	time := t.wokenAt
	if time == 0 {
		time = latest
	}
	t.wokenAt = 0
	if !lostProc {
		w.add(t, time, tracefmt.EvGoSyscallEnd)
		t.g.state = running
		return
	}
	w.procs[t.p]++
	w.add(t, time, tracefmt.EvProcSteal, uint64(t.p), w.procs[t.p], t.id)
	w.add(t, time, tracefmt.EvGoSyscallEndBlocked)
	w.idleProcs = append(w.idleProcs, t.p)
	t.p = -1
	t.g.state, t.g.thread, t.g = runnable, nil, nil
}
