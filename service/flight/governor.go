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
	// maxCPUFactor bounds how far measured CPU time may correct the estimate.
	maxCPUFactor = 4
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
	minRun time.Duration // the shortest time that it runs, if it runs part-time

	cost          float64 // share of the CPUs if it runs all the time
	bytesPerStart float64 // bytes
	cpuFactor     float64 // CPU time measured, divided by estimated
	costSource    string

	duty       float64 // of the time that it runs
	overBudget time.Duration
	running    bool
	phaseTime  time.Duration // how long runs has been what it is

	phaseUsage    [2]usage  // this one and the one before, without their first seconds
	measuredCosts []float64 // CPU seconds per start, in the last cycles
}

// usage is what the process used in an interval.
type usage struct{ cpu, starts float64 }

const (
	overBudgetPatience = 10 * time.Second // over the budget before the recorder stops
	resumeShare        = 0.8              // of the budget: below it, it runs all the time
	settlingTime       = 2 * time.Second  // of a phase, before it is measured
	minDuty            = 0.05             // of the time, or not at all
	medianCycles       = 7                // whose median counts

	minStarts = 1000 // fewer say nothing
)

func newGovernor(budget float64, minAge time.Duration) governor {
	return governor{budget: budget, minRun: minAge + 5*time.Second, bytesPerStart: startBytes, cpuFactor: 1, costSource: costByStarts, duty: 1, running: true}
}

// noteBytes notes that this many bytes were written while goroutines started this often.
func (g *governor) noteBytes(bytes, starts float64) {
	if starts < minStarts {
		return
	}
	bytesPerStart := bytes / starts
	if g.costSource != costByStarts {
		bytesPerStart = (g.bytesPerStart + bytesPerStart) / 2
	} else {
		g.costSource = costByBytes
	}
	g.bytesPerStart = bytesPerStart
}

// startCost is the CPU time of one start, in seconds.
func (g *governor) startCost() float64 { return g.bytesPerStart * byteCost * g.cpuFactor }

// decide notes the time since the last call with its starts, Ps and CPU time, and
// reports whether the recorder may run. Starts are known while it is off, too. cpu is
// negative if unknown.
func (g *governor) decide(elapsed time.Duration, starts float64, procs int, cpu time.Duration) bool {
	if elapsed <= 0 {
		return g.running
	}
	weight := min(1, elapsed.Seconds()/5)
	g.cost += (starts/elapsed.Seconds()*g.startCost()/float64(max(procs, 1)) - g.cost) * weight
	if g.phaseTime += elapsed; g.phaseTime > settlingTime && cpu >= 0 {
		g.phaseUsage[0].cpu += cpu.Seconds()
		g.phaseUsage[0].starts += starts
	}
	if g.cost > g.budget {
		g.overBudget += elapsed
	} else {
		g.overBudget = 0
	}
	switch {
	case g.budget <= 0:
		g.running = true
	case g.duty == 1: // all the time
		if g.overBudget >= overBudgetPatience {
			g.setDuty()
		}
	case g.running:
		if g.phaseTime >= g.minRun {
			g.beginPhase(false)
			g.setDuty()
		}
	case g.cost < resumeShare*g.budget:
		g.beginPhase(true)
		g.duty = 1
	default:
		if g.setDuty(); g.duty > 0 && g.phaseTime >= time.Duration(float64(g.minRun)*(1/g.duty-1)) {
			g.beginPhase(true)
		}
	}
	return g.running
}

// setDuty sets the part of the time that it runs.
func (g *governor) setDuty() {
	if g.duty = g.budget / g.cost; g.duty >= 1 {
		g.duty = resumeShare // the next phase decides
	}
	if g.duty < minDuty {
		g.duty = 0
		if g.running {
			g.beginPhase(false)
		}
	}
}

// beginPhase begins a phase. With the end of one in which the recorder ran, what it costs
// is seen: against the phase before, in which it did not.
func (g *governor) beginPhase(running bool) {
	if !running {
		g.compareCPU()
	}
	g.phaseUsage[1], g.phaseUsage[0] = g.phaseUsage[0], usage{}
	g.running, g.phaseTime = running, 0
}

