package threadstate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/explain/freeze"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/report"
)

// lookaheadNS is how far beyond a generation events are read: the event that ends a wait shows whether a quota caused it, and a
// quota period is at most a second.
const lookaheadNS = 1100e6

// maxClockErrorNS is how much a trace's snapshot of CLOCK_MONOTONIC may differ from its own clock if that is the same clock.
const maxClockErrorNS = 1e6

// A Tracker follows the states of a process's threads through the kernel's events. Between two calls of Add several goroutines
// may query it.
type Tracker struct {
	reader    *kernelevents.Reader
	tables    *kernelevents.Tables
	err       error // why reading the events ended early
	readTo    int64 // all events before this time were read
	buf       []kernelevents.Event
	threads   map[int32]*thread  // own ones, by number on the host
	byM       map[uint64]*thread // by number in the process's own namespace
	cpus      map[int32]*cpu
	otherCPUs []occupant // other processes that had CPUs when a thread of this process began to wait behind another thread of this process
	sockets   map[uint64]*socket
	names     names
	peers     peers
	gens      []generation
	sums      sums
	lastCPU   map[int32]lastArrival // by CPU
	isWhole   bool                  // nothing is dropped
	wasBound  map[uint64]bool       // the threads of the trace that have run a goroutine: not the runtime's monitor
	// arrivals are those with which requests begin, by goroutine.
	arrivals map[uint64][]Arrival
	// ArrivedName is the symbol of report.Arrived.
	ArrivedName   tracefmt.StringID
	networkReason tracefmt.StringID // of a goroutine's wait
}

// A generation has the bindings of goroutines to threads in a generation of the trace, sorted by goroutine and time, and the
// bound intervals of each thread.
type generation struct {
	base, end int64
	bindings  []timeline.Binding
	byThread  map[uint64][]freeze.Interval
}

// A change is the beginning of a thread's state.
type change struct {
	time int64
	cpu  int32 // the CPU that it has or waits for
	kind Kind
	// name and isFault are those of an Interval, for Disk and Asleep.
	// For a thread of a peer, name is the index of its state if it sleeps or waits for a CPU.
	name    tracefmt.StringID
	isFault bool
	// Of a thread of a peer that sleeps: what woke it, and whether its system call waits for one of several things, or for a lock.
	isPoll, isLock bool
	waker          int32
}

// A thread is a thread of the own process, with its states in order of time.
type thread struct {
	tid     int32
	peer    string // of a thread of a peer: the name of its process
	number  uint64 // in the trace
	changes []change
	// current is its state, since the last element of changes.
	current Kind
	// readyIndex is the index of the change by which it entered a run queue, for Waiting and Throttled.
	readyIndex int
	reads      []read
}

// A cpu has the threads that had one CPU, as far as events show.
type cpu struct{ occupants []occupant }

// An occupant is the thread that has a CPU from a time on.
type occupant struct {
	time int64
	tid  int32 // 0: idle, -1: unknown
}

// A socket has the arrivals of one connection.
type socket struct {
	arrivals []arrival
	// otherEnd is, for a socket of the process, the other end of the connection in a peer, and sends the times of writes to it.
	otherEnd uint64
	sends    []int64
	// ownEnd is, for a socket of a peer, the other end of the connection. open is the exchange that is not complete yet, last the one
	// before if no event since then is missing.
	ownEnd    uint64
	exchanges []exchange
	open      exchange
	last      exchange
}

// An arrival is the arrival of bytes at a socket.
type arrival struct {
	time     int64
	position uint32 // position in the TCP stream after the bytes; 0: unknown
	// the thread that was woken for it; 0: none
	poller int32
}

// A lastArrival is the latest arrival on one CPU.
type lastArrival struct {
	socket uint64
	time   int64
}

// A read is a successful read of a socket by a thread. end is the position in the TCP stream after the bytes.
type read struct {
	time   int64
	socket uint64
	length int64
	end    uint32
}

// New returns a Tracker for a recording of the kernel's events, in the format of package kernelevents.
func New(data []byte) (*Tracker, error) {
	r, err := kernelevents.NewReader(data)
	if err != nil {
		return nil, fmt.Errorf("reading the kernel's events: %w", err)
	}
	if !r.HasTables {
		return nil, errors.New("reading the kernel's events: their tables are missing, because the recorder ended early")
	}
	t := &Tracker{
		reader: r, tables: &r.Tables, readTo: math.MinInt64, threads: map[int32]*thread{}, byM: map[uint64]*thread{}, cpus: map[int32]*cpu{}, sockets: map[uint64]*socket{},
		lastCPU: map[int32]lastArrival{}, arrivals: map[uint64][]Arrival{}, wasBound: map[uint64]bool{},
	}
	for i := range t.tables.Threads {
		if x := &t.tables.Threads[i]; x.Own {
			th := &thread{tid: x.TID, number: uint64(cmp.Or(x.NSTID, x.TID))}
			t.threads[x.TID], t.byM[th.number] = th, th
		}
	}
	t.names.init(t.tables)
	t.initPeers()
	t.sums.init()
	return t, nil
}

