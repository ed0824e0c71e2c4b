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

// A demand is what the service is asked for while its probe is compared with the
// kernel.
type demand struct {
	name   string
	quota  float64
	parent bool // the quota is the parent group's
	procs  int
	// One of these: a share of the quota that an open loop needs, connections of a
	// closed loop, or a burst of so many requests each every.
	share       float64
	connections int
	burst       int
	every       time.Duration
}

var demands = []demand{
	{name: "0.5, 1 P, 10 %", quota: 0.5, procs: 1, share: 0.1},
	{name: "0.5, 1 P, 50 %", quota: 0.5, procs: 1, share: 0.5},
	{name: "0.5, 1 P, 90 %", quota: 0.5, procs: 1, share: 0.9},
	{name: "0.5, 1 P, closed loop", quota: 0.5, procs: 1, connections: 8},
	{name: "0.5, 2 Ps, 50 %", quota: 0.5, procs: 2, share: 0.5},
	{name: "0.5, 2 Ps, closed loop", quota: 0.5, procs: 2, connections: 8},
	{name: "0.5, 8 Ps, closed loop", quota: 0.5, procs: 8, connections: 8},
	{name: "1, 2 Ps, closed loop", quota: 1, procs: 2, connections: 8},
	{name: "0.5, 2 Ps, bursts of 200 each 0.7 s", quota: 0.5, procs: 2, burst: 200, every: 700 * time.Millisecond},
	{name: "0.5, 1 P, bursts of 200 each 3 s", quota: 0.5, procs: 1, burst: 200, every: 3 * time.Second},
	{name: "0.5 on the parent, 1 P, closed loop", quota: 0.5, parent: true, procs: 1, connections: 8},
}

// settled is how long it takes until the probe has looked at its counters again.
const settled = 1200 * time.Millisecond

// A glimpse is what the probe and the kernel said of one run.
type glimpse struct {
	kernel, counted, byTimer, wall time.Duration
	periods                        int64
	freezes                        int
}

// watch compares what the service's probe says with the kernel's counters, by
// kind of load, and writes a table with the spread over the rounds.
func watch(rounds int, length time.Duration, only string, out, progress io.Writer) error {
	re, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	if err := settleLoad(); err != nil {
		return fmt.Errorf("setting the load apart (root is needed): %w", err)
	}
	cost, err := calibrate(progress)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(demands), func(d demand) bool { return !re.MatchString(d.name) })
	seen := make([][]glimpse, len(chosen))
	begun, busy := time.Now(), machineCPU()
	var served time.Duration
	for range rounds {
		for i, d := range chosen {
			g, used, err := d.run(cost, length)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			served += used
			seen[i] = append(seen[i], g)
			fmt.Fprintf(progress, "%s: %+v\n", d.name, g)
		}
	}
	fmt.Fprintln(out, "| quota, Ps, load | kernel's throttled time | the counters off by | FreezeCPU of it, median and range | throttled periods | freezes |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for i, d := range chosen {
		fmt.Fprintf(out, "| %s | %s |\n", d.name, strings.Join(cells(seen[i]), " | "))
	}
	wall := time.Since(begun)
	fmt.Fprintf(out, "\n%s, %d CPUs (%s), Linux %s; %d rounds of %v; neighbours used %.2f CPUs.\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"), onlineCPUs(), model(), kernel(), rounds, length,
		max(0, (machineCPU()-busy-served-cpuTime()).Seconds()/wall.Seconds()))
	return nil
}

func cells(gs []glimpse) []string {
	number := func(f func(glimpse) float64) (least, median, most float64) {
		var all []float64
		for _, g := range gs {
			all = append(all, f(g))
		}
		slices.Sort(all)
		return all[0], all[len(all)/2], all[len(all)-1]
	}
	span := func(format string, f func(glimpse) float64) string {
		least, median, most := number(f)
		return fmt.Sprintf(format+" ("+format+" to "+format+")", median, least, most)
	}
	_, _, off := number(func(g glimpse) float64 { return max(g.kernel-g.counted, g.counted-g.kernel).Seconds() * 1000 })
	share := "-"
	if least, _, _ := number(func(g glimpse) float64 { return g.kernel.Seconds() }); least > 0.02 {
		share = span("%.2f", func(g glimpse) float64 { return g.byTimer.Seconds() / g.kernel.Seconds() })
	}
	return []string{
		span("%.2f s", func(g glimpse) float64 { return g.kernel.Seconds() }),
		fmt.Sprintf("%.1f ms at most", off),
		share,
		span("%.0f", func(g glimpse) float64 { return float64(g.periods) }),
		span("%.0f", func(g glimpse) float64 { return float64(g.freezes) }),
	}
}

func (d *demand) run(cost, length time.Duration) (g glimpse, used time.Duration, err error) {
	holder, err := newGroup(d.quota)
	if err != nil {
		return g, 0, err
	}
	defer func() { _ = holder.KillAndRemove() }()
	own := holder
	if d.parent {
		if own, err = cpugroup.New(cpugroup.Options{Parent: holder}); err != nil {
			return g, 0, err
		}
		defer func() { _ = own.KillAndRemove() }()
	}
	s, err := launch(armGo, own, fmt.Sprint("GOMAXPROCS=", d.procs), probeVariable+"=1")
	if err != nil {
		return g, 0, err
	}
	defer s.stop()
	s.client.closed(2, 300*time.Millisecond) // until caches are warm; the probe begins at the first question
	if _, err := s.stats(); err != nil {
		return g, 0, err
	}
	time.Sleep(settled)
	before := counted(holder)
	first, err := s.stats()
	if err != nil {
		return g, 0, err
	}
	switch {
	case d.share > 0:
		s.client.open(d.share*d.quota/cost.Seconds(), length, rand.Uint64())
	case d.burst > 0:
		s.client.bursts(d.burst, d.every, length)
	default:
		s.client.closed(d.connections, length)
	}
	// What is held back is counted when it ends.
	time.Sleep(settled)
	last, err := s.stats()
	if err != nil {
		return g, 0, err
	}
	held := counted(holder).Minus(before)
	g = glimpse{
		kernel: time.Duration(held.ThrottledNS), counted: last.Counted - first.Counted, byTimer: last.FreezeCPU - first.FreezeCPU,
		wall: last.FreezeTime - first.FreezeTime, periods: held.Throttled, freezes: int(last.Freezes - first.Freezes),
	}
	return g, last.CPU, nil
}

// bursts sends n requests at once, again and again, for d.
func (c *client) bursts(n int, every, d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; {
		next := time.Now().Add(every)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { _ = c.page() })
		}
		wg.Wait()
		time.Sleep(time.Until(next))
	}
}
