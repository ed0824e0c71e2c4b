package prometheus

import (
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// reportPanic is deferred in methods that a registry calls. The registry calls them in goroutines in which a panic would end the
// service. reportPanic reports the panic to slog.Default instead, and the scrape lacks the remaining metrics.
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
