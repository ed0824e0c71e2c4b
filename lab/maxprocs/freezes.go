//go:build linux

package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

// A probedLoad is a load under which the service's probe is compared with the kernel's counters.
type probedLoad struct {
	name   string
	quota  float64
	parent bool // the quota is the parent group's
	procs  int
	// One of these: the share of the quota that an open loop needs, the connections of a closed loop, or a burst of requests
	// each interval.
	share       float64
	connections int
	burst       int
	interval    time.Duration
}

var probedLoads = []probedLoad{
	{name: "0.5, 1 P, 10 %", quota: 0.5, procs: 1, share: 0.1},
	{name: "0.5, 1 P, 50 %", quota: 0.5, procs: 1, share: 0.5},
	{name: "0.5, 1 P, 90 %", quota: 0.5, procs: 1, share: 0.9},
	{name: "0.5, 1 P, closed loop", quota: 0.5, procs: 1, connections: 8},
	{name: "0.5, 2 Ps, 50 %", quota: 0.5, procs: 2, share: 0.5},
	{name: "0.5, 2 Ps, closed loop", quota: 0.5, procs: 2, connections: 8},
	{name: "0.5, 8 Ps, closed loop", quota: 0.5, procs: 8, connections: 8},
	{name: "1, 2 Ps, closed loop", quota: 1, procs: 2, connections: 8},
	{name: "0.5, 2 Ps, bursts of 200 each 0.7 s", quota: 0.5, procs: 2, burst: 200, interval: 700 * time.Millisecond},
	{name: "0.5, 1 P, bursts of 200 each 3 s", quota: 0.5, procs: 1, burst: 200, interval: 3 * time.Second},
	{name: "0.5 on the parent, 1 P, closed loop", quota: 0.5, parent: true, procs: 1, connections: 8},
}

// probeDelay is the time after which the probe has read its counters again.
const probeDelay = 1200 * time.Millisecond

// A probeResult has the results of the probe and the kernel for one run.
type probeResult struct {
	kernel, counted, byTimer, wall time.Duration
	periods                        int64
	freezes                        int
}

// compareProbe compares the results of the service's probe with the kernel's counters, by kind of load, and writes a table
// with the spread over the rounds.
func compareProbe(rounds int, length time.Duration, pattern string, out, progress io.Writer) error {
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
	selected := slices.DeleteFunc(slices.Clone(probedLoads), func(d probedLoad) bool { return !re.MatchString(d.name) })
	results := make([][]probeResult, len(selected))
	start, machineBefore := time.Now(), machineCPU()
	var serviceCPU time.Duration
	for range rounds {
		for i, d := range selected {
			g, used, err := d.run(cost, length)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			serviceCPU += used
			results[i] = append(results[i], g)
			fmt.Fprintf(progress, "%s: %+v\n", d.name, g)
		}
	}
	fmt.Fprintln(out, "| quota, Ps, load | kernel's throttled time | the counters off by | FreezeCPU of it, median and range | throttled periods | freezes |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for i, d := range selected {
		fmt.Fprintf(out, "| %s | %s |\n", d.name, strings.Join(resultCells(results[i]), " | "))
	}
	wall := time.Since(start)
	fmt.Fprintf(out, "\n%s, %d CPUs (%s), Linux %s; %d rounds of %v; neighbours used %.2f CPUs.\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), onlineCPUs(), cpuModel(), kernelRelease(), rounds, length,
		max(0, (machineCPU()-machineBefore-serviceCPU-cpuTime()).Seconds()/wall.Seconds()))
	return nil
}

func resultCells(gs []probeResult) []string {
	number := func(f func(probeResult) float64) (lowest, median, highest float64) {
		var all []float64
		for _, g := range gs {
			all = append(all, f(g))
		}
		slices.Sort(all)
		return all[0], all[len(all)/2], all[len(all)-1]
	}
	medianAndRange := func(format string, f func(probeResult) float64) string {
		lowest, median, highest := number(f)
		return fmt.Sprintf(format+" ("+format+" to "+format+")", median, lowest, highest)
	}
	_, _, off := number(func(g probeResult) float64 { return max(g.kernel-g.counted, g.counted-g.kernel).Seconds() * 1000 })
	share := "-"
	if lowest, _, _ := number(func(g probeResult) float64 { return g.kernel.Seconds() }); lowest > 0.02 {
		share = medianAndRange("%.2f", func(g probeResult) float64 { return g.byTimer.Seconds() / g.kernel.Seconds() })
	}
	return []string{
		medianAndRange("%.2f s", func(g probeResult) float64 { return g.kernel.Seconds() }),
		fmt.Sprintf("%.1f ms at most", off),
		share,
		medianAndRange("%.0f", func(g probeResult) float64 { return float64(g.periods) }),
		medianAndRange("%.0f", func(g probeResult) float64 { return float64(g.freezes) }),
	}
}

func (d *probedLoad) run(cost, length time.Duration) (g probeResult, used time.Duration, err error) {
	holder, err := newGroup(d.quota)
	if err != nil {
		return g, 0, err
	}
	defer func() { _ = holder.KillAndRemove() }()
	serviceGroup := holder
	if d.parent {
		if serviceGroup, err = cpugroup.New(cpugroup.Options{Parent: holder}); err != nil {
			return g, 0, err
		}
		defer func() { _ = serviceGroup.KillAndRemove() }()
	}
	s, err := startService(armGo, serviceGroup, fmt.Sprint("GOMAXPROCS=", d.procs), probeVariable+"=1")
	if err != nil {
		return g, 0, err
	}
	defer s.stop()
	s.client.closedLoop(2, 300*time.Millisecond) // warm up caches; the probe starts at the first request for statistics
	if _, err := s.stats(); err != nil {
		return g, 0, err
	}
	time.Sleep(probeDelay)
	before := readStat(holder)
	first, err := s.stats()
	if err != nil {
		return g, 0, err
	}
	switch {
	case d.share > 0:
		s.client.openLoop(d.share*d.quota/cost.Seconds(), length, rand.Uint64())
	case d.burst > 0:
		s.client.sendBursts(d.burst, d.interval, length)
	default:
		s.client.closedLoop(d.connections, length)
	}
	// The kernel counts throttled time at its end.
	time.Sleep(probeDelay)
	last, err := s.stats()
	if err != nil {
		return g, 0, err
	}
	throttled := readStat(holder).Minus(before)
	g = probeResult{
		kernel: time.Duration(throttled.ThrottledNS), counted: last.Counted - first.Counted, byTimer: last.FreezeCPU - first.FreezeCPU,
		wall: last.FreezeTime - first.FreezeTime, periods: throttled.Throttled, freezes: int(last.Freezes - first.Freezes),
	}
	return g, last.CPU, nil
}

// sendBursts sends n concurrent requests at each interval, for d.
func (c *client) sendBursts(n int, interval, d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
		next := time.Now().Add(interval)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { _ = c.getPage() })
		}
		wg.Wait()
		time.Sleep(time.Until(next))
	}
}
