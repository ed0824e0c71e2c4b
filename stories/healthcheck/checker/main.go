// Checker checks by TCP connects whether targets are alive and keeps a registry of those that are.
//
//	checker -targets targets.txt -interval 3s -timeout 100ms
//
// A target is taken out after -fall failed checks in a row and comes back after -rise good ones. GET /targets lists those that
// are in, /targets?all=1 all with their state, GET /metrics is in Prometheus' text format, PUT /log?level=debug changes the
// level. Each change is a line of -journal, which is read at the start: removed targets stay so over a restart or kill -9.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/whylate/whylate/service/auto"
)

func main() {
	var o options
	flag.StringVar(&o.targets, "targets", "", "file or http URL with a target host:port a line (required)")
	flag.DurationVar(&o.interval, "interval", 3*time.Second, "time between two checks of a target")
	flag.DurationVar(&o.timeout, "timeout", time.Second, "longest time to connect")
	flag.Float64Var(&o.jitter, "jitter", 0, "share of the interval by which checks vary at random")
	flag.IntVar(&o.fall, "fall", 3, "failed checks in a row that take a target out")
	flag.IntVar(&o.rise, "rise", 2, "good checks in a row that bring it back")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address of the registry")
	flag.StringVar(&o.journal, "journal", "", "file of changes")
	flag.TextVar(&o.level, "log", new(slog.LevelVar), "level to log from")
	// What the incident had, to have it again.
	flag.BoolVar(&o.together, "together", false, "start the checks of all targets at once instead of spread over the interval")
	flag.BoolVar(&o.format, "format", false, "format debug messages also if nobody wants them")
	flag.BoolVar(&o.labels, "labels", false, "report each check to metrics with labels in a map that is made for each check")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "checker:", err)
		os.Exit(1)
	}
}

type options struct {
	targets, listen, journal string
	interval, timeout        time.Duration
	jitter                   float64
	fall, rise               int
	level                    slog.LevelVar
	together, format, labels bool
}

func run(ctx context.Context, o *options) error {
	if o.interval <= 0 || o.timeout <= 0 || o.jitter < 0 || o.jitter >= 1 || o.fall < 1 || o.rise < 1 {
		return errors.New("-interval, -timeout, -fall and -rise must be above 0, -jitter in 0..1")
	}
	targets, err := readTargets(ctx, o.targets)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: &o.level}))
	r, err := newRegistry(targets, o.fall, o.rise, o.journal, logger)
	if err != nil {
		return err
	}
	m := &metrics{}
	c := &checker{o: o, registry: r, metrics: m, log: logger, dial: (&net.Dialer{Timeout: o.timeout, KeepAlive: -1}).DialContext}
	http.HandleFunc("GET /targets", r.list)
	http.HandleFunc("GET /metrics", m.serve)
	http.HandleFunc("PUT /log", func(w http.ResponseWriter, q *http.Request) {
		if err := o.level.UnmarshalText([]byte(q.FormValue("level"))); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return err
	}
	server := &http.Server{}
	go server.Serve(l)
	c.checkAll(ctx, targets)
	server.Close()
	return r.close()
}
