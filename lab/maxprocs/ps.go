//go:build linux

package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"
)

// psLoads are shares of the capacity of one P within the quota; 0 is a closed loop.
var psLoads = []float64{0.6, 0.85, 0}

// psCounts are the numbers of Ps.
var psCounts = []int{1, 2, 4, 8}

// psConnections of the closed loop.
const psConnections = 32

// psCell has the measurements of one number of Ps under one load, by round.
type psCell struct {
	rate, p99          []float64 // requests/s, ms
	periods, throttled int64
}

// sweepPs measures one quota with several numbers of Ps under several loads, and
// writes a table of medians over the rounds.
func sweepPs(c config, pattern string, out, progress io.Writer) error {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	if err := prioritizeLoad(); err != nil {
		return fmt.Errorf("giving the load a CPU or priority (root is needed): %w", err)
	}
	cost, err := calibrate(progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| quota, load | %s |\n|---|---|---|---|---|\n", "1 P: requests/s, p99 ms, throttled | 2 Ps | 4 Ps | 8 Ps")
	start, machineBefore, loadBefore := time.Now(), machineCPU(), cpuTime()
	var serviceCPU time.Duration
	for _, q := range c.quotas {
		for _, load := range psLoads {
			name := fmt.Sprintf("%.0f %%", 100*load)
			if load == 0 {
				name = "closed loop"
			}
			if !re.MatchString(name) {
				continue
			}
			cells := make([]psCell, len(psCounts))
			for round := range c.rounds {
				for i := range psCounts {
					k := (i + round) % len(psCounts)
					used, err := cells[k].measure(q, load, cost, psCounts[k], uint64(round+1), c.open)
					if err != nil {
						return fmt.Errorf("quota %v, %d Ps: %w", q, psCounts[k], err)
					}
					serviceCPU += used
				}
			}
			fmt.Fprintf(out, "| %v, %s |", q, name)
			for _, x := range cells {
				fmt.Fprintf(out, " %.0f, %.0f (%.0f to %.0f), %.0f %% |", median(x.rate), median(x.p99), slices.Min(x.p99), slices.Max(x.p99), 100*float64(x.throttled)/float64(max(1, x.periods)))
			}
			fmt.Fprintln(out)
		}
	}
	wall := time.Since(start)
	fmt.Fprintf(out, "\n%s, %d CPUs (%s), Linux %s; %d rounds of %v; the load used %.2f CPUs, the service %.2f, neighbours %.2f.\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		onlineCPUs(), cpuModel(), kernelRelease(), c.rounds, c.open, (cpuTime()-loadBefore).Seconds()/wall.Seconds(), serviceCPU.Seconds()/wall.Seconds(),
		max(0, (machineCPU()-machineBefore-serviceCPU-cpuTime()+loadBefore).Seconds()/wall.Seconds()))
	return nil
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

func (x *psCell) measure(quota, load float64, cost time.Duration, procs int, seed uint64, length time.Duration) (used time.Duration, err error) {
	g, err := newGroup(quota)
	if err != nil {
		return 0, err
	}
	defer func() { _ = g.KillAndRemove() }()
	s, err := startService(armGo, g, fmt.Sprint("GOMAXPROCS=", procs))
	if err != nil {
		return 0, err
	}
	defer s.stop()
	s.client.closedLoop(2, 300*time.Millisecond)
	s0 := readStat(g)
	start := time.Now()
	var l []time.Duration
	if load > 0 {
		l, _ = s.client.openLoop(load*quota/cost.Seconds(), length, seed)
	} else {
		l, _ = s.client.closedLoop(psConnections, length)
	}
	x.rate = append(x.rate, float64(len(l))/time.Since(start).Seconds())
	s1 := readStat(g)
	x.periods, x.throttled = x.periods+s1.Periods-s0.Periods, x.throttled+s1.Throttled-s0.Throttled
	x.p99 = append(x.p99, quantile(sortedCopy(l), 0.99).Seconds()*1000)
	st, err := s.stats()
	return st.CPU, err
}
