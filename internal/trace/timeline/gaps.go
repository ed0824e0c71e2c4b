package timeline

import (
	"iter"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Gap is an interval in which a thread wrote no event.
type Gap struct {
	From, To int64
	Running  bool // the thread ran a goroutine's code
	Called   bool // the thread was in a goroutine's system call
	// Ended reports that the thread wrote an event at To; otherwise the generation ended. Stopped reports that
	// this event stopped its goroutine.
	Ended, Stopped bool
}

// Gaps yields each thread of the generation with the gaps in its events that are longer than minLength ns, between from and the
// generation's end. The slice is valid until the next iteration. The events of threads that write often are not visited one by
// one, so the cost does not grow with the number of events.
func (g *Gen) Gaps(from, minLength int64) iter.Seq2[uint64, []Gap] {
	return func(yield func(uint64, []Gap) bool) {
		var buf []Gap
		for _, s := range g.streams {
			buf = g.threadGaps(buf[:0], g.index[s.index[0]:s.index[1]], from-g.Base, minLength)
			if !yield(s.m, buf) {
				return
			}
		}
	}
}

// threadGaps appends to buf the gaps of one thread's stream. from is relative to the generation's base. It does not read the
// events between two waypoints that are at most minLength apart.
func (g *Gen) threadGaps(buf []Gap, waypoints []waypoint, from, minLength int64) []Gap {
	end := g.End - g.Base
	last, cur, running := from, uint32(0), false
	// scan visits the events between waypoint k and the next one. The first event of a generation repeats the
	// state before it.
	scan := func(k int, first bool, found func(Gap)) {
		cur = waypoints[k].running
		for timeOf, r := waypoints[k].rec, g.record(waypoints[k].rec); ; timeOf, r = g.next(timeOf) {
			if r.kind() == kindLink {
				timeOf = r.link()
				r = g.record(timeOf)
			}
			if r.kind() == kindEnd || k+1 < len(waypoints) && timeOf == waypoints[k+1].rec {
				return
			}
			t := r.time()
			if t-last > minLength && found != nil {
				if first && r.hasTrait(repeatsState) && r.binds() {
					cur, running = r.peer(), statusState(r.status()) == Running
				} else if first {
					running = false
				}
				found(Gap{g.Base + last, g.Base + t, running, cur != 0 && !running, true, tracefmt.EventType(r.kind()) == tracefmt.EvGoStop})
			}
			first = false
			last = max(last, t)
			cur, running = runningAfter(r, cur)
		}
	}
	// A waypoint's time is the begin of its batch, which may be before its first event.
	timeOf := func(k int) int64 {
		r := g.record(waypoints[k].rec)
		if r.kind() == kindLink {
			r = g.record(r.link())
		}
		if r.kind() == kindEnd {
			return waypoints[k].t
		}
		return r.time()
	}
	add := func(f Gap) { buf = append(buf, f) }
	skipped := false // the interval before was skipped
	for k := range waypoints {
		to := end
		if k+1 < len(waypoints) {
			to = timeOf(k + 1)
		}
		if from := timeOf(k); to-from <= minLength && (skipped || from-last <= minLength) {
			skipped = true
			last = from
			continue
		}
		if skipped {
			scan(k-1, false, nil) // no gap, but it determines the thread's state
			skipped = false
		}
		scan(k, k == 0, add)
	}
	if skipped {
		scan(len(waypoints)-1, false, nil)
	}
	if end-last > minLength {
		add(Gap{From: g.Base + last, To: g.Base + end, Running: running, Called: cur != 0 && !running})
	}
	return buf
}

// runningAfter returns the goroutine (its Number, 1 if it is unknown) that a thread has after event r, and whether the thread
// runs the goroutine's code. g is 0 if the thread has none. cur is the goroutine before the event.
func runningAfter(r record, cur uint32) (g uint32, isRunning bool) {
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
	if r.hasTrait(leavesThread) {
		return 0, false
	}
	return cur, cur != 0
}
