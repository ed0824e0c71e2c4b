package timeline

import (
	"sort"

	"github.com/whylate/whylate/internal/tracefmt"
)

// A Run is a stretch of time in which a goroutine held a P and ran.
type Run struct {
	From, To int64
	G        uint64
	// Stack is that of the event that ended the run, or the last one in it.
	Stack tracefmt.StackID
}

// A waypoint lets a reader enter a thread's stream in the middle: nothing of
// the stream from rec on is before t, and cur was running there.
type waypoint struct {
	t   int64 // since the generation's base
	rec ref
	cur uint32
}

// waypointEvery is how many records lie between two waypoints, at most.
const waypointEvery = 128

// EachRun calls f for every run that overlaps [from, to), thread by thread;
// runs are cut at from. A run that began before the generation begins with it.
func (g *Gen) EachRun(from, to int64, f func(Run)) {
	for _, s := range g.streams {
		g.streamRuns(g.index[s[0]:s[1]], from-g.Base, to-g.Base, f)
	}
}

func (g *Gen) streamRuns(ways []waypoint, from, to int64, f func(Run)) {
	k := sort.Search(len(ways), func(i int) bool { return ways[i].t > from })
	if k == len(ways) && k == 0 || k == 0 && ways[0].t >= to {
		return
	}
	k = max(k-1, 0)
	cur, start := ways[k].cur, from
	var stack tracefmt.StackID
	emit := func(end int64) {
		if cur != 0 && end > start && end > from {
			f(Run{g.Base + max(start, from), g.Base + end, g.ids.ids[cur], stack})
		}
		stack = 0
	}
	for at, r := ways[k].rec, g.record(ways[k].rec); ; at, r = g.next(at) {
		if r.kind() == kindLink {
			at = ref(r.peer())
			r = g.record(at)
		}
		if r.kind() == kindEnd {
			emit(min(to, g.End-g.Base))
			return
		}
		t := r.time()
		if t >= to {
			// What ends the run tells where it was.
			if s := r.stack(); s != 0 {
				stack = g.stack(s)
			}
			emit(to)
			return
		}
		switch tracefmt.EventType(r.kind()) {
		case tracefmt.EvGoStart, tracefmt.EventType(kindSwitched):
			cur, start = r.peer(), t
			if r.kind() == kindSwitched {
				cur = g.switchedTo(at)
			}
		case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
			if r.aux()&auxBinds != 0 && r.aux()&auxStatus == uint32(tracefmt.GoRunning) {
				cur, start = r.peer(), t
			}
		case tracefmt.EvGoBlock, tracefmt.EvGoStop, tracefmt.EvGoSyscallBegin:
			stack = g.stack(r.stack())
			emit(t)
			cur = 0
		case tracefmt.EvGoDestroy, tracefmt.EvGoDestroySyscall, tracefmt.EvGoSwitch, tracefmt.EvGoSwitchDestroy, tracefmt.EvGoSyscallEndBlocked:
			emit(t)
			cur = 0
		case tracefmt.EvGoSyscallEnd:
			cur, start = r.peer(), t
		default:
			if s := r.stack(); s != 0 {
				stack = g.stack(s)
			}
		}
	}
}

// switchedTo returns the goroutine whose run begins with a switch: the peer of
// the switch's own record just before it.
func (g *Gen) switchedTo(at ref) uint32 {
	if r := g.record(at - 1); tracefmt.EventType(r.kind()) == tracefmt.EvGoSwitch || tracefmt.EventType(r.kind()) == tracefmt.EvGoSwitchDestroy {
		return r.peer()
	}
	return 0
}

// SamplesOf returns the indices in Samples of a goroutine's CPU samples.
func (g *Gen) SamplesOf(id uint64) []int32 {
	g.sampOnce.Do(func() {
		if len(g.Samples) == 0 {
			return
		}
		g.sampByG = make(map[uint64][]int32)
		for i, s := range g.Samples {
			g.sampByG[s.G] = append(g.sampByG[s.G], int32(i))
		}
	})
	return g.sampByG[id]
}
