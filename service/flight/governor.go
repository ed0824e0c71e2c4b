package flight

import (
	"errors"
	"slices"
	"time"

	"github.com/whylate/whylate/service/internal/tracebatch"
)

// What the recorder costs is known in three steps, each better than the one
// before: by how often goroutines begin to run, which the runtime counts
// anyway; by the bytes that such a beginning was seen to write, of which the
// recorder is asked now and then; and, where it is off for a part of the time, by the
// CPU time that the service takes with and without it.
const (
	// byteCost is the CPU time that a byte of events costs, the tracer's part and the
	// stacks' that most events carry; docs/flight.md says how it was measured.
	byteCost = 15e-9 // seconds
	// startBytes are written for each beginning, as long as nobody has counted: a start,
	// a stop, a wake.
	startBytes = 17
	// The CPU time seen may correct the estimate by so much.
	mostFactor = 4
)

// How a cost is known.
const (
	costByStarts = "goroutine starts"
	costByBytes  = "bytes written"
	costByCPU    = "CPU time with and without"
)

// A governor decides whether the recorder may run: all the time within its
// budget; above it for the part of the time that costs as much as the budget; not
// at all where that would be too little to meet anything.
type governor struct {
	budget float64       // share of the CPUs; none if not positive
	on     time.Duration // for how long it runs at least, where it is off now and then

	cost     float64 // share of the CPUs if it runs all the time
	perStart float64 // bytes
	factor   float64 // CPU time seen by estimated
	how      string

	share float64 // of the time that it runs
	over  time.Duration
	runs  bool
	phase time.Duration // for how long it has run, or has not

	seen [2]usage  // of this phase and the one before, without their first seconds
	saw  []float64 // CPU seconds a start that the last cycles have shown
}

// usage is what a stretch of time took.
type usage struct{ cpu, starts float64 }

const (
	patience = 10 * time.Second // over the budget before the recorder stops
	again    = 0.8              // of the budget: below it, it runs all the time
	settling = 2 * time.Second  // of a phase, before it is measured
	leastOn  = 0.05             // of the time, or not at all
	cycles   = 7                // whose median counts

	leastStarts = 1000 // to be told from
)

func newGovernor(budget float64, minAge time.Duration) governor {
	return governor{budget: budget, on: minAge + 5*time.Second, perStart: startBytes, factor: 1, how: costByStarts, share: 1, runs: true}
}

// wrote takes in that so many bytes were seen to be written while goroutines began
// to run so many times.
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

// startCost is the CPU time of one beginning, in seconds.
func (g *governor) startCost() float64 { return g.perStart * byteCost * g.factor }

// decide takes in the time since the last call, in which goroutines began to run so
// many times on so many Ps and the process took so much CPU time, and reports
// whether the recorder may run. Starts are known while it is off, too. cpu is
// negative where it is not known.
func (g *governor) decide(took time.Duration, starts float64, procs int, cpu time.Duration) bool {
	if took <= 0 {
		return g.runs
	}
	weight := min(1, took.Seconds()/5)
	g.cost += (starts/took.Seconds()*g.startCost()/float64(max(procs, 1)) - g.cost) * weight
	if g.phase += took; g.phase > settling && cpu >= 0 {
		g.seen[0].cpu += cpu.Seconds()
		g.seen[0].starts += starts
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

// divide finds the part of the time in which it runs.
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
	g.seen[1], g.seen[0] = g.seen[0], usage{}
	g.runs, g.phase = runs, 0
}

func (g *governor) compare() {
	on, off := g.seen[0], g.seen[1]
	if on.starts < leastStarts || off.starts < leastStarts {
		return
	}
	g.saw = append(g.saw, on.cpu/on.starts-off.cpu/off.starts)
	if len(g.saw) > cycles {
		g.saw = g.saw[1:]
	}
	if len(g.saw) < cycles/2+1 {
		return
	}
	sorted := slices.Sorted(slices.Values(g.saw))
	g.factor = min(max(sorted[len(sorted)/2]/(g.perStart*byteCost), 1./mostFactor), mostFactor)
	g.how = costByCPU
}

// A counter counts the bytes of the generations after one.
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

// rate returns the bytes since the generation after which was counted. Of those
// that the recorder has let go meanwhile it takes as much.
func (c *counter) rate() float64 {
	if c.gens == 0 || c.last <= c.after {
		return 0
	}
	return c.bytes * float64(c.last-c.after) / float64(c.gens)
}
