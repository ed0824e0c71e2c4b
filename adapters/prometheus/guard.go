package prometheus

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// reportPanic is deferred where a registry calls a collector. The registry does so in goroutines in which a panic would end the service;
// this reports it to slog.Default instead, and the scrape lacks the metrics that were still to come.
func reportPanic() {
	p := recover()
	if p == nil {
		return
	}
	defer func() { _ = recover() }()
	slog.Default().Error("whylate: a collector panicked", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
}

// send sends a metric, unless it is not valid. An invalid one would make the whole scrape of the service fail.
func send(out chan<- prometheus.Metric, m prometheus.Metric, err error) {
	if err == nil {
		out <- m
	}
}