// Add adds the next generation of the trace, and reads events up to lookaheadNS after its end. It interns names in syms.
func (t *Tracker) Add(syms *tracefmt.Symbols, g *timeline.Gen) {
	if t.err != nil {
		return
	}
	t.ArrivedName, t.networkReason = syms.Intern(report.Arrived), syms.Intern("network")
	if g.First && g.Snapshot != nil {
		if d := g.SnapshotTime - int64(g.Snapshot.Mono); d > maxClockErrorNS || d < -maxClockErrorNS {
			t.tables.ClockOffsetNS += d // the trace has another clock
		}
	}
	if g.First && (t.Start() >= g.End || t.End() <= g.Base) {
		t.err = errors.New("the kernel's events are not used: they have another time than the trace")
		return
	}
	for t.readTo < g.End+lookaheadNS && t.err == nil {
		t.readBlock(syms)
	}
	x := generation{base: g.Base, end: g.End, byThread: map[uint64][]freeze.Interval{}}
	open := map[uint64]*timeline.Binding{} // by thread, its binding at the end of the generation before
	if n := len(t.gens); n > 0 {
		for i := range t.gens[n-1].bindings {
			if b := &t.gens[n-1].bindings[i]; !b.Ended {
				open[b.M] = b
			}
		}
	}
	g.EachBinding(func(b timeline.Binding) {
		if before := open[b.M]; before != nil {
			before.To = max(before.To, b.From)
			x.byThread[b.M] = append(x.byThread[b.M], freeze.Interval{Start: g.Base, End: b.From})
			delete(open, b.M)
		}
		x.bindings = append(x.bindings, b)
		x.byThread[b.M] = append(x.byThread[b.M], freeze.Interval{Start: b.From, End: b.To})
		t.wasBound[b.M] = true
	})
	t.sums.add(t, g)
	slices.SortFunc(x.bindings, func(a, b timeline.Binding) int { return cmp.Or(cmp.Compare(a.G, b.G), cmp.Compare(a.From, b.From)) })
	t.gens = append(t.gens, x)
}

// Start and End bound the time of the events.
func (t *Tracker) Start() int64 { return t.tables.Start + t.tables.ClockOffsetNS }

// End is the end of the time of the events.
func (t *Tracker) End() int64 { return t.tables.End + t.tables.ClockOffsetNS }

// Err returns why the events are not used, or not to their end; nil if they are.
func (t *Tracker) Err() error {
	if errors.Is(t.err, io.EOF) {
		return nil
	}
	return t.err
}

// IsUsed reports whether the events cover at least one generation of the trace.
func (t *Tracker) IsUsed() bool { return len(t.gens) > 0 }

// Drop frees the states of threads, CPUs and sockets before a time, in which no query will be interested. It does nothing after
// KeepAll.
func (t *Tracker) Drop(before int64) {
	if t.isWhole {
		return
	}
	i := 0
	for i < len(t.gens)-1 && t.gens[i+1].base <= before {
		i++
	}
	t.gens = slices.Delete(t.gens, 0, i)
	t.eachThread(func(th *thread) {
		if n := indexBefore(th.changes, before, func(c *change) int64 { return c.time }); n > 1000 && n > len(th.changes)/2 {
			th.readyIndex -= n
			th.changes = slices.Delete(th.changes, 0, n)
		}
		if n := indexBefore(th.reads, before, func(r *read) int64 { return r.time }); n > 1000 && n > len(th.reads)/2 {
			th.reads = slices.Delete(th.reads, 0, n)
		}
	})
	for _, c := range t.cpus {
		if n := indexBefore(c.occupants, before, func(o *occupant) int64 { return o.time }); n > 1000 && n > len(c.occupants)/2 {
			c.occupants = slices.Delete(c.occupants, 0, n)
		}
	}
	if n := indexBefore(t.otherCPUs, before, func(o *occupant) int64 { return o.time }); n > 1000 && n > len(t.otherCPUs)/2 {
		t.otherCPUs = slices.Delete(t.otherCPUs, 0, n)
	}
	for g, list := range t.arrivals {
		if list[len(list)-1].WokenAt < before {
			delete(t.arrivals, g)
		}
	}
	for _, s := range t.sockets {
		if n := indexBefore(s.arrivals, before, func(a *arrival) int64 { return a.time }); n > 100 && n > len(s.arrivals)/2 {
			s.arrivals = slices.Delete(s.arrivals, 0, n)
		}
		if n := indexBefore(s.sends, before, func(time *int64) int64 { return *time }); n > 100 && n > len(s.sends)/2 {
			s.sends = slices.Delete(s.sends, 0, n)
		}
		if n := indexBefore(s.exchanges, before, func(x *exchange) int64 { return x.sent }); n > 100 && n > len(s.exchanges)/2 {
			s.exchanges = slices.Delete(s.exchanges, 0, n)
		}
	}
}

// indexBefore returns the index of the last element of a sorted list whose time is not after t; 0 if there is none.
func indexBefore[T any](list []T, t int64, timeOf func(*T) int64) int {
	lo, hi := 0, len(list)
	for lo < hi {
		if m := (lo + hi) / 2; timeOf(&list[m]) <= t {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return max(lo-1, 0)
}

// readBlock reads the next block of events, converts their times to the trace's clock, and applies them. At the end of the
// events it ends all states.
func (t *Tracker) readBlock(syms *tracefmt.Symbols) {
	events, err := t.reader.Next(t.buf)
	if t.buf = events; err != nil {
		t.err, t.readTo = err, math.MaxInt64
		if errors.Is(err, io.EOF) {
			t.err = nil
		}
		t.endAllStates()
		return
	}
	for i := range events {
		e := &events[i]
		e.Time += t.tables.ClockOffsetNS
		t.addEvent(syms, e)
		t.readTo = e.Time
	}
}
