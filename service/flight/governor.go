package flight

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/quantity"
	"github.com/whylate/whylate/service/internal/tracebatch"
)

// The recorder's cost is estimated in three ways, each better than the one before: from
// how often goroutines start to run, which the runtime counts anyway; from the bytes that
// a start was measured to write; and, once the recorder runs part-time, from the CPU time
// that the service takes with and without it.
const (
	// byteCost is the CPU time of a byte of events, with the stacks that most events carry
	// (docs/internals/flight.md).
	byteCost = 15e-9 // seconds
	// startBytes is what a goroutine's start, stop and wake write, until it was measured.
	startBytes = 17
	// mostFactor bounds how far measured CPU time may correct the estimate.
	mostFactor = 4
)

// How a cost is known.
const (
	costByStarts = "goroutine starts"
	costByBytes  = "bytes written"
	costByCPU    = "CPU time with and without"
)

// A governor decides whether the recorder may run: all the time if that is within the
// budget, else the part of the time that costs as much as the budget, and not at all if
// that part is too short to record a slow moment.
type governor struct {
	budget float64       // share of the CPUs; none if not positive
	on     time.Duration // the shortest time that it runs, if it runs part-time

	cost     float64 // share of the CPUs if it runs all the time
	perStart float64 // bytes
	factor   float64 // CPU time measured, divided by estimated
	how      string

	share float64 // of the time that it runs
	over  time.Duration
	runs  bool
	phase time.Duration // how long runs has been what it is

	phases   [2]usage  // this one and the one before, without their first seconds
	measured []float64 // CPU seconds per start, in the last cycles
}

// usage is what the process used in an interval.
type usage struct{ cpu, starts float64 }

const (
	patience = 10 * time.Second // over the budget before the recorder stops
	again    = 0.8              // of the budget: below it, it runs all the time
	settling = 2 * time.Second  // of a phase, before it is measured
	leastOn  = 0.05             // of the time, or not at all
	cycles   = 7                // whose median counts

	leastStarts = 1000 // fewer say nothing
)

func newGovernor(budget float64, minAge time.Duration) governor {
	return governor{budget: budget, on: minAge + 5*time.Second, perStart: startBytes, factor: 1, how: costByStarts, share: 1, runs: true}
}

// wrote notes that this many bytes were written while goroutines started this often.
func (g *governor) wrote(bytes, starts float64) {
	if starts < leastStarts {
		return
	}
	per := bytes / starts
	if g.how != costByStarts {
		per = (g.perStart + per) / 2
	} else {
		g.how = costByBytes
	}
	g.perStart = per
}

// startCost is the CPU time of one start, in seconds.
func (g *governor) startCost() float64 { return g.perStart * byteCost * g.factor }

// decide notes the time since the last call with its starts, Ps and CPU time, and
// reports whether the recorder may run. Starts are known while it is off, too. cpu is
// negative if unknown.
func (g *governor) decide(took time.Duration, starts float64, procs int, cpu time.Duration) bool {
	if took <= 0 {
		return g.runs
	}
	weight := min(1, took.Seconds()/5)
	g.cost += (starts/took.Seconds()*g.startCost()/float64(max(procs, 1)) - g.cost) * weight
	if g.phase += took; g.phase > settling && cpu >= 0 {
		g.phases[0].cpu += cpu.Seconds()
		g.phases[0].starts += starts
	}
	if g.cost > g.budget {
		g.over += took
	} else {
		g.over = 0
	}
	switch {
	case g.budget <= 0:
		g.runs = true
	case g.share == 1: // all the time
		if g.over >= patience {
			g.divide()
		}
	case g.runs:
		if g.phase >= g.on {
			g.change(false)
			g.divide()
		}
	case g.cost < again*g.budget:
		g.change(true)
		g.share = 1
	default:
		if g.divide(); g.share > 0 && g.phase >= time.Duration(float64(g.on)*(1/g.share-1)) {
			g.change(true)
		}
	}
	return g.runs
}

// divide sets the part of the time that it runs.
func (g *governor) divide() {
	if g.share = g.budget / g.cost; g.share >= 1 {
		g.share = again // the next phase decides
	}
	if g.share < leastOn {
		g.share = 0
		if g.runs {
			g.change(false)
		}
	}
}

// change begins a phase. With the end of one in which the recorder ran, what it costs
// is seen: against the phase before, in which it did not.
func (g *governor) change(runs bool) {
	if !runs {
		g.compare()
	}
	g.phases[1], g.phases[0] = g.phases[0], usage{}
	g.runs, g.phase = runs, 0
}

