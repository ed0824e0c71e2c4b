package threadstate

import (
	"maps"
	"slices"
	"sort"

	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

var kindNames = [KindCount]string{"unknown", "on-cpu", "cpu-wait", "throttled", "disk", "asleep", "stopped"}

// String returns the name of a state as the viewer shows it.
func (k Kind) String() string { return kindNames[k] }

// KeepAll makes Drop do nothing, for queries about any time after the last call of Add. The memory is then about 30 bytes
// for each event.
func (t *Tracker) KeepAll() { t.isWhole = true }

// CPUs returns the numbers of the CPUs that events name, in order.
func (t *Tracker) CPUs() []int32 { return slices.Sorted(maps.Keys(t.cpus)) }

// An Occupation is an interval in which one process had a CPU.
type Occupation struct {
	Start, End int64
	Name       tracefmt.StringID
	IsOwn      bool // it is a thread of the process
	// Thread is the number of an own thread in the trace.
	Thread uint64
}

// EachOccupation calls f for each interval in [from, to) in which a process had a CPU, in order of time. Other processes are
// known only while a thread of the own process waits for that CPU: the rest of their time is missing, as is that of an idle
// CPU.
func (t *Tracker) EachOccupation(number int32, from, to int64, f func(Occupation)) {
	c := t.cpus[number]
	if c == nil {
		return
	}
	waits := t.ownWaitsFor(number, from, to)
	for i := indexBefore(c.occupants, from, func(o *occupant) int64 { return o.time }); i < len(c.occupants) && c.occupants[i].time < to; i++ {
		o := &c.occupants[i]
		x := Occupation{Start: max(from, o.time), End: to, Name: t.names.texts[o.tid]}
		if i+1 < len(c.occupants) {
			x.End = min(to, c.occupants[i+1].time)
		}
		if th := t.threads[o.tid]; th != nil {
			x.IsOwn, x.Thread = true, th.number
			if x.Start < x.End {
				f(x)
			}
			continue
		}
		if o.tid <= 0 {
			continue
		}
		for len(waits) > 0 && waits[0].End <= x.Start {
			waits = waits[1:]
		}
		for _, w := range waits {
			part := x
			if part.Start, part.End = max(x.Start, w.Start), min(x.End, w.End); part.Start >= x.End {
				break
			}
			if part.Start < part.End {
				f(part)
			}
		}
	}
}

// ownWaitsFor returns the union of the waits of the process's own threads for CPU number in [from, to), in order of time.
func (t *Tracker) ownWaitsFor(number int32, from, to int64) (out []freeze.Interval) {
	for _, th := range t.threads {
		for i := indexBefore(th.changes, from, func(c *change) int64 { return c.time }); i < len(th.changes) && th.changes[i].time < to; i++ {
			c := &th.changes[i]
			if c.cpu != number || c.kind != Waiting && c.kind != Throttled {
				continue
			}
			x := freeze.Interval{Start: max(from, c.time), End: to}
			if i+1 < len(th.changes) {
				x.End = min(to, th.changes[i+1].time)
			}
			if x.Start < x.End {
				out = append(out, x)
			}
		}
	}
	return joinIntervals(out, 0)
}

// EachArrival calls f for the arrival times of the bytes that goroutine g read in [from, to).
func (t *Tracker) EachArrival(g uint64, from, to int64, f func(time int64)) {
	t.eachThreadOf(g, from, to, func(th *thread, begin, end int64) {
		for i := sort.Search(len(th.reads), func(i int) bool { return th.reads[i].time >= begin }); i < len(th.reads) && th.reads[i].time < end; i++ {
			t.eachArrivalOf(&th.reads[i], func(a *arrival) bool {
				f(a.time)
				return true
			})
		}
	})
}

// eachArrivalOf calls f for the arrivals of the bytes that one read returned, the last one first, until f returns false.
// Positions in the TCP stream connect the two.
func (t *Tracker) eachArrivalOf(r *read, f func(*arrival) bool) {
	s := t.sockets[r.socket]
	if s == nil || r.end == 0 {
		return
	}
	start := r.end - uint32(r.length) // position of the first byte that was read
	i := sort.Search(len(s.arrivals), func(i int) bool { return s.arrivals[i].time > r.time }) - 1
	for ; i >= 0 && s.arrivals[i].position != 0 && int32(s.arrivals[i].position-start) > 0; i-- {
		if !f(&s.arrivals[i]) {
			return
		}
	}
}

// EachThreadCPU calls f for the CPUs on which the threads of goroutine g ran or waited in [from, to).
func (t *Tracker) EachThreadCPU(g uint64, from, to int64, f func(number int32)) {
	t.eachThreadOf(g, from, to, func(th *thread, begin, end int64) {
		for i := indexBefore(th.changes, begin, func(c *change) int64 { return c.time }); i < len(th.changes) && th.changes[i].time < end; i++ {
			if k := th.changes[i].kind; k == OnCPU || k == Waiting || k == Throttled {
				f(th.changes[i].cpu)
			}
		}
	})
}
