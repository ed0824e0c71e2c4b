// Command throttle runs small services under real CPU quotas, next to busy processes, or without either, and records traces
// together with the kernel's counters. The tests of internal/explain/freeze use them.
//
//	go run ./lab/throttle run -kind http -quota 0.5 -procs 4 -d 5s -o x.trace
//	go run ./lab/throttle soak
//
// run prints the kernel's counts during the trace, as JSON. soak records fifty services without a quota (healthy, with much
// garbage collection, driven by tickers, next to busy processes), explains each, and fails if one is reported as throttled.
//
// A quota needs root and a hierarchy with the cpu controller.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	var err error
	switch verb, args := os.Args[1], os.Args[2:]; verb {
	case "run":
		err = runVerb(args)
	case "soak":
		err = soakVerb(args)
	case "serve":
		err = serveVerb(args)
	case "burn":
		burnVerb()
	default:
		usage()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "throttle:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: throttle run [flags] | soak [flags]; -h shows the flags")
	os.Exit(2)
}

func runVerb(args []string) error {
	var c config
	fs := flag.NewFlagSet("throttle run", flag.ExitOnError)
	fs.StringVar(&c.kind, "kind", "http", "`service`: "+kindList())
	fs.Float64Var(&c.quota, "quota", 0, "CPU quota in `CPUs`; 0 is none")
	fs.DurationVar(&c.period, "period", 100*time.Millisecond, "the quota's period")
	fs.IntVar(&c.procs, "procs", 0, "GOMAXPROCS of the service (0: the number of CPUs)")
	fs.IntVar(&c.neighbours, "neighbours", 0, "busy threads of other processes")
	fs.BoolVar(&c.heavy, "heavy", false, "give the service priority over the busy processes (always so under a quota without any)")
	fs.IntVar(&c.conns, "conns", 8, "connections that send requests")
	fs.DurationVar(&c.duration, "d", 5*time.Second, "length of the trace")
	fs.StringVar(&c.out, "o", "", "write the trace to `file`")
	_ = fs.Parse(args)
	if c.out == "" || !isKind(c.kind) || c.quota < 0 {
		fs.Usage()
		os.Exit(2)
	}
	r, err := recordService(c)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}
