package threadstate

import (
	"cmp"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// maxPollDelayNS is how long after an arrival a wake of a thread on the same CPU is still attributed to the arrival: both are
// in one interrupt.
const maxPollDelayNS = 50e3

// addEvent applies one kernel event. Switches, wakes, migrations, throttling and refills of a quota change the states of
// threads and the occupants of CPUs; arrivals and sends are recorded by socket, reads by thread, retransmissions and softirq
// time in sums. Lost events make all states unknown from the time of the loss on.
func (t *Tracker) addEvent(syms *tracefmt.Symbols, e *kernelevents.Event) {
	switch e.Kind {
	case kernelevents.Switch:
		if int64(e.Thread) == e.A {
			t.recordOtherProcess(syms, e)
			return
		}
		if th := t.thread(syms, e.Thread); th != nil {
			t.leaveCPU(syms, th, e)
		}
		if th := t.thread(syms, int32(e.A)); th != nil {
			if th.peer != "" {
				t.nameWait(syms, th, e.Time)
			}
			th.enter(change{time: e.Time, cpu: e.CPU, kind: OnCPU})
		}
		t.recordOccupant(syms, e.CPU, e.Time, int32(e.A))
	case kernelevents.Wakeup:
		th := t.thread(syms, e.Thread)
		if th == nil {
			return
		}
		if th.peer != "" {
			t.wakePeer(syms, th, e)
		} else if last := t.lastCPU[e.CPU]; e.D&kernelevents.WakeupBySoftirq != 0 && last.socket != 0 && e.Time-last.time <= maxPollDelayNS {
			arrivals := t.sockets[last.socket].arrivals
			arrivals[len(arrivals)-1].poller = th.tid
		}
		if th.current == OnCPU || th.current == Waiting || th.current == Throttled {
			return // it had not slept yet
		}
		next := change{time: e.Time - e.WakeupDelay(), cpu: int32(e.B), kind: Waiting}
		if th.peer != "" {
			next.name = t.peerState(syms, th, report.PeerCPUWait, "")
		}
		th.enterRunQueue(next)
		t.recordOccupant(syms, int32(e.B), e.Time-e.WakeupDelay(), int32(e.C))
	case kernelevents.Migrate:
		if th := t.thread(syms, e.Thread); th != nil && (th.current == Waiting || th.current == Throttled) {
			th.enter(change{time: e.Time, cpu: int32(e.B), kind: th.current, name: th.changes[len(th.changes)-1].name})
			t.recordOccupant(syms, int32(e.B), e.Time, int32(e.C))
		}
	case kernelevents.Throttled:
		if th := t.thread(syms, e.Thread); th != nil {
			th.throttle(e.Time, e.A)
		}
	case kernelevents.Refill:
		if t.tables.IsThrottleExact {
			return
		}
		for _, th := range t.threads {
			if th.current == Throttled {
				last := th.changes[len(th.changes)-1]
				last.time, last.kind = e.Time, Waiting
				th.enter(last)
			}
		}
	case kernelevents.Arrival:
		s := t.socket(uint64(e.A))
		if s.ownEnd != 0 {
			s.open.arrived = cmp.Or(s.open.arrived, e.Time)
			return
		}
		s.arrivals = append(s.arrivals, arrival{time: e.Time, position: uint32(e.C)})
		t.lastCPU[e.CPU] = lastArrival{uint64(e.A), e.Time}
	case kernelevents.Read:
		if th := t.threads[e.Thread]; th == nil {
			t.usePeerSocket(syms, e)
		} else if e.B > 0 {
			th.reads = append(th.reads, read{time: e.Time, socket: uint64(e.A), length: e.B, end: uint32(e.D)})
		}
	case kernelevents.Send:
		if t.threads[e.Thread] == nil {
			t.usePeerSocket(syms, e)
		} else if s := t.sockets[uint64(e.A)]; s != nil && s.otherEnd != 0 {
			s.sends = append(s.sends, e.Time)
		}
	case kernelevents.Retransmit:
		if t.socket(uint64(e.A)).ownEnd == 0 {
			t.sums.addRetransmission(e.Time, uint64(e.A))
		}
	case kernelevents.Softirq:
		t.sums.softirqNS += e.B
	case kernelevents.Lost:
		t.sums.lost += e.A
		t.invalidateFrom(e.B + t.tables.ClockOffsetNS)
	}
}

// socket returns the socket with an id, creating it on demand.
func (t *Tracker) socket(id uint64) *socket {
	return entry.GetOrAdd(t.sockets, id)
}

// leaveCPU sets the state of thread th after a context switch away from it: waiting for a CPU, throttled, sleeping, on disk or
// stopped.
func (t *Tracker) leaveCPU(syms *tracefmt.Symbols, th *thread, e *kernelevents.Event) {
	if th.peer == "" {
		if th.current == Unknown && len(th.changes) == 0 {
			th.enter(change{time: t.Start(), cpu: e.CPU, kind: OnCPU}) // it had the CPU when the events began
		}
		t.sums.softirqNS += e.D
	}
	state := kernelevents.State(e.B)
	next := change{time: e.Time, cpu: e.CPU}
	switch {
	case state&kernelevents.FrozenByGroup != 0:
		next.kind = Stopped
	case state.Class() == kernelevents.Runnable:
		next.kind = Waiting
		if state&kernelevents.QuotaUsedUp != 0 {
			next.kind = Throttled
		}
		if th.peer != "" {
			next.name = t.peerState(syms, th, report.PeerCPUWait, "")
		}
		th.enterRunQueue(next)
		return
	case state&kernelevents.InIOWait != 0:
		next.kind = Disk
	case state.Class() == kernelevents.DiskWait, state.Class() == kernelevents.Sleeping:
		next.kind = Asleep
	case state.Class() == kernelevents.Stopped:
		next.kind = Stopped
	default:
		next.kind = Unknown
	}
	if th.peer != "" && (next.kind == Disk || next.kind == Asleep) {
		call, _ := state.Call()
		next.name, next.isPoll, next.isLock = t.sleepOfPeer(syms, th, state, int32(e.C)), isPoll(t.tables.Calls[call]), t.tables.Calls[call] == "futex"
	} else if next.kind == Disk || next.kind == Asleep {
		next.name, next.isFault = t.names.internSleep(syms, state, int32(e.C))
	}
	th.enter(next)
}

// enter appends a change of state, not before the last one.
func (th *thread) enter(c change) {
	if n := len(th.changes); n > 0 {
		c.time = max(c.time, th.changes[n-1].time)
	}
	th.current = c.kind
	th.changes = append(th.changes, c)
}

// enterRunQueue appends the change by which a thread enters a run queue.
func (th *thread) enterRunQueue(c change) {
	th.readyIndex = len(th.changes)
	th.enter(c)
}

// throttle changes the wait for a CPU that ends at t: its first ns were held back by a quota (Throttled), only the rest was a
// wait for a CPU.
func (th *thread) throttle(t, ns int64) {
	first, end := th.readyIndex, len(th.changes)
	if end > first && th.changes[end-1].kind == OnCPU && th.changes[end-1].time == t {
		end--
	}
	if first < 0 || first >= end || ns <= 0 {
		return
	}
	throttleEnd := min(th.changes[first].time+ns, t)
	for i := first; i < end; i++ {
		c := &th.changes[i]
		next := t
		if i+1 < end {
			next = th.changes[i+1].time
		}
		if c.time >= throttleEnd {
			c.kind = Waiting
			continue
		}
		c.kind = Throttled
		if next > throttleEnd {
			rest := *c
			rest.time, rest.kind = throttleEnd, Waiting
			th.changes = append(th.changes, change{})
			copy(th.changes[i+2:], th.changes[i+1:])
			th.changes[i+1] = rest
			end++
			i++
		}
	}
}

// recordOccupant records that thread tid (0: idle) has CPU number from a time on.
func (t *Tracker) recordOccupant(syms *tracefmt.Symbols, number int32, time int64, tid int32) {
	c := entry.GetOrAdd(t.cpus, number)
	if n := len(c.occupants); n > 0 {
		last := &c.occupants[n-1]
		if last.tid == tid {
			return
		}
		time = max(time, last.time)
	}
	t.names.internProcess(syms, tid)
	c.occupants = append(c.occupants, occupant{time, tid})
}

// recordOtherProcess records that another process has a CPU while a thread of this process waits behind another thread of this process on
// another CPU. See whoHad.
func (t *Tracker) recordOtherProcess(syms *tracefmt.Symbols, e *kernelevents.Event) {
	t.names.internProcess(syms, e.Thread)
	if n := len(t.otherCPUs); n == 0 || t.otherCPUs[n-1].time != e.Time { // the first of several names them
		t.otherCPUs = append(t.otherCPUs, occupant{e.Time, e.Thread})
	}
}

// invalidateFrom sets all states from a time on to unknown, because the kernel lost events after that. The next event of each thread
// gives it a state.
func (t *Tracker) invalidateFrom(from int64) {
	t.eachThread(func(th *thread) {
		for len(th.changes) > 0 && th.changes[len(th.changes)-1].time > from {
			th.changes = th.changes[:len(th.changes)-1]
		}
		th.enter(change{time: from, kind: Unknown})
		th.readyIndex = len(th.changes)
	})
	for _, s := range t.sockets {
		s.open, s.last = exchange{}, exchange{}
	}
	for _, c := range t.cpus {
		if n := len(c.occupants); n > 0 {
			c.occupants = append(c.occupants, occupant{max(from, c.occupants[n-1].time), -1})
		}
	}
}

// endAllStates sets the state of all threads to unknown at the end of the events.
func (t *Tracker) endAllStates() {
	t.eachThread(func(th *thread) {
		if n := len(th.changes); n > 0 && th.changes[n-1].time < t.End() {
			th.enter(change{time: t.End(), kind: Unknown})
		}
	})
}
