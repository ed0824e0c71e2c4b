package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/lab/truth/load"
)

// targetFlags is the flag -path: PATH[:WEIGHT][:slow][:client=KIND], or a URL in place of the path.
type targetFlags []load.Target

func (t *targetFlags) String() string { return "" }

func (t *targetFlags) Set(s string) error {
	rest, url := s, ""
	if strings.HasPrefix(s, "http://") { // the port is not a weight
		i := strings.Index(s[len("http://"):], "/")
		if i < 0 {
			return fmt.Errorf("path %q: a URL needs a path", s)
		}
		url, rest = s[:len("http://")+i], s[len("http://")+i:]
	}
	parts := strings.Split(rest, ":")
	tg := load.Target{URL: url + parts[0], Name: parts[0], Weight: 1}
	for _, p := range parts[1:] {
		switch n, err := strconv.Atoi(p); {
		case err == nil && n > 0:
			tg.Weight = n
		case p == "slow":
			tg.Slow = true
		case strings.HasPrefix(p, "client="):
			tg.Client = strings.TrimPrefix(p, "client=")
		case strings.HasPrefix(p, "name="):
			tg.Name = strings.TrimPrefix(p, "name=")
		default:
			return fmt.Errorf("path %q: %q is neither a weight nor slow, name=N or client=KIND", s, p)
		}
	}
	*t = append(*t, tg)
	return nil
}

func loadVerb(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("truth load", flag.ContinueOnError)
	var options load.Options
	var paths targetFlags
	url := fs.String("url", "", "address of the service, http://host:port (gRPC: host:port)")
	fs.Var(&paths, "path", "a `path[:weight][:slow][:client=kind]` to ask for, or a URL; repeat it. For gRPC the method")
	fs.Float64Var(&options.Rate, "rate", 0, "open loop: so many requests a second (0: closed loop)")
	fs.IntVar(&options.Conns, "conns", 4, "connections: all of a closed loop's, or those an open loop begins with")
	fs.DurationVar(&options.Rest, "rest", 0, "closed loop: mean rest between an answer and the next request")
	fs.DurationVar(&options.Duration, "d", 3*time.Second, "no request starts after this time")
	fs.StringVar(&options.Proto, "proto", "http1", "http1, h2 or grpc")
	fs.Uint64Var(&options.Seed, "seed", 1, "of the order of paths and the open loop's times")
	asJSON := fs.Bool("json", false, "print the result as JSON")
	requests := fs.Bool("requests", false, "with -json: every request too")
	if _, err := parse(fs, args, stderr); err != nil {
		return err
	}
	base := strings.TrimSuffix(*url, "/")
	if options.Proto == "grpc" {
		base = strings.TrimPrefix(base, "http://")
	} else if base != "" && !strings.Contains(base, "://") {
		base = "http://" + base
	}
	for _, t := range paths {
		switch {
		case strings.HasPrefix(t.URL, "http://"):
		case base == "":
			fmt.Fprintln(stderr, "truth load: -url says where the service is")
			return errUsage
		case options.Proto == "grpc":
			t.Name = strings.TrimPrefix(t.Name, "/")
			t.URL = base + "/" + t.Name
		default:
			t.URL = base + "/" + strings.TrimPrefix(t.URL, "/")
		}
		options.Targets = append(options.Targets, t)
	}
	res, err := load.Run(ctx, options)
	if err != nil {
		return err
	}
	if !*requests {
		res.Requests = nil
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", " ")
		return enc.Encode(res)
	}
	for name, s := range res.ByName {
		printSummary(stdout, name, s)
	}
	printSummary(stdout, "all", &res.All)
	return nil
}

func printSummary(w io.Writer, name string, s *load.Summary) {
	ms := func(ns int64) float64 { return float64(ns) / 1e6 }
	fmt.Fprintf(w, "%-12s %6d ok %3d failed  mean %8.3f  p50 %8.3f  p90 %8.3f  p99 %8.3f  max %8.3f ms  share %.3f\n",
		name, s.Count, s.Failed, ms(s.MeanNS), ms(s.P50NS), ms(s.P90NS), ms(s.P99NS), ms(s.MaxNS), s.Share)
}