func (g *governor) compareCPU() {
	on, off := g.phaseUsage[0], g.phaseUsage[1]
	if on.starts < minStarts || off.starts < minStarts {
		return
	}
	g.measuredCosts = append(g.measuredCosts, on.cpu/on.starts-off.cpu/off.starts)
	if len(g.measuredCosts) > medianCycles {
		g.measuredCosts = g.measuredCosts[1:]
	}
	if len(g.measuredCosts) < medianCycles/2+1 {
		return
	}
	sorted := slices.Sorted(slices.Values(g.measuredCosts))
	g.cpuFactor = min(max(sorted[len(sorted)/2]/(g.bytesPerStart*byteCost), 1./maxCPUFactor), maxCPUFactor)
	g.costSource = costByCPU
}

// govern starts and stops the runtime's flight recorder as the budget allows.
func (r *Recorder) govern(seconds int, metrics metricsReading) {
	cpu := time.Duration(-1)
	if processCPU, ok := cputime.Process(); ok {
		cpu, r.processCPU = processCPU-r.processCPU, processCPU
	}
	r.countBytes(seconds, metrics)
	if r.governor.decide(metrics.elapsed, metrics.starts, runtime.GOMAXPROCS(0), cpu) {
		r.startRing()
	} else {
		if r.ring.enabled() {
			r.stopRing("") // State.Why is set below
		}
		r.byteCount = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &r.governor
	r.state.Cost, r.state.CostFrom, r.state.Duty = g.cost, g.costSource, g.duty
	if g.running {
		return
	}
	r.state.Off += metrics.elapsed
	r.state.Why = fmt.Sprintf("paused: it would cost about %s of the CPUs, more than %s", quantity.Share(g.cost), quantity.Share(r.opts.Budget))
	if g.duty > 0 {
		r.state.Why += fmt.Sprintf(", so it runs %s of the time", quantity.Percent(g.duty))
	}
}

// The recorder's bytes are counted for countSeconds seconds of each countPeriod; the first
// time comes sooner. To read them costs as much as the end of a generation, of which
// there is one a second anyway.
const (
	countSeconds = 3
	countPeriod  = 60
)

// byteCounting is a count of the recorder's bytes that has begun.
type byteCounting struct {
	afterGeneration uint64 // generation
	started         time.Time
	starts          float64 // of goroutines since then
}

// countBytes measures what a goroutine's start writes, for the governor.
func (r *Recorder) countBytes(seconds int, metrics metricsReading) {
	if !r.ring.enabled() {
		return
	}
	if c := r.byteCount; c == nil {
		if metrics.starts > minStarts/countSeconds && (seconds%countPeriod == 2 || r.governor.costSource == costByStarts && seconds%10 == 2) {
			if c, ok := r.countRingBytes(byteCounter{}); ok {
				r.byteCount = &byteCounting{afterGeneration: c.lastGeneration, started: time.Now()}
			}
		}
		return
	}
	r.byteCount.starts += metrics.starts
	if seconds%10 != 2+countSeconds {
		return
	}
	if c, ok := r.countRingBytes(byteCounter{afterGeneration: r.byteCount.afterGeneration}); ok {
		r.governor.noteBytes(c.estimateBytes(), r.byteCount.starts)
		r.mu.Lock()
		r.state.BytesPerSecond = c.estimateBytes() / time.Since(r.byteCount.started).Seconds()
		r.mu.Unlock()
	}
	r.byteCount = nil
}

func (r *Recorder) countRingBytes(c byteCounter) (byteCounter, bool) {
	c.headerLeft = tracebatch.HeaderLen
	_, err := r.ring.writeTo(&c)
	return c, err == nil
}

// A counter counts the bytes of the generations after the one given.
type byteCounter struct {
	afterGeneration, lastGeneration uint64 // generations
	generations                     uint64
	bytes                           float64
	headerLeft                      int // of the header that are still to come
}

// errNoBatch: the runtime's recorder writes whole batches.
var errNoBatch = errors.New("flight: the runtime's recorder does not write batches")

// Write takes one batch, or the header.
func (c *byteCounter) Write(p []byte) (int, error) {
	if c.headerLeft > 0 {
		c.headerLeft -= min(c.headerLeft, len(p))
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
	if b.Gen > c.afterGeneration {
		c.bytes += float64(len(p))
		if b.Gen > c.lastGeneration {
			c.generations++
		}
	}
	c.lastGeneration = max(c.lastGeneration, b.Gen)
	return len(p), nil
}

// estimateBytes returns the bytes written since generation after. Generations that the ring has
// dropped meanwhile count as the mean of the others.
func (c *byteCounter) estimateBytes() float64 {
	if c.generations == 0 || c.lastGeneration <= c.afterGeneration {
		return 0
	}
	return c.bytes * float64(c.lastGeneration-c.afterGeneration) / float64(c.generations)
}
