package timeline

import (
	"slices"

	"github.com/whylate/whylate/internal/tracefmt"
)

// A nobodyWake is a wake without a goroutine that did it: by the poller or by
// a timer.
type nobodyWake struct {
	t      int64
	g, seq uint32
	noP    bool
}

// buildPolls lists the wakes that came from the poller: those of network
// waits that no goroutine ended.
func (g *Gen) buildPolls() {
	for _, w := range g.nobody {
		at := g.base[w.g] + w.seq
		if w.seq == 0 || w.seq >= g.base[w.g+1]-g.base[w.g] || g.slots[at].rec == 0 {
			continue
		}
		if before := g.slots[at-1]; before.rec != 0 && g.endsInNetwork(before.rec) {
			g.polls = append(g.polls, g.Base+w.t)
		}
	}
	slices.Sort(g.polls)
}

// endsInNetwork reports whether a piece is a run that ended in a wait for the
// network.
func (g *Gen) endsInNetwork(at ref) bool {
	if !opensRun(g.record(at)) {
		return false
	}
	for at, r := g.next(at); !endsWalk(r); at, r = g.next(at) {
		switch tracefmt.EventType(r.kind()) {
		case tracefmt.EvGoBlock:
			return g.isNetwork(r.peer())
		case tracefmt.EvGoStop, tracefmt.EvGoDestroy, tracefmt.EvGoDestroySyscall, tracefmt.EvGoSwitch,
			tracefmt.EvGoSwitchDestroy, tracefmt.EvGoSyscallEndBlocked:
			return false
		}
	}
	return false
}

func (g *Gen) isNetwork(reason uint32) bool { return g.network != 0 && g.str(reason) == g.network }

// LastPoll returns the last instant before t at which the network was, or
// would have been, polled: a P stood idle (an idle P looks at the network
// before it sleeps, and one sleeps in the poller), or the poller woke
// somebody. With all Ps busy only sysmon polls, about every 10 ms, so data may
// have been there unseen since then. It reports false if the generation
// knows of no such instant.
func (g *Gen) LastPoll(t int64) (int64, bool) {
	g.idleOnce.Do(g.buildIdle)
	g.pollOnce.Do(g.buildPolls)
	last, ok := g.idle.lastIdle(t)
	if i, _ := slices.BinarySearch(g.polls, t); i > 0 && (!ok || g.polls[i-1] > last) {
		last, ok = g.polls[i-1], true
	}
	return last, ok
}
