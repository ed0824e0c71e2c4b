package threadstate

import (
	"cmp"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/explain/threshold"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// EachInterval calls f for the known states, in [from, to), of the threads that goroutine g was bound to, in order of time. A
// wait for a CPU is divided by the processes that had that CPU; the parts follow one another in the order in which each process
// first had it.
func (t *Tracker) EachInterval(g uint64, from, to int64, f func(Interval)) {
	t.eachThreadOf(g, from, to, func(th *thread, begin, end int64) { t.eachOfThread(th, begin, end, f) })
}

// EachWake calls f for the parts of [from, to) in which goroutine g was ready, but a thread without a goroutine waited for a
// CPU: the runtime had woken such threads to run ready goroutines. g must start to run at to. If no P was idle (wasPIdle
// false), only the thread that then runs g counts.
func (t *Tracker) EachWake(g uint64, from, to int64, wasPIdle bool, f func(Interval)) {
	if !wasPIdle || to-from < threshold.ThreadWakeNS {
		t.eachBinding(g, to, to+1, func(b *timeline.Binding) {
			if th := t.byM[b.M]; th != nil && b.From == to {
				t.eachWithoutGoroutine(b.M, th, from, to, f)
			}
		})
		return
	}
	var all []Interval
	for m, th := range t.byM {
		if t.wasBound[m] {
			t.eachWithoutGoroutine(m, th, from, to, func(x Interval) { all = append(all, x) })
		}
	}
	slices.SortFunc(all, func(a, b Interval) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End), cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, x := range all {
		if x.Start = max(x.Start, from); x.Start < x.End {
			f(x)
			from = x.End
		}
	}
}

// eachWithoutGoroutine calls f for the times in [from, to) in which thread m waited for a CPU, was throttled or stopped while
// it had no goroutine.
func (t *Tracker) eachWithoutGoroutine(m uint64, th *thread, from, to int64, f func(Interval)) {
	waits := func(from, to int64) {
		t.eachOfThread(th, from, to, func(x Interval) {
			if x.Kind == Waiting || x.Kind == Throttled || x.Kind == Stopped {
				f(x)
			}
		})
	}
	for k := range t.gens {
		if x := &t.gens[k]; x.base < to && (k+1 == len(t.gens) || t.gens[k+1].base > from) {
			list := x.byThread[m]
			i, _ := slices.BinarySearchFunc(list, from, func(x freeze.Interval, from int64) int { return cmp.Compare(x.End, from) })
			for ; i < len(list) && list[i].Start < to; i++ {
				waits(from, list[i].Start)
				from = max(from, list[i].End)
			}
		}
	}
	waits(from, to)
}

// AddArrival records the arrival with which a request on goroutine g begins. The arrivals of a goroutine must be added in order
// of time.
func (t *Tracker) AddArrival(g uint64, a Arrival) { t.arrivals[g] = append(t.arrivals[g], a) }

// SocketOf returns the socket of the last arrival for a goroutine, 0 if there was none.
func (t *Tracker) SocketOf(g uint64) uint64 {
	list := t.arrivals[g]
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Socket
}

// ArrivalBefore returns the last recorded arrival for goroutine g at or before a time; ok is false if there is none.
func (t *Tracker) ArrivalBefore(g uint64, time int64) (a Arrival, ok bool) {
	list := t.arrivals[g]
	i := sort.Search(len(list), func(i int) bool { return list[i].Time > time })
	if i == 0 {
		return a, false
	}
	return list[i-1], true
}

// EachPollerWait calls f for the times in [from, to) in which the thread that an arrival woke waited for a CPU, was throttled
// or stopped.
func (t *Tracker) EachPollerWait(a *Arrival, from, to int64, f func(Interval)) {
	if th := t.threads[a.poller]; th != nil {
		t.eachOfThread(th, from, to, func(x Interval) {
			if x.Kind == Waiting || x.Kind == Throttled || x.Kind == Stopped {
				f(x)
			}
		})
	}
}

// eachThreadOf calls f for the known threads to which goroutine g was bound in [from, to), with the part of that time.
func (t *Tracker) eachThreadOf(g uint64, from, to int64, f func(th *thread, begin, end int64)) {
	t.eachBinding(g, from, to, func(b *timeline.Binding) {
		if th := t.byM[b.M]; th != nil {
			f(th, max(from, b.From), min(to, b.To))
		}
	})
}

// eachBinding calls f for the intervals, overlapping [from, to), in which goroutine g was bound to a thread.
func (t *Tracker) eachBinding(g uint64, from, to int64, f func(*timeline.Binding)) {
	for k := range t.gens {
		x := &t.gens[k]
		if x.base >= to || k+1 < len(t.gens) && t.gens[k+1].end < from {
			continue
		}
		i, _ := slices.BinarySearchFunc(x.bindings, from, func(b timeline.Binding, from int64) int {
			return cmp.Or(cmp.Compare(b.G, g), cmp.Compare(b.To, from+1))
		})
		for ; i < len(x.bindings) && x.bindings[i].G == g && x.bindings[i].From < to; i++ {
			f(&x.bindings[i])
		}
	}
}

// eachOfThread calls f for the known states of a thread in [from, to), in order of time; waits for a CPU are divided by
// process.
func (t *Tracker) eachOfThread(th *thread, from, to int64, f func(Interval)) {
	if from >= to || len(th.changes) == 0 {
		return
	}
	for i := indexBefore(th.changes, from, func(c *change) int64 { return c.time }); i < len(th.changes) && th.changes[i].time < to; i++ {
		c := &th.changes[i]
		x := Interval{Start: max(from, c.time), End: to, Kind: c.kind, Name: c.name, IsFault: c.isFault}
		if i+1 < len(th.changes) {
			x.End = min(to, th.changes[i+1].time)
		}
		switch {
		case x.End <= x.Start || c.kind == Unknown:
		case c.kind == Waiting:
			t.divideWait(c.cpu, x, f)
		default:
			f(x)
		}
	}
}

// A namedTime is the part of a wait in which one process had the CPU.
type namedTime struct {
	name tracefmt.StringID
	ns   int64
}

// divideWait divides a wait for CPU number by the processes that had the CPU, and calls f for each part.
func (t *Tracker) divideWait(number int32, wait Interval, f func(Interval)) {
	var buf [8]namedTime
	parts := buf[:0]
	add := func(name tracefmt.StringID, ns int64) {
		if ns <= 0 {
			return
		}
		entry.FindOrAppend(&parts, func(p namedTime) bool { return p.name == name }, namedTime{name: name}).ns += ns
	}
	if c := t.cpus[number]; c != nil && len(c.occupants) > 0 {
		start := wait.Start
		first := sort.Search(len(c.occupants), func(i int) bool { return c.occupants[i].time > wait.Start })
		if first == 0 {
			add(0, min(wait.End, c.occupants[0].time)-start)
			start = min(wait.End, max(start, c.occupants[0].time))
		}
		for i := max(first-1, 0); i < len(c.occupants) && c.occupants[i].time < wait.End; i++ {
			end := wait.End
			if i+1 < len(c.occupants) {
				end = min(end, c.occupants[i+1].time)
			}
			add(t.awaitedProcess(&c.occupants[i], max(start, c.occupants[i].time), end), end-max(start, c.occupants[i].time))
		}
	} else {
		add(0, wait.End-wait.Start)
	}
	start := wait.Start
	for _, p := range parts {
		part := wait
		part.Start, part.End, part.Name = start, start+p.ns, p.name
		start = part.End
		f(part)
	}
}

// awaitedProcess returns the name of the process for which a thread waited while occupant o had its CPU in [from, to). If o is a thread
// of the same process, but other processes had other CPUs, the wait is for those: an idle CPU would have taken the thread.
func (t *Tracker) awaitedProcess(o *occupant, from, to int64) tracefmt.StringID {
	if t.threads[o.tid] != nil {
		i := sort.Search(len(t.otherCPUs), func(i int) bool { return t.otherCPUs[i].time >= from-maxWakeDelayNS })
		if i < len(t.otherCPUs) && t.otherCPUs[i].time < to {
			return t.names.texts[t.otherCPUs[i].tid]
		}
	}
	return t.names.texts[o.tid]
}

// maxWakeDelayNS bounds the time from the request to wake a thread, with which its wait begins, until it is in a run queue.
const maxWakeDelayNS = 100e3

// ArrivalOf returns the arrival of the first bytes that goroutine g read in [from, to). ok is false if it is unknown.
func (t *Tracker) ArrivalOf(g uint64, from, to int64) (a Arrival, ok bool) {
	var first *read
	t.eachThreadOf(g, from, to, func(th *thread, begin, end int64) {
		if first != nil {
			return
		}
		i := sort.Search(len(th.reads), func(i int) bool { return th.reads[i].time >= begin })
		if i < len(th.reads) && th.reads[i].time < end {
			first = &th.reads[i]
		}
	})
	if first == nil {
		return a, false
	}
	var x *arrival
	t.eachArrivalOf(first, func(a *arrival) bool {
		x = a
		return true
	})
	if x == nil {
		return a, false
	}
	return Arrival{Time: x.time, Socket: first.socket, WokenAt: from, poller: x.poller}, true
}
