package timeline

import (
	"iter"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Gap is a stretch in which one thread wrote no event.
type Gap struct {
	From, To int64
	Running  bool // a goroutine's code
	Called   bool // a goroutine's system call
	// Ended says that the thread wrote an event at To, else the generation
	// ended; Stopped that by this event its goroutine was made to stop.
	Ended, Stopped bool
}

// Gaps yields every thread of the generation with its gaps longer than least,
// from since to the generation's end. The list is valid until the next. Threads
// that write often are not looked at event by event, so the cost does not grow
// with the number of events.
func (g *Gen) Gaps(since, least int64) iter.Seq2[uint64, []Gap] {
	return func(yield func(uint64, []Gap) bool) {
		var buf []Gap
		for _, s := range g.streams {
			buf = g.threadGaps(buf[:0], g.index[s.index[0]:s.index[1]], since-g.Base, least)
			if !yield(s.m, buf) {
				return
			}
		}
	}
}

// threadGaps appends the gaps of one thread's stream; times are since the
// generation's base. Stretches of the stream that are not longer than least as
// a whole are passed over.
func (g *Gen) threadGaps(buf []Gap, ways []waypoint, since, least int64) []Gap {
	end := g.End - g.Base
	last, cur, running := since, uint32(0), false
	// through looks at the events from one waypoint to the next; the first event
	// of a generation repeats the state before it.
	through := func(k int, first bool, found func(Gap)) {
		cur = ways[k].cur
		for at, r := ways[k].rec, g.record(ways[k].rec); ; at, r = g.next(at) {
			if r.kind() == kindLink {
				at = r.link()
				r = g.record(at)
			}
			if r.kind() == kindEnd || k+1 < len(ways) && at == ways[k+1].rec {
				return
			}
			t := r.time()
			if t-last > least && found != nil {
				if first && r.is(repeats) && r.binds() {
					cur, running = r.peer(), statusState(r.status()) == Running
				} else if first {
					running = false
				}
				found(Gap{g.Base + last, g.Base + t, running, cur != 0 && !running, true, tracefmt.EventType(r.kind()) == tracefmt.EvGoStop})
			}
			first = false
			last = max(last, t)
			cur, running = after(r, cur)
		}
	}
	// A waypoint is made when a batch begins, which may be before its first event.
	at := func(k int) int64 {
		r := g.record(ways[k].rec)
		if r.kind() == kindLink {
			r = g.record(r.link())
		}
		if r.kind() == kindEnd {
			return ways[k].t
		}
		return r.time()
	}
	add := func(f Gap) { buf = append(buf, f) }
	passed := false // the stretch before
	for k := range ways {
		to := end
		if k+1 < len(ways) {
			to = at(k + 1)
		}
		if from := at(k); to-from <= least && (passed || from-last <= least) {
			passed = true
			last = from
			continue
		}
		if passed {
			through(k-1, false, nil) // shorter than least, but it tells what came last
			passed = false
		}
		through(k, k == 0, add)
	}
	if passed {
		through(len(ways)-1, false, nil)
	}
	if end-last > least {
		add(Gap{From: g.Base + last, To: g.Base + end, Running: running, Called: cur != 0 && !running})
	}
	return buf
}

// after returns the goroutine that a thread has after an event, and whether it
// is that goroutine's code which runs there.
func after(r record, cur uint32) (uint32, bool) {
	switch tracefmt.EventType(r.kind()) {
	case tracefmt.EvGoStart, tracefmt.EventType(kindSwitched), tracefmt.EvGoSyscallEnd:
		return max(r.peer(), 1), true
	case tracefmt.EvGoStatus, tracefmt.EvGoStatusStack:
		if r.binds() {
			return r.peer(), statusState(r.status()) == Running
		}
	case tracefmt.EvGoSyscallBegin, tracefmt.EvGoCreateSyscall:
		return max(cur, 1), false
	}
	if r.is(leaves) {
		return 0, false
	}
	return cur, cur != 0
}
