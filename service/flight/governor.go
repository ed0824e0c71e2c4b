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

// The governor estimates the recorder's cost in three ways, each better than the one
// before: from the number of goroutine starts, which the runtime counts anyway; from the
// measured bytes of a start; and, once the recorder runs part-time, from the service's CPU
// time with and without the recorder.
const (
	// byteCost is the CPU time of writing one byte of events, including the stacks that most
	// events have (docs/internals/flight.md).
	byteCost = 15e-9 // seconds
	// startBytes is the size of a goroutine's start, stop and wake events, assumed until it
	// is measured.
	startBytes = 17
	// maxCPUFactor bounds the factor by which measured CPU time corrects the estimate.
	maxCPUFactor = 4
)

// Values of State.CostFrom.
const (
	costByStarts = "goroutine starts"
	costByBytes  = "bytes written"
	costByCPU    = "CPU time with and without"
)

// A governor decides whether the recorder may run. If its cost is within the budget, it
// runs all the time. Otherwise it runs for the share of the time (duty) that costs the
// budget, in phases of at least minRun, and not at all if that share is below minDuty.
type governor struct {
	budget float64       // share of the CPUs; no limit if not positive
	minRun time.Duration // duration of a phase in which a part-time recorder runs

	cost          float64 // share of the CPUs while it runs
	bytesPerStart float64
	cpuFactor     float64 // measured CPU time divided by the estimate
	costSource    string  // costByStarts, costByBytes or costByCPU

	duty       float64       // share of the time that the recorder runs
	overBudget time.Duration // how long cost has exceeded budget
	running    bool
	phaseTime  time.Duration // time since running changed

	phaseUsage    [2]usage  // of the current phase and the one before, without their first settlingTime
	measuredCosts []float64 // CPU seconds per start, of the last medianCycles cycles
}

// usage is the process's CPU time, in seconds, and its goroutine starts in an interval.
type usage struct{ cpu, starts float64 }

const (
	overBudgetPatience = 10 * time.Second // how long cost may exceed the budget before the recorder stops
	resumeShare        = 0.8              // of the budget; at a cost below it, the recorder runs all the time again
	settlingTime       = 2 * time.Second  // at the start of a phase, not measured
	minDuty            = 0.05             // a recorder that may run less is off
	medianCycles       = 7                // cycles whose median cost is used

	minStarts = 1000 // fewer starts are not measured
)

func newGovernor(budget float64, minAge time.Duration) governor {
	return governor{budget: budget, minRun: minAge + 5*time.Second, bytesPerStart: startBytes, cpuFactor: 1, costSource: costByStarts, duty: 1, running: true}
}

// noteBytes updates bytesPerStart by an interval in which the trace had so many bytes and the goroutines started to run so many times, unless starts
// is below minStarts.
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

// startCost returns the recorder's CPU time for one goroutine start, in seconds.
func (g *governor) startCost() float64 { return g.bytesPerStart * byteCost * g.cpuFactor }

// decide adds an interval (elapsed) with the number of times that goroutines started to run, the number of Ps and the process's CPU time, and reports
// whether the recorder may run from now on. The runtime counts starts also while the recorder is off. cpu is negative if unknown.
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
	case g.duty == 1:
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

// setDuty sets duty to the share of the time in which the recorder may run to cost the budget. If that is below minDuty, it sets 0 and ends the phase
// in which the recorder runs.
func (g *governor) setDuty() {
	if g.duty = g.budget / g.cost; g.duty >= 1 {
		g.duty = resumeShare // the cost fell; the next phase decides
	}
	if g.duty < minDuty {
		g.duty = 0
		if g.running {
			g.beginPhase(false)
		}
	}
}

// beginPhase records that a phase begins in which the recorder runs or is off; the caller starts or stops it. When the recorder
// goes off, the process's CPU time of the phase that ends is compared with that of the phase before, in which it was off.
func (g *governor) beginPhase(running bool) {
	if !running {
		g.compareCPU()
	}
	g.phaseUsage[1], g.phaseUsage[0] = g.phaseUsage[0], usage{}
	g.running, g.phaseTime = running, 0
}

// compareCPU derives the recorder's CPU time per goroutine start from the current phase, in which it ran, and the one before, and, when there are
// enough measurements, sets cpuFactor to the median of the last medianCycles.
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

// govern starts or stops the runtime's flight recorder as the budget allows, and shows the reason in the state. It is called once a second; seconds
// counts the calls.
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

// The ring's bytes are counted over countSeconds in each countPeriod, and earlier for the
// first time. Reading the ring costs as much as the end of a generation, which occurs
// once a second anyway.
const (
	countSeconds = 3
	countPeriod  = 60
)

// byteCounting is a started count of the ring's bytes.
type byteCounting struct {
	afterGeneration uint64 // the trace's last generation at the start
	started         time.Time
	starts          float64 // goroutine starts since then
}

// countBytes measures, now and then for countSeconds, the bytes that a goroutine's start to run writes, for the governor. seconds counts the calls,
// one a second.
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

// countRingBytes passes the ring's contents to c, and reports whether that succeeded.
func (r *Recorder) countRingBytes(c byteCounter) (byteCounter, bool) {
	c.headerLeft = tracebatch.HeaderLen
	_, err := r.ring.writeTo(&c)
	return c, err == nil
}

// A byteCounter is a writer that counts the bytes of the generations after afterGeneration.
type byteCounter struct {
	afterGeneration, lastGeneration uint64
	generations                     uint64
	bytes                           float64
	headerLeft                      int // bytes of the trace's header that were not written yet
}

// errNoBatch reports that a write was not one whole batch, as the runtime's recorder writes them.
var errNoBatch = errors.New("flight: the runtime's recorder does not write batches")

// Write skips the header, or counts one batch that belongs to a generation after afterGeneration. It returns errNoBatch for
// anything else.
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

// estimateBytes returns the bytes that the trace wrote since generation afterGeneration. Generations that the ring dropped before it was read count
// as the mean of the others; it is 0 if there is no later one.
func (c *byteCounter) estimateBytes() float64 {
	if c.generations == 0 || c.lastGeneration <= c.afterGeneration {
		return 0
	}
	return c.bytes * float64(c.lastGeneration-c.afterGeneration) / float64(c.generations)
}
