//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

type config struct {
	quotas       []float64
	open, closed time.Duration
	rounds       int
	load         float64
}

// connections of the closed loop.
const connections = 64

// result has the measurements of one arm at one quota, over all rounds.
type result struct {
	procs              int
	latencies          []time.Duration
	failed             int
	periods, throttled int64 // in the open loop
	done               int
	wall               time.Duration // of the closed loop
	fullPeriods        int64
	fullThrottled      int64
}

func compare(c config, out, progress io.Writer) error {
	cpus := runtime.NumCPU()
	if err := prioritizeLoad(); err != nil {
		return fmt.Errorf("giving the load a CPU or priority (root is needed): %w", err)
	}
	cost, err := calibrate(progress)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "a request costs %v of CPU time\n", cost.Round(time.Microsecond))

	arms := []string{armGo, armAutomaxprocs, armWhylate}
	results := make(map[string]*result)
	key := func(q float64, arm string) string { return fmt.Sprint(q, " ", arm) }
	start, machineBefore := time.Now(), machineCPU()
	var serviceCPU time.Duration
	for round := range c.rounds {
		for _, q := range c.quotas {
			rate := c.load * q / cost.Seconds()
			for i := range arms {
				arm := arms[(i+round)%len(arms)]
				r := results[key(q, arm)]
				if r == nil {
					r = &result{}
					results[key(q, arm)] = r
				}
				used, err := measureArm(c, q, arm, rate, uint64(round+1), r)
				if err != nil {
					return fmt.Errorf("quota %v, %s: %w", q, arm, err)
				}
				serviceCPU += used
				fmt.Fprintf(progress, "round %d of %d, quota %v, %s: %d requests so far\n", round+1, c.rounds, q, arm, len(r.latencies))
			}
		}
	}
	wall := time.Since(start)
	loadCPU := cpuTime()
	othersCPU := machineCPU() - machineBefore - serviceCPU - loadCPU
	writeTable(out, c, arms, func(q float64, arm string) *result { return results[key(q, arm)] })
	placement := "the load ran on the same CPUs as the service, at a higher priority"
	if hasLoadCPU() {
		placement = "the load had its own CPU"
	}
	fmt.Fprintf(out, "\n%s, %d CPUs (%s), Linux %s, %s. %s; it used %.2f CPUs, and neighbours %.2f CPUs, on average over %v.\n",
		time.Now().UTC().Format("2006-01-02 15:04 UTC"), cpus, cpuModel(), kernelRelease(), runtime.Version(), placement,
		loadCPU.Seconds()/wall.Seconds(), max(0, othersCPU.Seconds()/wall.Seconds()), wall.Round(time.Second))
	return nil
}

func writeTable(out io.Writer, c config, arms []string, get func(float64, string) *result) {
	fmt.Fprintln(out, "| quota | set by | GOMAXPROCS | open loop, requests/s | p50 ms | p99 ms | p99.9 ms | throttled periods | closed loop, requests/s | throttled periods |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	ms := func(d time.Duration) string {
		if d == 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", float64(d)/float64(time.Millisecond))
	}
	for _, q := range c.quotas {
		for _, arm := range arms {
			r := get(q, arm)
			l := sortedCopy(r.latencies)
			failed := ""
			if r.failed > 0 {
				failed = fmt.Sprintf(" (%d failed)", r.failed)
			}
			fmt.Fprintf(out, "| %v | %s | %d | %.0f%s | %s | %s | %s | %d of %d | %.0f | %d of %d |\n", q, arm, r.procs,
				float64(len(l))/(c.open.Seconds()*float64(c.rounds)), failed,
				ms(quantile(l, 0.5)), ms(quantile(l, 0.99)), ms(quantile(l, 0.999)), r.throttled, r.periods,
				float64(r.done)/r.wall.Seconds(), r.fullThrottled, r.fullPeriods)
		}
	}
}

// calibrate measures the CPU time of a request, without a quota.
func calibrate(progress io.Writer) (time.Duration, error) {
	fmt.Fprintln(progress, "measuring the CPU time of a request")
	g, err := newGroup(0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = g.KillAndRemove() }()
	s, err := startService(armGo, g)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	s.client.closedLoop(4, 500*time.Millisecond) // warm up caches and connections
	before, err := s.stats()
	if err != nil {
		return 0, err
	}
	took, failed := s.client.closedLoop(4, 2*time.Second)
	after, err := s.stats()
	if err != nil {
		return 0, err
	}
	if len(took) < 10 || failed > 0 {
		return 0, fmt.Errorf("the service answered %d requests and failed %d", len(took), failed)
	}
	return (after.CPU - before.CPU) / time.Duration(len(took)), nil
}

func measureArm(c config, quota float64, arm string, rate float64, seed uint64, r *result) (used time.Duration, err error) {
	g, err := newGroup(quota)
	if err != nil {
		return 0, err
	}
	defer func() { _ = g.KillAndRemove() }()
	s, err := startService(arm, g)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	s.client.openLoop(rate/2, time.Second, 99)

	s0 := readStat(g)
	l, failed := s.client.openLoop(rate, c.open, seed)
	s1 := readStat(g)
	r.latencies = append(r.latencies, l...)
	r.failed += failed
	r.periods, r.throttled = r.periods+s1.Periods-s0.Periods, r.throttled+s1.Throttled-s0.Throttled

	start := time.Now()
	answered, failedClosed := s.client.closedLoop(connections, c.closed)
	r.wall += min(time.Since(start), c.closed)
	s2 := readStat(g)
	r.done, r.failed = r.done+len(answered), r.failed+failedClosed
	r.fullPeriods, r.fullThrottled = r.fullPeriods+s2.Periods-s1.Periods, r.fullThrottled+s2.Throttled-s1.Throttled

	st, err := s.stats()
	if err != nil {
		return 0, err
	}
	if r.procs != 0 && r.procs != st.GOMAXPROCS {
		return 0, fmt.Errorf("GOMAXPROCS was %d in one round and %d in another", r.procs, st.GOMAXPROCS)
	}
	r.procs = st.GOMAXPROCS
	return st.CPU, nil
}

// service is a running child.
type service struct {
	cmd    *exec.Cmd
	client *client
}

func startService(arm string, g *cpugroup.Group, env ...string) (*service, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, g.Dir)
	cmd.Env = append(append(os.Environ(), environment(arm)...), env...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &service{cmd: cmd}
	lines := bufio.NewScanner(pipe)
	if !lines.Scan() {
		s.stop()
		return nil, errors.New("the service ended before it listened")
	}
	s.client = newClient(lines.Text())
	return s, nil
}

func (s *service) stop() {
	if s.client != nil {
		s.client.close()
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *service) stats() (st stats, err error) {
	r, err := s.client.http.Get(s.client.base + "/stats")
	if err != nil {
		return st, err
	}
	defer r.Body.Close()
	return st, json.NewDecoder(r.Body).Decode(&st)
}