func (g *governor) compare() {
	on, off := g.phases[0], g.phases[1]
	if on.starts < leastStarts || off.starts < leastStarts {
		return
	}
	g.measured = append(g.measured, on.cpu/on.starts-off.cpu/off.starts)
	if len(g.measured) > cycles {
		g.measured = g.measured[1:]
	}
	if len(g.measured) < cycles/2+1 {
		return
	}
	sorted := slices.Sorted(slices.Values(g.measured))
	g.factor = min(max(sorted[len(sorted)/2]/(g.perStart*byteCost), 1./mostFactor), mostFactor)
	g.how = costByCPU
}

// govern starts and stops the runtime's flight recorder as the budget allows.
func (r *Recorder) govern(n int, s reading) {
	cpu := time.Duration(-1)
	if spent, ok := cputime.Process(); ok {
		cpu, r.spent = spent-r.spent, spent
	}
	r.countBytes(n, s)
	if r.gov.decide(s.took, s.starts, runtime.GOMAXPROCS(0), cpu) {
		r.begin()
	} else {
		if r.rt.enabled() {
			r.end("") // State.Why is set below
		}
		r.count = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &r.gov
	r.state.Cost, r.state.CostFrom, r.state.Duty = g.cost, g.how, g.share
	if g.runs {
		return
	}
	r.state.Off += s.took
	r.state.Why = fmt.Sprintf("paused: it would cost about %s of the CPUs, more than %s", quantity.Share(g.cost), quantity.Share(r.opts.Budget))
	if g.share > 0 {
		r.state.Why += fmt.Sprintf(", so it runs %s of the time", quantity.Percent(g.share))
	}
}

// The recorder's bytes are counted for countFor seconds of each countEvery; the first
// time comes sooner. To read them costs as much as the end of a generation, of which
// there is one a second anyway.
const (
	countFor   = 3
	countEvery = 60
)

// counting is a count of the recorder's bytes that has begun.
type counting struct {
	after  uint64 // generation
	at     time.Time
	starts float64 // of goroutines since then
}

// countBytes measures what a goroutine's start writes, for the governor.
func (r *Recorder) countBytes(n int, s reading) {
	if !r.rt.enabled() {
		return
	}
	if c := r.count; c == nil {
		if s.starts > leastStarts/countFor && (n%countEvery == 2 || r.gov.how == costByStarts && n%10 == 2) {
			if c, ok := r.readRing(counter{}); ok {
				r.count = &counting{after: c.last, at: time.Now()}
			}
		}
		return
	}
	r.count.starts += s.starts
	if n%10 != 2+countFor {
		return
	}
	if c, ok := r.readRing(counter{after: r.count.after}); ok {
		r.gov.wrote(c.rate(), r.count.starts)
		r.mu.Lock()
		r.state.BytesPerSecond = c.rate() / time.Since(r.count.at).Seconds()
		r.mu.Unlock()
	}
	r.count = nil
}

func (r *Recorder) readRing(c counter) (counter, bool) {
	c.head = tracebatch.HeaderLen
	_, err := r.rt.writeTo(&c)
	return c, err == nil
}

// A counter counts the bytes of the generations after the one given.
type counter struct {
	after, last uint64 // generations
	gens        uint64
	bytes       float64
	head        int // of the header that are still to come
}

// errNoBatch: the runtime's recorder writes whole batches.
var errNoBatch = errors.New("flight: the runtime's recorder does not write batches")

// Write takes one batch, or the header.
func (c *counter) Write(p []byte) (int, error) {
	if c.head > 0 {
		c.head -= min(c.head, len(p))
		return len(p), nil
	}
	if len(p) == 0 {
		return 0, errNoBatch
	}
	b, err := tracebatch.Parse(p)
	if err != nil || b.Len == 0 {
		return 0, errNoBatch
	}
	if b.Type == tracebatch.EndOfGeneration {
		return 1, nil
	}
	if b.Gen > c.after {
		c.bytes += float64(len(p))
		if b.Gen > c.last {
			c.gens++
		}
	}
	c.last = max(c.last, b.Gen)
	return len(p), nil
}

// rate returns the bytes written since generation after. Generations that the ring has
// dropped meanwhile count as the mean of the others.
func (c *counter) rate() float64 {
	if c.gens == 0 || c.last <= c.after {
		return 0
	}
	return c.bytes * float64(c.last-c.after) / float64(c.gens)
}
