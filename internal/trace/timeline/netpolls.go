package timeline

import (
	"cmp"
	"slices"
	"sync"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// An unattributedWake is a wake for which the trace names no waking goroutine: the network poller or a timer woke the
// goroutine.
type unattributedWake struct {
	t int64
	g uint32
	// timerRun is the piece after a timer's wake, 0 for the poller's. maybePoller is set if a wait was the goroutine's first state in the
	// generation and a timer seems to have ended it.
	timerRun ref
}

// maybePoller is a bit of unattributedWake.g that goroutines' numbers do not reach.
const maybePoller = networkWaitBit

func (w *unattributedWake) number() uint32 { return w.g &^ maybePoller }

// unattributedWakes are those wakes, and the polls and floods, which buildPolls finds on the first use.
type unattributedWakes struct {
	// unattributed is ordered by time and goroutine, without wakes by timers after which the goroutine did not run within the generation.
	unattributed []unattributedWake
	pollOnce     sync.Once
	polls        []poll
	floods       []flood
	network      tracefmt.StringID // id of the reason "network"
	// networkLocal is the id of the same text in the generation's table.
	networkLocal uint64
	otherWait    uint32 // otherWaitBit, or 0 if that id does not distinguish all waits for the network
}

func (w *unattributedWakes) reset() {
	*w = unattributedWakes{unattributed: w.unattributed[:0], polls: w.polls[:0], floods: w.floods[:0]}
}

// buildPolls finds the unattributed wakes, and which of them are by the poller, which ends waits for the network, and by timers; then
// it groups the poller's wakes into polls. In the slots the wakes of each goroutine are together, so they are found there and sorted.
func (g *Gen) buildPolls() {
	pollerCount, wakeCount := 0, 0
	for i := range g.slots {
		if g.slots[i].hasNoWaker() {
			wakeCount++
		}
	}
	g.unattributed = entry.Resize(g.unattributed, wakeCount)[:0]
	for d := 1; d+1 < len(g.slotBase); d++ {
		slots := g.slots[g.slotBase[d]:g.slotBase[d+1]]
		for k := 1; k < len(slots); k++ {
			if !slots[k].hasNoWaker() || slots[k-1].rec == 0 {
				continue
			}
			before := &slots[k-1]
			isPoller := before.endedInNetwork()
			if !isPoller && !before.endedInOtherWait() {
				if end, ok := g.endOfRun(before.rec); ok && tracefmt.EventType(end.kind()) == tracefmt.EvGoBlock {
					isPoller = g.isNetwork(end.peer()) // a table may hold the text under two ids
				} else if !g.record(before.rec).hasTrait(repeatsState) {
					continue
				} // it waited when the generation began: see TimerWake.MayBePoller
			}
			wake := unattributedWake{t: g.slotTime(&slots[k]), g: uint32(d)}
			switch {
			case isPoller:
				pollerCount++
			case k+1 == len(slots) || slots[k+1].rec == 0:
				continue
			default:
				if wake.timerRun = slots[k+1].rec; k == 1 && g.record(before.rec).hasTrait(repeatsState) {
					wake.g |= maybePoller
				}
			}
			g.unattributed = append(g.unattributed, wake)
		}
	}
	g.sortWakes()
	g.groupPolls(pollerCount)
}

// sortWakes sorts the unattributed wakes by time, then by goroutine. It sorts by the slots' times first, digit by digit.
func (g *Gen) sortWakes() {
	const digitBits = 12
	list, sorted := g.unattributed, make([]unattributedWake, len(g.unattributed))
	for shift := slotUnit; (g.End-g.Base)>>shift > 0; shift += digitBits {
		var next [1<<digitBits + 1]uint32
		for i := range list {
			next[list[i].t>>shift&(1<<digitBits-1)+1]++
		}
		for i := 1; i < len(next); i++ {
			next[i] += next[i-1]
		}
		for i := range list {
			place := &next[list[i].t>>shift&(1<<digitBits-1)]
			sorted[*place] = list[i]
			*place++
		}
		list, sorted = sorted, list
	}
	for i := 1; i < len(list); i++ {
		for k := i; k > 0 && (list[k].t < list[k-1].t || list[k].t == list[k-1].t && g.ids.ids[list[k].number()] < g.ids.ids[list[k-1].number()]); k-- {
			list[k], list[k-1] = list[k-1], list[k]
		}
	}
	g.unattributed = list
}

// A PollerWake is a wake by the poller: the file descriptor of the goroutine's wait became ready, or the deadline
// passed.
type PollerWake struct {
	Time int64
	G    uint64
}

// PollerWakesNear returns the nearest wakes by the poller at times less than distance ns from t: at most limit of them up to t,
// and at most limit after t, in order of time.
func (g *Gen) PollerWakesNear(t, distance int64, limit int) []PollerWake {
	g.pollOnce.Do(g.buildPolls)
	nearest := make([]PollerWake, 0, 4)
	addIfPoller := func(w unattributedWake) {
		if w.timerRun == 0 {
			nearest = append(nearest, PollerWake{g.Base + w.t, g.ids.ids[w.g]})
		}
	}
	t -= g.Base
	after, _ := slices.BinarySearchFunc(g.unattributed, t+1, func(w unattributedWake, t int64) int { return cmp.Compare(w.t, t) })
	for k := after - 1; k >= 0 && g.unattributed[k].t >= t-distance && len(nearest) < limit; k-- {
		addIfPoller(g.unattributed[k])
	}
	slices.Reverse(nearest)
	limit += len(nearest)
	for k := after; k < len(g.unattributed) && g.unattributed[k].t < t+distance && len(nearest) < limit; k++ {
		addIfPoller(g.unattributed[k])
	}
	return nearest
}

// A poll is one call of runtime.netpoll that woke goroutines, or a part of one whose thread was interrupted.
type poll struct {
	to     int64  // its last wake
	length uint32 // ns from its first wake to the last
	wakes  uint32 // number of wakes
}

func (p *poll) from() int64 { return p.to - int64(p.length) }

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

// groupPolls groups the ordered wakes by the poller (pollerCount of them) into polls, calls of runtime.netpoll, and successive
// polls that returned as many events as a poll can into floods.
func (g *Gen) groupPolls(pollerCount int) {
	g.polls = entry.Resize(g.polls, pollerCount)[:0]
	var last *poll
	for i := range g.unattributed {
		w := &g.unattributed[i]
		switch t := g.Base + w.t; {
		case w.timerRun != 0:
		case last == nil || last.wakes == pollCapacity || t-last.to > wakeGap:
			g.polls = append(g.polls, poll{to: t, wakes: 1})
			last = &g.polls[len(g.polls)-1]
		default:
			last.to, last.length, last.wakes = t, last.length+uint32(t-last.to), last.wakes+1
		}
	}
	for i := 0; i < len(g.polls); i++ {
		last := g.fullPollEnd(i)
		if last < 0 {
			continue
		}
		for k := last + 1; k < len(g.polls) && g.polls[k].from()-g.polls[last].to <= floodGap; k++ {
			if l := g.fullPollEnd(k); l >= 0 {
				last, k = l, l
			}
		}
		end := g.polls[last].to
		if last+1 < len(g.polls) {
			end = g.polls[last+1].to
		}
		if end-g.polls[i].from() <= maxFlood {
			g.floods = append(g.floods, flood{g.polls[i].from(), end})
		}
		i = last
	}
}

// fullPollEnd returns the index of the last part of the poll that begins with part i, if that poll returned as many events as
// one poll can; else -1.
func (g *Gen) fullPollEnd(i int) int {
	n := g.polls[i].wakes
	for k := i; ; k++ {
		if n >= pollCapacity-maxWakelessEvents {
			return k
		}
		if k+1 == len(g.polls) || g.polls[k+1].from()-g.polls[k].to > threadPause || g.polls[k+1].to-g.polls[i].from() > maxPollLength {
			return -1
		}
		n += g.polls[k+1].wakes
	}
}

// A TimerWake is a wake by a timer.
type TimerWake struct {
	Time int64
	G    uint64
	// Start and End are the times of the first run after the wake, Stack is the stack of the wait that ended this run. End and
	// Stack are 0 for a run that continues, Stack also for a run that ended otherwise.
	Start, End int64
	Stack      tracefmt.StackID
	// MayBePoller reports that the wait began before this generation and the next wait is for the network, so
	// that the poller may have ended the wait. Window.WaitBefore decides.
	MayBePoller bool
}

// TimerWakes calls f for each wake by a timer after which the goroutine ran, in order of time, then of goroutine.
func (g *Gen) TimerWakes(f func(TimerWake)) {
	g.pollOnce.Do(g.buildPolls)
	for i := range g.unattributed {
		w := &g.unattributed[i]
		if w.timerRun == 0 || !opensRun(g.record(w.timerRun)) {
			continue
		}
		t := TimerWake{Time: g.Base + w.t, G: g.ids.ids[w.number()], Start: g.Base + g.record(w.timerRun).time()}
		if end, ok := g.endOfRun(w.timerRun); ok {
			t.End = g.Base + end.time()
			if tracefmt.EventType(end.kind()) == tracefmt.EvGoBlock {
				t.MayBePoller = w.g&maybePoller != 0 && g.isNetwork(end.peer())
				t.Stack = g.stack(end.stack())
			}
		}
		f(t)
	}
}

// WaitBefore returns the wait that a timer's wake ended; false if the window does not contain it.
func (w *Window) WaitBefore(t *TimerWake) (wait Span, ok bool) {
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
func (g *Gen) LastPoll(t int64) (pollTime int64, ok bool) {
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
