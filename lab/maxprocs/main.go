//go:build linux

// Command maxprocs compares three ways of setting GOMAXPROCS under a CPU quota, on one HTTP service, in one run:
//
//   - go: the runtime's choice
//   - automaxprocs: go.uber.org/automaxprocs
//   - whylate: github.com/whylate/whylate/service/auto
//
// It creates a cgroup for each quota, so it needs root and a hierarchy with the cpu controller. For each quota and way it
// starts the service in the group and measures twice:
//
//   - latency in an open loop: requests arrive at random (Poisson) at a rate that needs 60 % of the quota, however long
//     answers take, and a request's latency counts from its due time
//   - requests a second when 64 connections send as fast as they get answers
//
// The order of the ways changes from round to round, so that a disturbance by another process does not affect one of them
// alone. The table is Markdown.
//
//	go run ./lab/maxprocs
//
// With -ps it compares numbers of Ps instead, at each quota, under 60 and 85 % of the capacity of one P and in a closed loop.
// With -probe it starts a service with a probe under each of several loads, and compares the probe's results with the kernel's
// counters.
//
// A request waits for a backend (a timer of 1 to 3 ms), then sorts a list, encodes it as JSON and compresses it. On a machine
// with four CPUs or more, the load has its own CPU and the service the others; on a smaller one the load runs at a higher
// priority, and the table's last line has its CPU time.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	// Every arm is the same program; the other arms disable this package by the environment.
	_ "github.com/whylate/whylate/service/auto"
)

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		runRole(role)
		return
	}
	var c config
	quotas := flag.String("quotas", "0.5,1,1.5", "CPU quotas to compare at")
	flag.DurationVar(&c.open, "open", 5*time.Second, "length of each measurement of latency")
	flag.DurationVar(&c.closed, "closed", 2*time.Second, "length of each measurement of throughput")
	flag.IntVar(&c.rounds, "rounds", 2, "number of measurements of each")
	flag.Float64Var(&c.load, "load", 0.6, "share of the quota that the open-loop load needs")
	probes := flag.Bool("probe", false, "compare service/probe with the kernel's counters instead, by kind of load")
	pattern := flag.String("only", "", "with -probe or -ps: only loads whose name matches this `pattern`")
	ps := flag.Bool("ps", false, "compare numbers of Ps at the quotas instead, under several loads; -open is the length of each")
	flag.Parse()
	if *probes {
		if err := compareProbe(c.rounds, c.open, *pattern, os.Stdout, os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, "maxprocs:", err)
			os.Exit(3)
		}
		return
	}
	for _, q := range strings.Split(*quotas, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
		if err != nil || v <= 0 {
			fmt.Fprintf(os.Stderr, "maxprocs: -quotas %q: use numbers above 0, such as 0.5,1,1.5\n", *quotas)
			os.Exit(2)
		}
		c.quotas = append(c.quotas, v)
	}
	var err error
	if *ps {
		err = sweepPs(c, *pattern, os.Stdout, os.Stderr)
	} else {
		err = compare(c, os.Stdout, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "maxprocs:", err)
		os.Exit(3)
	}
}
