package timeline

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An unattributedWake is a wake for which the trace names no waking goroutine: the poller or a timer woke.
type unattributedWake struct {
	t      int64
	g, seq uint32
}

// unattributedWakes are those wakes, and the polls, floods and timer wakes that buildPolls derives from them on
// the first use.
type unattributedWakes struct {
	unattributed []unattributedWake
	pollOnce     sync.Once
	polls        []poll
	floods       []flood
	pollerWakes  []PollerWake      // by the poller, ordered by time
	timerWakes   []int32           // by timers, as indices of unattributed, ordered by time and goroutine
	network      tracefmt.StringID // id of the reason "network"
	// networkLocal is the id of the same text in the generation's table.
	networkLocal uint64
	otherWait    uint32 // otherWaitBit, or 0 if that id does not distinguish all waits for the network
}

func (w *unattributedWakes) reset() {
	*w = unattributedWakes{unattributed: w.unattributed[:0], polls: w.polls[:0], floods: w.floods[:0], pollerWakes: w.pollerWakes[:0], timerWakes: w.timerWakes[:0]}
}

// buildPolls divides the unattributed wakes: the poller ended waits for the network, timers ended the others.
func (g *Gen) buildPolls() {
	addPollerWake := func(w unattributedWake) {
		g.pollerWakes = append(g.pollerWakes, PollerWake{Time: g.Base + w.t, G: g.ids.ids[w.g]})
	}
	for i, w := range g.unattributed {
		slotIndex := g.slotBase[w.g] + w.seq
		if w.seq == 0 || w.seq >= g.slotBase[w.g+1]-g.slotBase[w.g] || g.slots[slotIndex].rec == 0 {
			continue
		}
		before := g.slots[slotIndex-1]
		if before.rec == 0 {
			continue
		}
		if before.endedInNetwork() {
			addPollerWake(w)
		} else if before.endedInOtherWait() {
			g.timerWakes = append(g.timerWakes, int32(i))
		} else if end, ok := g.endOfRun(before.rec); ok && tracefmt.EventType(end.kind()) == tracefmt.EvGoBlock {
			if g.isNetwork(end.peer()) { // a table may hold the text under two ids
				addPollerWake(w)
			} else {
				g.timerWakes = append(g.timerWakes, int32(i))
			}
		} else if g.record(before.rec).hasTrait(repeatsState) {
			g.timerWakes = append(g.timerWakes, int32(i)) // it waited when the generation began: see TimerWake.MayBePoller
		}
	}
	mergeSorted(g.pollerWakes, func(a, b PollerWake) bool { return a.Time < b.Time || a.Time == b.Time && a.G < b.G })
	mergeSorted(g.timerWakes, func(a, b int32) bool {
		x, y := &g.unattributed[a], &g.unattributed[b]
		return x.t < y.t || x.t == y.t && g.ids.ids[x.g] < g.ids.ids[y.g]
	})
	g.groupPolls(g.pollerWakes)
}

// A PollerWake is a wake by the poller: the file descriptor of the goroutine's wait became ready, or the deadline
// passed.
type PollerWake struct {
	Time int64
	G    uint64
}

// PollerWakes returns the wakes by the poller in [from, to), ordered by time. The slice is the Gen's; callers must
// not change it.
func (g *Gen) PollerWakes(from, to int64) []PollerWake {
	g.pollOnce.Do(g.buildPolls)
	indexOf := func(t int64) int {
		i, _ := slices.BinarySearchFunc(g.pollerWakes, t, func(w PollerWake, t int64) int { return cmp.Compare(w.Time, t) })
		return i
	}
	return g.pollerWakes[indexOf(from):indexOf(to)]
}

// A poll is one call of runtime.netpoll that woke goroutines, or a part of one whose thread was interrupted.
type poll struct {
	from, to int64 // its first and last wake
	wakes    int   // wakes
}

// A flood is an interval in which consecutive polls each returned as many events as a poll can, so that data of
// other goroutines stayed unread. It lasts from the first such poll to the first poll that returned fewer.
type flood struct{ from, to int64 }

const (
	// wakeGap is the longest time between two wakes of one poll, in ns: netpoll's caller wakes the goroutines
	// one after the other. Its thread may be interrupted for up to threadPause at a time, but the poll must
	// not exceed maxPollLength.
	wakeGap, threadPause, maxPollLength = 2e3, 20e3, 100e3
	// pollCapacity is the number of events that one poll returns at most (the array in runtime.netpoll on
	// Linux); the next poll returns the others. Up to maxWakelessEvents of them may wake no goroutine.
	pollCapacity      = 128
	maxWakelessEvents = 8
	// floodGap is the longest time between two polls of one flood, in ns: sysmon polls every 10 ms and may be
	// late.
	floodGap = 25e6
	// maxFlood is the longest flood, in ns. A service that always has that much to read cannot be
	// distinguished from one whose peers just sent it.
	maxFlood = 500e6
)

