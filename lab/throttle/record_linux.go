package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/experiment/cpugroup"
)

type config struct {
	kind       string
	quota      float64
	period     time.Duration
	procs      int
	neighbours int
	conns      int
	duration   time.Duration
	out        string
	heavy      bool
}

// A result is the output of run.
type result struct {
	Kind       string  `json:"kind"`
	Quota      float64 `json:"quota"`
	PeriodNS   int64   `json:"period_ns"`
	Neighbours int     `json:"neighbours"`
	count
	// OthersShare is the share of the machine's CPU time that other processes used during the trace.
	OthersShare float64 `json:"others"`
	// StolenNS is the CPU time that the hypervisor did not give to the machine during the trace. If the machine has a quota,
	// its effect in a trace looks like that of the service's.
	StolenNS int64 `json:"stolen_ns"`
}

// recordService runs a service, in a cgroup if it has a quota, and records a trace of it.
func recordService(c config) (r result, err error) {
	r.Kind, r.Quota, r.PeriodNS, r.Neighbours = c.kind, c.quota, c.period.Nanoseconds(), c.neighbours
	exe, err := os.Executable()
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.duration+60*time.Second)
	defer cancel()
	for range c.neighbours {
		n := exec.CommandContext(ctx, exe, "burn")
		n.Env = append(os.Environ(), "GOMAXPROCS=1")
		in, err := n.StdinPipe()
		if err != nil {
			return r, err
		}
		if err := n.Start(); err != nil {
			return r, fmt.Errorf("starting a busy process: %w", err)
		}
		defer func() {
			in.Close()
			_ = n.Wait()
		}()
	}
	args := []string{"serve", "-kind", c.kind, "-d", c.duration.String(), "-o", c.out}
	var group *cpugroup.Group
	if c.quota > 0 || c.heavy {
		if group, err = cpugroup.New(cpugroup.Options{CPUs: c.quota, Period: c.period, HighWeight: c.neighbours == 0 || c.heavy}); err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, group.Remove()) }()
		args = append(args, "-group", group.Dir)
	}
	if c.conns == 0 {
		c.conns = 8
	}
	procs := c.procs
	if procs == 0 {
		procs = runtime.NumCPU()
	}
	cmd := exec.CommandContext(ctx, exe, args...)
	if group != nil {
		group.Attach(cmd)
	}
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMAXPROCS=", procs))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, fmt.Errorf("starting the service: %w", err)
	}
	output := bufio.NewReader(out)
	addr, err := output.ReadString('\n')
	if err != nil {
		return r, fmt.Errorf("the service did not start: %w", cmd.Wait())
	}
	stop := sendLoad(ctx, "http://"+strings.TrimSpace(addr)+"/", c)
	before, start := machineTimes(), time.Now()
	line, readErr := output.ReadBytes('\n')
	after, wall := machineTimes(), time.Since(start)
	stop()
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("the service: %w", err)
	}
	if readErr != nil {
		return r, readErr
	}
	if err := json.Unmarshal(line, &r.count); err != nil {
		return r, err
	}
	busy := after.busy - before.busy
	r.OthersShare = max(0, float64(busy-time.Duration(r.CPUNS))/float64(wall)/float64(r.CPUs))
	r.StolenNS = (after.stolen - before.stolen).Nanoseconds()
	return r, nil
}

// sendLoad sends requests until stop is called, if the service has a handler.
func sendLoad(ctx context.Context, url string, c config) (stop func()) {
	switch c.kind {
	case "http", "light", "gc":
	default:
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: c.conns}}
	for range c.conns {
		wg.Go(func() {
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
				if err != nil {
					return
				}
				resp, err := client.Do(req)
				if err != nil {
					return // the service has ended
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				time.Sleep(time.Duration(rand.Int64N(int64(4 * time.Millisecond))))
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
		client.CloseIdleConnections()
	}
}

// cpuTimes are CPU times of the whole machine.
type cpuTimes struct {
	busy, stolen time.Duration // stolen is the part of busy that the hypervisor gave to other machines
}

func machineTimes() (t cpuTimes) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, v := range strings.Fields(line) {
		// cpu user nice system idle iowait irq softirq steal
		if i >= 1 && i <= 8 && i != 4 && i != 5 {
			n, _ := strconv.ParseInt(v, 10, 64)
			d := time.Duration(n) * 10 * time.Millisecond
			t.busy += d
			if i == 8 {
				t.stolen = d
			}
		}
	}
	return t
}
