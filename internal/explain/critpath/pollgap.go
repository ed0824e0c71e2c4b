package critpath

import (
	"github.com/whylate/whylate/internal/explain/threshold"
)

// Kinds of steps. The kinds of waits are for waits that the walk could not or need not follow.
const (
	Unknown   Kind = iota // no event: before the trace, or lost
	CPU                   // running
	Runnable              // ready, without a P
	Syscall               // in the kernel or in C code
	Sleep                 // a timer
	Network               // waits for the poller
	PollGap               // the end of a network wait, when no P polled the network
	Lock                  // a semaphore wait without a visible waker
	Chan                  // a channel wait without a visible waker
	Assist                // GC mark assist, running or waiting
	GCWait                // waits for a phase of garbage collection
	StopWorld             // stops the world, or waits to stop it
	Remote                // waits for a request of another process: see RemoteAnswer
)

// unreadTime returns for how long, in ns, data may have waited to be read before the poller woke a goroutine at
// wakeTime; 0 if a P polled and the gap is shorter than threshold.ThreadWakeNS. If sysmon polled (bySysmon), any gap counts.
func (w *Walker) unreadTime(wakeTime int64, bySysmon bool) int64 {
	// A P polls whenever it has nothing left to run. If it then steals work, that poll leaves no event.
	if gap := w.PollGap(wakeTime); bySysmon || gap >= threshold.ThreadWakeNS {
		return gap
	}
	return 0
}

// PollGap returns for how long, in ns, the network had not been polled before t.
func (w *Walker) PollGap(t int64) int64 {
	if pollTime, ok := w.lastPoll(t); ok && pollTime < t {
		return t - pollTime
	}
	return 0
}

// lastPoll returns the last time before t at which the network was polled.
func (w *Walker) lastPoll(t int64) (int64, bool) {
	generation := w.window.GenIndex(t)
	for i := generation; i >= max(generation-1, 0); i-- {
		if pollTime, ok := w.window.Gens[i].LastPoll(t); ok {
			return pollTime, true
		}
	}
	return 0, false
}
