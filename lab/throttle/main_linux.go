// Throttle runs small services under real CPU quotas, beside busy neighbours,
// or neither, and records traces of them together with the kernel's own
// counters: what internal/explain/freeze is tested with.
//
//	go run ./lab/throttle run -kind http -quota 0.5 -procs 4 -d 5s -o x.trace
//	go run ./lab/throttle soak
//
// run prints what the kernel counted while the trace was recorded, as JSON.
// soak records fifty services that no quota holds back (healthy, collecting
// garbage, driven by tickers, beside busy neighbours), explains each, and
// fails if a single one is said to be throttled.
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
	fs.IntVar(&c.neighbours, "neighbours", 0, "busy threads of other processes beside it")
	fs.BoolVar(&c.heavy, "heavy", false, "let the service go before neighbours (always so under a quota without any)")
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
