package prometheus

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// gather returns the metrics that a function sends, collected by a registry, which calls it in a separate goroutine.
type gather func(chan<- prometheus.Metric)

func (gather) Describe(chan<- *prometheus.Desc)       {}
func (g gather) Collect(out chan<- prometheus.Metric) { g(out) }
func (g gather) names(t *testing.T) (names []string) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(g)
	families, err := r.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names
}

// TestInvalidMetrics tests that a label or an exemplar that the library refuses costs that metric, or the exemplar, alone.
func TestInvalidMetrics(t *testing.T) {
	c := NewCollector(&probe.Probe{}, &tune.Tuner{})
	if got := gather(func(out chan<- prometheus.Metric) {
		c.collectTuner(out, &tune.State{GOMAXPROCS: 2, ProcsBy: "\xff", Quota: 1, GOGC: -1, EffectiveGOGC: -1, GCShare: -1, GCQuotaShare: -1, MemoryUsed: -1, Headroom: -1})
	}).names(t); !strings.Contains(strings.Join(got, " "), "whylate_cpu_quota_cpus") || strings.Contains(strings.Join(got, " "), "gomaxprocs") {
		t.Errorf("the tuner gives %q", got)
	}
	f := NewFlightCollector(nil)
	for _, last := range []string{strings.Repeat("x", 200), "\xff"} {
		if got := gather(func(out chan<- prometheus.Metric) {
			f.collect(out, &flight.State{Last: last, LastAt: time.Now(), CostFrom: "\xff"})
		}).names(t); !strings.Contains(strings.Join(got, " "), "whylate_flight_recordings_total") {
			t.Errorf("the recorder gives %q", got)
		}
	}
}

// TestCollectorPanics tests that a panic in a collector does not end the process, and that it is reported.
func TestCollectorPanics(t *testing.T) {
	previous := slog.Default()
	defer slog.SetDefault(previous)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	gather(func(out chan<- prometheus.Metric) { (&Collector{tuner: new(tune.Tuner)}).Collect(out) }).names(t)
	if !strings.Contains(log.String(), "a collector panicked") {
		t.Errorf("the log is %s", log.String())
	}
	// What service.Flight returns where the recorder's options make no sense.
	if got := gather(NewFlightCollector(nil).Collect).names(t); !strings.Contains(strings.Join(got, " "), "whylate_flight_recording") {
		t.Errorf("no recorder gives %q", got)
	}
}
