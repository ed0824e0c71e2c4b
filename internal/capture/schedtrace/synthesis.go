package schedtrace

import (
	"io"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A goroutine's state, as the trace has it so far.
type state uint8

const (
	unseen state = iota
	runnable
	running
	inSyscall
	waiting
	dead
)

type goroutine struct {
	id     uint64
	state  state
	seq    uint64
	thread *thread // where it runs or is in a system call
}

type thread struct {
	id uint64
	g  *goroutine // that runs or is in a system call
	p  int        // -1: none
	// wokenAt is the time at which the thread got a CPU in a system call of g, 0 if it did not. Whether the call then kept its P is
	// known by the next event.
	wokenAt   int64
	callStack int  // of the system call
	hasSent   bool // the system call has written to a socket

	batch     *batch
	lastTicks uint64
}

type existingGoroutine struct{ id, status uint64 }

// A writer holds the trace while it grows.
type writer struct {
	recording  *Recording
	goroutines map[uint64]*goroutine
	threads    map[uint64]*thread
	procs      []uint64 // sequence numbers of Ps
	idleProcs  []int
	existing   []existingGoroutine
	// hasProcsChange reports that the trace says that its Ps are not those of the process.
	hasProcsChange bool

	batches    []*batch
	strings    []string
	stringIDs  map[string]uint64
	usedStacks map[int]bool
}

// Write writes the recording, whose events are in order of time, as an execution trace of one generation.
func Write(out io.Writer, r *Recording) error {
	w := &writer{recording: r, goroutines: map[uint64]*goroutine{}, threads: map[uint64]*thread{}, stringIDs: map[string]uint64{}, usedStacks: map[int]bool{}}
	for i := range r.Events {
		w.apply(&r.Events[i])
	}
	for _, t := range w.threads {
		if t.wokenAt != 0 {
			w.endSyscall(t, false, t.wokenAt)
		}
	}
	return w.write(out)
}

// threadOf returns the thread with a kernel thread id, which it adds if it is new; a new one has no P.
func (w *writer) threadOf(id uint64) *thread {
	t := w.threads[id]
	if t == nil {
		t = &thread{id: id, p: -1}
		w.threads[id] = t
	}
	return t
}

// goroutineOf returns the goroutine with an id. It adds one that was not seen before, as existing before the recording with the given state.
func (w *writer) goroutineOf(id uint64, initial state) *goroutine {
	g := w.goroutines[id]
	if g == nil {
		g = &goroutine{id: id, state: initial}
		w.goroutines[id] = g
		status := tracefmt.GoWaiting
		if initial == runnable {
			status = tracefmt.GoRunnable
		}
		w.existing = append(w.existing, existingGoroutine{id, status})
	}
	return g
}

// apply writes the events of the trace format that follow from one recorded event, and those that must have preceded it but were not recorded.
func (w *writer) apply(e *Event) {
	if e.Kind == Sample || e.G == 0 {
		return
	}
	t := w.threadOf(e.Thread)
	switch e.Kind {
	case SyscallBegin, SyscallEnd, Send:
		w.applySyscall(t, e)
		return
	case Start:
		// A thread that starts a goroutine has left the one that it had.
		w.endSyscall(t, true, e.Time)
		g := w.goroutineOf(e.G, waiting)
		if g.thread != nil {
			w.endSyscall(g.thread, true, e.Time)
		}
		if g.state != dead && !(g.state == running && g.thread == t) {
			w.run(t, g, e.Time)
		}
		return
	}
	w.endSyscall(t, false, e.Time)
	switch e.Kind {
	case Block:
		if w.runs(t, e.G, e.Time) != nil {
			w.add(t, e.Time, tracefmt.EvGoBlock, w.stringID(e.Reason), w.stackID(e.Stack))
			w.leave(t, waiting, e.Time)
		}
	case Stop:
		if w.runs(t, e.G, e.Time) != nil {
			w.stop(t, e.Reason, w.stackID(e.Stack), e.Time)
		}
	case Destroy:
		if g := w.goroutines[e.G]; g != nil && g.state == waiting {
			g.state = dead // a coroutine that has passed its thread on
		} else if w.runs(t, e.G, e.Time) != nil {
			w.add(t, e.Time, tracefmt.EvGoDestroy)
			w.leave(t, dead, e.Time)
		}
	case Ready:
		w.acts(t, e.Peer, e.Time)
		w.makeReady(t, w.goroutineOf(e.G, waiting), w.stackID(e.Stack), e.Time)
	case Create:
		w.acts(t, e.Peer, e.Time)
		if w.goroutines[e.G] != nil {
			break
		}
		w.takeProc(t, e.Time)
		w.goroutines[e.G] = &goroutine{id: e.G, state: runnable}
		w.add(t, e.Time, tracefmt.EvGoCreate, e.G, w.stackID(e.NewStack), w.stackID(e.Stack))
		if t.g == nil {
			w.returnProc(t, e.Time)
		}
	case Switch:
		next := w.goroutineOf(e.Peer, waiting)
		if g := w.runs(t, e.G, e.Time); g == nil || next.state != waiting {
			break
		}
		next.seq++
		w.add(t, e.Time, tracefmt.EvGoSwitch, next.id, next.seq)
		t.g.state, t.g.thread = waiting, nil
		next.state, next.thread, t.g = running, t, next
	}
}

// acts writes what must have happened if goroutine id acted (made another goroutine ready, or created it) on a thread at a time, in ns: the goroutine
// runs there. If id is 0, the scheduler acted, and no goroutine runs there.
func (w *writer) acts(t *thread, id uint64, time int64) {
	switch {
	case id != 0:
		w.runs(t, id, time)
	case t.g != nil:
		w.stop(t, stopUnspecified, 0, time)
	}
}

// stopUnspecified is the reason of stops of which no event was seen.
const stopUnspecified = "unspecified"

// longestRun is the longest time that a goroutine runs without an event, in nanoseconds: the runtime stops it after 10 ms.
const longestRun = 20e6

// runs writes what must have happened if goroutine id was running on a thread at a time, in ns, and returns the goroutine; nil if it has ended.
func (w *writer) runs(t *thread, id uint64, time int64) *goroutine {
	g := w.goroutines[id]
	if g == nil {
		if t.batch == nil && time-w.recording.Start < longestRun {
			g = w.goroutineOf(id, runnable)
			time = w.recording.Start // it ran before the recording
			t.p = len(w.procs)       // a P that was not idle in the meantime
			w.procs = append(w.procs, 1)
			w.add(t, time, tracefmt.EvProcStart, uint64(t.p), 1)
		} else {
			g = w.goroutineOf(id, waiting) // in a system call, of which the recording has no event
		}
	}
	switch {
	case g.state == dead:
		return nil
	case g.state != running || g.thread != t:
		w.run(t, g, time)
	}
	return g
}

// run writes the start of a goroutine on a thread at a time, in ns, after the end of what the goroutine and the thread did before.
func (w *writer) run(t *thread, g *goroutine, time int64) {
	if t.g != nil {
		w.endSyscall(t, false, time)
		w.stop(t, stopUnspecified, 0, time)
	}
	if g.thread != nil {
		previous := g.thread
		if g.state == inSyscall {
			w.endSyscall(previous, true, time)
		} else {
			w.stop(previous, stopUnspecified, 0, time)
		}
	}
	if g.state == waiting {
		// The poller returns its first goroutine to the scheduler, which starts it without a call that makes it ready.
		w.makeReady(t, g, 0, time)
	}
	w.takeProc(t, time)
	g.seq++
	w.add(t, time, tracefmt.EvGoStart, g.id, g.seq)
	if !w.hasProcsChange {
		// No process has no Ps, so readers of this package's traces know by it that the Ps mean nothing.
		w.add(t, time, tracefmt.EvProcsChange, 0, 0)
		w.hasProcsChange = true
	}
	g.state, g.thread, t.g = running, t, g
}

// makeReady writes that thread t made goroutine g ready at a time, in ns. If g is running in the synthesis, its block is
// written first; nothing is written if g is already ready or has ended.
func (w *writer) makeReady(t *thread, g *goroutine, stack uint64, time int64) {
	if g.thread != nil {
		w.endSyscall(g.thread, false, time)
		w.add(g.thread, time, tracefmt.EvGoBlock, w.stringID("unspecified"), 0)
		w.leave(g.thread, waiting, time)
	}
	if g.state != waiting {
		return
	}
	g.seq++
	w.add(t, time, tracefmt.EvGoUnblock, g.id, g.seq, stack)
	g.state = runnable
}

// stop makes the goroutine of a thread ready, and the thread idle, at a time (ns). reason and stack are written with the event.
func (w *writer) stop(t *thread, reason string, stack uint64, time int64) {
	w.add(t, time, tracefmt.EvGoStop, w.stringID(reason), stack)
	w.leave(t, runnable, time)
}

// leave takes the goroutine off its thread at a time (ns), puts it into state s and makes the thread's P idle.
func (w *writer) leave(t *thread, s state, time int64) {
	t.g.state, t.g.thread, t.g = s, nil, nil
	w.returnProc(t, time)
}

// takeProc gives a thread an idle P, or a new one, and writes its start at a time, in ns; a thread that has a P keeps it.
func (w *writer) takeProc(t *thread, time int64) {
	if t.p >= 0 {
		return
	}
	if n := len(w.idleProcs); n > 0 {
		t.p, w.idleProcs = w.idleProcs[n-1], w.idleProcs[:n-1]
	} else {
		t.p = len(w.procs)
		w.procs = append(w.procs, 0)
	}
	w.procs[t.p]++
	w.add(t, time, tracefmt.EvProcStart, uint64(t.p), w.procs[t.p])
}

// returnProc writes the stop of the thread's P at a time (ns) and makes that P idle.
func (w *writer) returnProc(t *thread, time int64) {
	w.add(t, time, tracefmt.EvProcStop)
	w.idleProcs = append(w.idleProcs, t.p)
	t.p = -1
}
