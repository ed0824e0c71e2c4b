package critpath

import (
	"github.com/whylate/whylate/internal/explain/scale"
)

// Kinds of step. The waits among them are those that the walk could not, or
// need not, follow further.
const (
	Unknown   Kind = iota // not seen: before the trace, or lost
	CPU                   // running
	Runnable              // wants a P
	Syscall               // in the kernel or in C
	Sleep                 // a timer
	Network               // the poller
	PollGap               // the end of a network wait during which nobody polled
	Lock                  // a semaphore wait that nobody in this process ends visibly
	Chan                  // a channel wait of that sort
	Assist                // GC mark assist, running or waiting
	GCWait                // waits for a phase of GC
	StopWorld             // stops the world itself, or waits for its turn
)

// unreadTime returns for how long data that woke somebody at t may have lain unread, 0
// if that is not worth a word; bySysmon says that sysmon found it, and no P.
func (w *Walker) unreadTime(wakeTime int64, bySysmon bool) int64 {
	// A P polls whenever it has nothing left to run; what it steals then leaves no trace of that.
	if gap := w.PollGap(wakeTime); bySysmon || gap >= scale.Blink {
		return gap
	}
	return 0
}

// PollGap returns for how long nobody had polled the network before t.
func (w *Walker) PollGap(t int64) int64 {
	if pollTime, ok := w.lastPoll(t); ok && pollTime < t {
		return t - pollTime
	}
	return 0
}

// lastPoll returns the last instant before t at which the network was polled.
func (w *Walker) lastPoll(t int64) (int64, bool) {
	generation := w.window.At(t)
	for i := generation; i >= max(generation-1, 0); i-- {
		if pollTime, ok := w.window.Gens[i].LastPoll(t); ok {
			return pollTime, true
		}
	}
	return 0, false
}
