package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// A checker checks each target on a separate goroutine.
type checker struct {
	o        *options
	registry *registry
	metrics  *metrics
	log      *slog.Logger
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
}

// checkAll checks until ctx ends.
func (c *checker) checkAll(ctx context.Context, targets []string) {
	var all sync.WaitGroup
	for i, t := range targets {
		first := time.Duration(0)
		if !c.o.together {
			first = c.o.interval * time.Duration(i) / time.Duration(len(targets))
		}
		all.Go(func() { c.watch(ctx, i, t, first) })
	}
	all.Wait()
}

// watch checks one target again and again.
func (c *checker) watch(ctx context.Context, i int, target string, first time.Duration) {
	next := time.NewTimer(first)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		wait := c.o.interval
		if c.o.jitter > 0 {
			wait += time.Duration((2*rand.Float64() - 1) * c.o.jitter * float64(wait))
		}
		next.Reset(wait)
		c.check(ctx, i, target)
	}
}

// check connects to a target once.
func (c *checker) check(ctx context.Context, i int, target string) {
	c.debug("connecting", target, 0, nil)
	begin := time.Now()
	conn, err := c.dial(ctx, "tcp", target)
	took := time.Since(begin)
	if err == nil {
		// Without waiting for what the other end may still send.
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		conn.Close()
	} else if ctx.Err() != nil {
		return
	}
	c.debug("connected", target, took, err)
	c.metrics.checked(took, err != nil)
	if c.o.labels {
		c.report(target, took, err)
	}
	c.registry.checked(i, err == nil)
}

// debug logs at level debug.
func (c *checker) debug(what, target string, took time.Duration, err error) {
	if c.o.format {
		// A message that is formatted before the level is checked, as in the incident.
		m := fmt.Sprintf("check: %s target=%s took=%v timeout=%v interval=%v err=%v state=%+v", what, target, took, c.o.timeout, c.o.interval, err, map[string]any{"target": target, "fall": c.o.fall, "rise": c.o.rise})
		c.log.Debug(m)
		return
	}
	if c.log.Enabled(context.Background(), slog.LevelDebug) {
		c.log.Debug("check: "+what, "target", target, "took", took, "err", err)
	}
}

// report sends a check to metrics as clients of the incident's time did: it creates labels and a name for each.
func (c *checker) report(target string, took time.Duration, err error) {
	host, port, _ := net.SplitHostPort(target)
	for _, name := range []string{"check_count", "check_seconds", "check_failed"} {
		labels := map[string]string{"host": host, "port": port, "kind": "tcp", "failed": strconv.FormatBool(err != nil)}
		key := name
		for k, v := range labels {
			key += "," + k + "=" + v
		}
		c.metrics.add(key, took.Seconds())
	}
}