// groupPolls groups ordered wakes into polls, and polls into floods.
func (g *Gen) groupPolls(wakes []PollerWake) {
	for i := 0; i < len(wakes); {
		k := i + 1
		for k < len(wakes) && k-i < pollCapacity && wakes[k].Time-wakes[k-1].Time <= wakeGap {
			k++
		}
		g.polls = append(g.polls, poll{wakes[i].Time, wakes[k-1].Time, k - i})
		i = k
	}
	for i := 0; i < len(g.polls); i++ {
		last := g.fullPollEnd(i)
		if last < 0 {
			continue
		}
		for k := last + 1; k < len(g.polls) && g.polls[k].from-g.polls[last].to <= floodGap; k++ {
			if l := g.fullPollEnd(k); l >= 0 {
				last, k = l, l
			}
		}
		end := g.polls[last].to
		if last+1 < len(g.polls) {
			end = g.polls[last+1].to
		}
		if end-g.polls[i].from <= maxFlood {
			g.floods = append(g.floods, flood{g.polls[i].from, end})
		}
		i = last
	}
}

// fullPollEnd returns the index of the last part of the poll that begins with part i, if that poll returned as
// many events as a poll can, else -1.
func (g *Gen) fullPollEnd(i int) int {
	n := g.polls[i].wakes
	for k := i; ; k++ {
		if n >= pollCapacity-maxWakelessEvents {
			return k
		}
		if k+1 == len(g.polls) || g.polls[k+1].from-g.polls[k].to > threadPause || g.polls[k+1].to-g.polls[i].from > maxPollLength {
			return -1
		}
		n += g.polls[k+1].wakes
	}
}

// A TimerWake is a wake by a timer.
type TimerWake struct {
	Time int64
	G    uint64
	// Start and End are the limits of the first run after the wake, Stack is the stack of the wait that ended
	// this run. End and Stack are 0 for a run that continues, Stack also for a run that ended otherwise.
	Start, End int64
	Stack      tracefmt.StackID
	// MayBePoller reports that the wait began before this generation and the next wait is for the network, so
	// that the poller may have ended the wait. Window.WaitBefore decides.
	MayBePoller bool
}

// TimerWakes calls f for each wake by a timer, in an order that does not depend on the number of workers.
func (g *Gen) TimerWakes(f func(TimerWake)) {
	g.pollOnce.Do(g.buildPolls)
	for _, i := range g.timerWakes {
		w := g.unattributed[i]
		t := TimerWake{Time: g.Base + w.t, G: g.ids.ids[w.g]}
		slotIndex := g.slotBase[w.g] + w.seq + 1
		if slotIndex >= g.slotBase[w.g+1] || g.slots[slotIndex].rec == 0 || !opensRun(g.record(g.slots[slotIndex].rec)) {
			continue // it did not run within this generation
		}
		t.Start = g.Base + g.record(g.slots[slotIndex].rec).time()
		if end, ok := g.endOfRun(g.slots[slotIndex].rec); ok {
			t.End = g.Base + end.time()
			if tracefmt.EventType(end.kind()) == tracefmt.EvGoBlock {
				t.MayBePoller = g.isNetwork(end.peer()) && g.record(g.slots[slotIndex-2].rec).hasTrait(repeatsState)
				t.Stack = g.stack(end.stack())
			}
		}
		f(t)
	}
}

// WaitBefore returns the wait that a wake ended, false if the window does not show it.
func (w *Window) WaitBefore(t *TimerWake) (Span, bool) {
	var buf [4]Span
	for _, s := range w.SpansCoarse(t.G, t.Time-1, t.Time, buf[:0]) {
		if s.State == Waiting && s.Start < t.Time && s.End >= t.Time {
			return s, true
		}
	}
	return Span{}, false
}

// isNetwork reports whether a local string id is the reason "network".
func (g *Gen) isNetwork(reason uint32) bool { return g.network != 0 && g.str(reason) == g.network }

// LastPoll returns the last instant before t at which the network was polled, or a P was ready to poll it; false
// if the generation shows no such instant. An instant counts if a P was idle (an idle P polls before it sleeps,
// and one of the idle Ps sleeps in the poller), or if the poller woke a goroutine and returned fewer events than
// it can. Wakes at t itself do not count. While all Ps are busy, only sysmon polls, about every 10 ms, so data may
// have been unread since the returned instant.
func (g *Gen) LastPoll(t int64) (int64, bool) {
	if g.PsUnknown {
		return 0, false
	}
	g.idleOnce.Do(g.buildIdle)
	g.pollOnce.Do(g.buildPolls)
	i, _ := slices.BinarySearchFunc(g.floods, t, func(f flood, t int64) int { return cmp.Compare(f.to, t) })
	if i < len(g.floods) && g.floods[i].from < t {
		t = g.floods[i].from
	}
	last, ok := g.idle.lastIdle(t)
	i, _ = slices.BinarySearchFunc(g.polls, t, func(p poll, t int64) int { return cmp.Compare(p.to, t) })
	if i > 0 && (!ok || g.polls[i-1].to > last) {
		last, ok = g.polls[i-1].to, true
	}
	return last, ok
}
