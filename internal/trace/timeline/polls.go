package timeline

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A unattributedWake is a wake without a goroutine that did it: by the poller or by
// a timer.
type unattributedWake struct {
	t      int64
	g, seq uint32
}

// unattributedWakes are those that no goroutine made, and what is made of them when it is
// first asked for.
type unattributedWakes struct {
	unattributed []unattributedWake
	pollOnce     sync.Once
	polls        []poll
	floods       []flood
	pollerWakes  []PollerWake      // by time
	timerWakes   []int32           // of nobody: wakes by timers, in order of time and goroutine
	network      tracefmt.StringID // the reason "network"
	// networkLocal is the generation's own id of it.
	networkLocal uint64
}

func (w *unattributedWakes) reset() {
	*w = unattributedWakes{unattributed: w.unattributed[:0], polls: w.polls[:0], floods: w.floods[:0], pollerWakes: w.pollerWakes[:0], timerWakes: w.timerWakes[:0]}
}

// buildPolls sorts the wakes that no goroutine made: those of network waits
// came from the poller, the others from timers.
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
		} else if end, ok := g.endOfRun(before.rec); ok && tracefmt.EventType(end.kind()) == tracefmt.EvGoBlock {
			if g.isNetwork(end.peer()) { // by another id of the same text
				addPollerWake(w)
			} else {
				g.timerWakes = append(g.timerWakes, int32(i))
			}
		} else if g.record(before.rec).hasTrait(repeatsState) {
			g.timerWakes = append(g.timerWakes, int32(i)) // waited as the generation began: see TimerWake.Unseen
		}
	}
	mergeSorted(g.pollerWakes, func(a, b PollerWake) bool { return a.Time < b.Time || a.Time == b.Time && a.G < b.G })
	mergeSorted(g.timerWakes, func(a, b int32) bool {
		x, y := &g.unattributed[a], &g.unattributed[b]
		return x.t < y.t || x.t == y.t && g.ids.ids[x.g] < g.ids.ids[y.g]
	})
	g.groupPolls(g.pollerWakes)
}

// A PollerWake is a goroutine that the poller woke: something came for it, or its deadline had passed.
type PollerWake struct {
	Time int64
	G    uint64
}

// PollerWakes returns the wakes by the poller in [from, to), by time. The slice is the Gen's own.
func (g *Gen) PollerWakes(from, to int64) []PollerWake {
	g.pollOnce.Do(g.buildPolls)
	indexOf := func(t int64) int {
		i, _ := slices.BinarySearchFunc(g.pollerWakes, t, func(w PollerWake, t int64) int { return cmp.Compare(w.Time, t) })
		return i
	}
	return g.pollerWakes[indexOf(from):indexOf(to)]
}

// A poll is one look at the network that woke somebody, or a part of one whose
// thread was held up in between.
type poll struct {
	from, to int64 // its first and last wake
	wakes    int   // wakes
}

// A flood is a time in which each look at the network, repeatedly, found as
// much as it may: others' data lay unread all along. It lasts from the first of
// them to the first that found less.
type flood struct{ from, to int64 }

const (
	// wakeGap is how far apart, in ns, the wakes of one poll are at most: they are
	// made one after the other. Between two of them its thread may be held up for as
	// long as threadPause, all in all for no longer than maxPollLength.
	wakeGap, threadPause, maxPollLength = 2e3, 20e3, 100e3
	// pollCapacity is how many events one poll takes (runtime.netpoll's array, on
	// Linux). The others are left for the next one. A few of them may wake nobody.
	pollCapacity      = 128
	maxWakelessEvents = 8
	// floodGap is how long after another, in ns, a poll that found as much is of the
	// same flood: sysmon looks every 10 ms, and may have been late.
	floodGap = 25e6
	// maxFlood, in ns, is no flood: a service that has so much to read all the time
	// is not told from one whose peers just sent it.
	maxFlood = 500e6
)

// groupPolls brings wakes, which are in order, together to polls.
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

// fullPollEnd reports whether the poll that i begins found as much as it may, and
// returns the last part of it, else -1.
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

// A TimerWake is a goroutine that a timer woke.
type TimerWake struct {
	Time int64
	G    uint64
	// Start and End are those of its first run after that, and Stack where it
	// waited next; a run that yielded, was preempted or is not over has none.
	Start, End int64
	Stack      tracefmt.StackID
	// MayBePoller says that it waited since before this generation, and for the network next: it may have been the poller that
	// woke it. Window.Waited tells.
	MayBePoller bool
}

// TimerWakes calls f for every wake by a timer, in an order that does not
// depend on the number of workers.
func (g *Gen) TimerWakes(f func(TimerWake)) {
	g.pollOnce.Do(g.buildPolls)
	for _, i := range g.timerWakes {
		w := g.unattributed[i]
		t := TimerWake{Time: g.Base + w.t, G: g.ids.ids[w.g]}
		slotIndex := g.slotBase[w.g] + w.seq + 1
		if slotIndex >= g.slotBase[w.g+1] || g.slots[slotIndex].rec == 0 || !opensRun(g.record(g.slots[slotIndex].rec)) {
			continue // not run within this generation
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

// WaitBefore returns the wait that a wake ended, as far as the window knows of it.
func (w *Window) WaitBefore(t *TimerWake) (Span, bool) {
	var buf [4]Span
	for _, s := range w.SpansCoarse(t.G, t.Time-1, t.Time, buf[:0]) {
		if s.State == Waiting && s.Start < t.Time && s.End >= t.Time {
			return s, true
		}
	}
	return Span{}, false
}

func (g *Gen) isNetwork(reason uint32) bool { return g.network != 0 && g.str(reason) == g.network }

// LastPoll returns the last instant before t at which the network was, or
// would have been, polled: a P stood idle (an idle P looks at the network
// before it sleeps, and one sleeps in the poller), or the poller woke
// somebody, and found less than it may. What is woken at t itself is no poll
// before it. With all Ps busy only sysmon polls, about every 10 ms, so data may
// have been there unseen since then. It reports false if the generation knows
// of no such instant.
func (g *Gen) LastPoll(t int64) (int64, bool) {
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
