package critpath

import (
	"github.com/whylate/whylate/internal/explain/threshold"
)

// unreadTime returns how long, in ns, data may have been unread before the poller woke a goroutine at wakeTime. bySysmon:
// sysmon polled, so no P had polled for a long time, and any gap counts. If a P polled, a gap shorter than
// threshold.ThreadWakeNS counts as 0.
func (w *Walker) unreadTime(wakeTime int64, bySysmon bool) int64 {
	// A P polls whenever it has nothing left to run. If it then steals work, that poll leaves no event.
	if gap := w.PollGap(wakeTime); bySysmon || gap >= threshold.ThreadWakeNS {
		return gap
	}
	return 0
}

// PollGap returns the time, in ns, since the network was last polled before t; 0 if no poll is known.
func (w *Walker) PollGap(t int64) int64 {
	if t != w.gapEnd { // the wait and the time after it ask for the same gap
		w.gapEnd, w.gap = t, 0
		if pollTime, ok := w.lastPoll(t); ok && pollTime < t {
			w.gap = t - pollTime
		}
	}
	return w.gap
}

// lastPoll returns the time of the last poll of the network before t; false if the generation of t and the one before have
// none.
func (w *Walker) lastPoll(t int64) (pollTime int64, ok bool) {
	generation := w.window.GenIndex(t)
	for i := generation; i >= max(generation-1, 0); i-- {
		if pollTime, ok := w.window.Gens[i].LastPoll(t); ok {
			return pollTime, true
		}
	}
	return 0, false
}
