package timeline

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Silence is a stretch of time in which no thread wrote any event. If
// goroutines are shown running, they ran on without one, or their threads did
// not run.
type Silence struct {
	Start, End int64
	// Running is how many threads ran a goroutine all through it, Resumed how
	// many of those wrote an event within ResumeNS after its end, Prompt how
	// many within PromptNS, and Stopped how many of the resumed were made to stop
	// their goroutine by that event.
	Running, Resumed, Prompt, Stopped int
	// Between and Called are how many threads, beside those, held a P all through
	// it: between two goroutines, in the scheduler, or in a system call. Neither
	// lasts: a thread that finds nothing to run lets its P go before it sleeps,
	// and the runtime's monitor, which looks every 10 ms as long as a P is held,
	// takes it from a call. Only those are counted that wrote an event, or whose P
	// was taken, within ResumeNS after its end.
	Between, Called int
}

// ResumeNS is how soon after a silence a thread must write an event to count
// as resumed: threads that were held back all run again at once, but on as many
// CPUs as there are. PromptNS is what the runtime's monitor takes to stop all
// threads that run, and far shorter than the kernel lets one run while others
// wait for its CPU.
const (
	ResumeNS = 10e6
	PromptNS = 300e3
)

// A gap is a stretch in which one thread wrote no event.
type gap struct {
	from, to int64 // since the generation's base
	running  bool  // a goroutine's code
	called   bool  // a goroutine's system call
	ended    kind  // the event at to; 0: none
}

// Silences returns the silences longer than least ns, in order of time.
// since is the end of the generation before, or 0: a silence may begin there.
// Threads that write often are not looked at event by event, so the cost does
// not grow with the number of events.
func (g *Gen) Silences(since, least int64) []Silence {
	if since == 0 {
		since = g.Base
	}
	since -= g.Base
	if len(g.streams) == 0 {
		return nil
	}
	var gaps []gap
	var ends []int // of each stream's gaps
	var silent []gap
	for i, s := range g.streams {
		from := len(gaps)
		gaps = g.gaps(gaps, g.index[s.index[0]:s.index[1]], since, least)
		ends = append(ends, len(gaps))
		if i == 0 {
			silent = slices.Clone(gaps)
		} else {
			silent = intersect(silent, gaps[from:], least)
		}
		if len(silent) == 0 {
			return nil
		}
	}
	silent = g.cutAtOthers(silent, least)
	out := make([]Silence, 0, len(silent))
	for _, s := range silent {
		out = append(out, Silence{Start: g.Base + s.from, End: g.Base + s.to})
	}
	if len(out) == 0 {
		return nil
	}
	held := g.holdings(least)
	from := 0
	for i, end := range ends {
		k := 0
		for _, p := range gaps[from:end] {
			for k < len(out) && out[k].End-g.Base <= p.from {
				k++
			}
			for j := k; j < len(out) && out[j].Start-g.Base < p.to; j++ {
				s := &out[j]
				if !p.running {
					held.count(s, g.streams[i].m, &p)
					continue
				}
				s.Running++
				if p.ended != 0 && p.to-(s.End-g.Base) <= PromptNS {
					s.Prompt++
				}
				if p.ended != 0 && p.to-(s.End-g.Base) <= ResumeNS {
					s.Resumed++
					if tracefmt.EventType(p.ended) == tracefmt.EvGoStop {
						s.Stopped++
					}
				}
			}
		}
		from = end
	}
	return out
}

// intersect returns what lies in gaps of both rows and is longer than least.
func intersect(a, b []gap, least int64) []gap {
	out := a[:0:0]
	for i, j := 0, 0; i < len(a) && j < len(b); {
		if from, to := max(a[i].from, b[j].from), min(a[i].to, b[j].to); to-from > least {
			out = append(out, gap{from: from, to: to})
		}
		if a[i].to < b[j].to {
			i++
		} else {
			j++
		}
	}
	return out
}

// cutAtOthers cuts silences at events that are not in the threads' streams:
// changes of Ps, allocations, CPU samples.
func (g *Gen) cutAtOthers(silent []gap, least int64) []gap {
	var at []int64
	inside := func(t int64) {
		k, _ := slices.BinarySearchFunc(silent, t, func(s gap, t int64) int { return cmp.Compare(s.to, t) })
		if k < len(silent) && silent[k].from < t && t < silent[k].to {
			at = append(at, t)
		}
	}
	for i := range g.procs {
		inside(g.procs[i].t)
	}
	for i := range g.Heap {
		inside(g.Heap[i].Time - g.Base)
	}
	for i := range g.Labels {
		inside(g.Labels[i].Time - g.Base)
	}
	for i := range g.Samples {
		inside(g.Samples[i].Time - g.Base)
	}
	if len(at) == 0 {
		return silent
	}
	slices.Sort(at)
	out := silent[:0:0]
	for _, s := range silent {
		k, _ := slices.BinarySearch(at, s.from)
		for ; k < len(at) && at[k] < s.to; k++ {
			if at[k]-s.from > least {
				out = append(out, gap{from: s.from, to: at[k]})
			}
			s.from = at[k]
		}
		if s.to-s.from > least {
			out = append(out, s)
		}
	}
	return out
}

// gaps appends the gaps longer than least of one thread's stream, from since
// to the generation's end. Stretches of the stream that are shorter than that
// as a whole are passed over.
func (g *Gen) gaps(buf []gap, ways []waypoint, since, least int64) []gap {
	end := g.End - g.Base
	last, cur, running := since, uint32(0), false
	// through looks at the events from one waypoint to the next; the first event
	// of a generation repeats the state before it.
	through := func(k int, first bool, found func(gap)) {
		cur = ways[k].cur
		for at, r := ways[k].rec, g.record(ways[k].rec); ; at, r = g.next(at) {
			if r.kind() == kindLink {
				at = ref(r.peer())
				r = g.record(at)
			}
			if r.kind() == kindEnd || k+1 < len(ways) && at == ways[k+1].rec {
				return
			}
			t := r.time()
			if t-last > least && found != nil {
				if first && isStatus(r) && r.aux()&auxBinds != 0 {
					cur, running = r.peer(), statusState(r.aux()&auxStatus) == Running
				} else if first {
					running = false
				}
				found(gap{last, t, running, cur != 0 && !running, r.kind()})
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
			r = g.record(ref(r.peer()))
		}
		if r.kind() == kindEnd {
			return ways[k].t
		}
		return r.time()
	}
	add := func(f gap) { buf = append(buf, f) }
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
		add(gap{from: last, to: end, running: running, called: cur != 0 && !running})
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
		if r.aux()&auxBinds != 0 {
			return r.peer(), statusState(r.aux()&auxStatus) == Running
		}
	case tracefmt.EvGoSyscallBegin, tracefmt.EvGoCreateSyscall:
		return max(cur, 1), false
	case tracefmt.EvGoBlock, tracefmt.EvGoStop, tracefmt.EvGoDestroy, tracefmt.EvGoDestroySyscall,
		tracefmt.EvGoSwitch, tracefmt.EvGoSwitchDestroy, tracefmt.EvGoSyscallEndBlocked:
		return 0, false
	}
	return cur, cur != 0
}
