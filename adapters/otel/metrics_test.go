package otel

import (
	"context"
	"log/slog"
	"regexp"
	"testing"
	"testing/fstest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

func machine() cgroup.Options {
	return cgroup.Options{FS: fstest.MapFS{
		"proc/self/cgroup":                 {Data: []byte("0::/pod/app\n")},
		"proc/self/mountinfo":              {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"proc/self/status":                 {Data: []byte("Cpus_allowed_list:\t0-7\n")},
		"sys/fs/cgroup/cgroup.procs":       {},
		"sys/fs/cgroup/pod/cpu.max":        {Data: []byte("250000 100000\n")},
		"sys/fs/cgroup/pod/app/cpu.max":    {Data: []byte("max 100000\n")},
		"sys/fs/cgroup/pod/app/cpu.stat":   {Data: []byte("usage_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 7000\n")},
		"sys/fs/cgroup/pod/app/memory.max": {Data: []byte("1073741824\n")},
	}}
}

// collect returns what a reader sees, by name.
func collect(t *testing.T, r *sdk.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	all := map[string]metricdata.Metrics{}
	for _, s := range rm.ScopeMetrics {
		if s.Scope.Name != Scope {
			t.Errorf("scope %q", s.Scope.Name)
		}
		for _, m := range s.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

func set(t *testing.T, o cgroup.Options) (*Metrics, *sdk.ManualReader) {
	t.Helper()
	r := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(r))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	m, err := New(Options{Provider: provider})
	if err != nil {
		t.Fatal(err)
	}
	p := probe.Start(probe.Options{Cgroup: o})
	t.Cleanup(p.Stop)
	tuner := tune.Start(tune.Options{Cgroup: o, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(tuner.Stop)
	if err := m.Observe(p, tuner); err != nil {
		t.Fatal(err)
	}
	return m, r
}

func TestMetrics(t *testing.T) {
	m, r := set(t, machine())
	m.OnFreeze(probe.Freeze{Likely: 75 * time.Millisecond, Verdict: cgroup.VerdictAncestor})
	m.OnFreeze(probe.Freeze{Likely: 25 * time.Millisecond, Verdict: cgroup.VerdictAncestor})
	all := collect(t, r)

	if g, ok := all["whylate.cpu.quota"].Data.(metricdata.Gauge[float64]); !ok || len(g.DataPoints) != 1 || g.DataPoints[0].Value != 2.5 {
		t.Errorf("quota: %+v", all["whylate.cpu.quota"])
	}
	if g, ok := all["whylate.memory.limit"].Data.(metricdata.Gauge[int64]); !ok || len(g.DataPoints) != 1 || g.DataPoints[0].Value != 1<<30 {
		t.Errorf("memory limit: %+v", all["whylate.memory.limit"])
	}
	h, ok := all["whylate.freeze.duration"].Data.(metricdata.Histogram[float64])
	if !ok || len(h.DataPoints) != 1 || h.DataPoints[0].Count != 2 {
		t.Fatalf("freezes: %+v", all["whylate.freeze.duration"])
	}
	if v, ok := h.DataPoints[0].Attributes.Value(attribute.Key("whylate.verdict")); !ok || v.AsString() != "ancestor" {
		t.Errorf("verdict %v", v)
	}
	if s, ok := all["whylate.throttled.cpu.time"].Data.(metricdata.Sum[float64]); !ok || !s.IsMonotonic || len(s.DataPoints) != 2 {
		t.Errorf("throttled: %+v", all["whylate.throttled.cpu.time"])
	}
	if g, ok := all["whylate.gomaxprocs"].Data.(metricdata.Gauge[int64]); !ok || len(g.DataPoints) != 1 || g.DataPoints[0].Attributes.Len() != 1 {
		t.Errorf("GOMAXPROCS: %+v", all["whylate.gomaxprocs"])
	}

	name := regexp.MustCompile(`^whylate(\.[a-z][a-z0-9_]*)+$`)
	for n, x := range all {
		if !name.MatchString(n) || x.Description == "" || x.Unit == "" {
			t.Errorf("%q: unit %q, description %q", n, x.Unit, x.Description)
		}
	}

	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, unchanged := collect(t, r)["whylate.cpu.quota"]; unchanged {
		t.Error("observed after Close")
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	_, r := set(t, cgroup.Options{FS: fstest.MapFS{}})
	all := collect(t, r)
	for _, n := range []string{"whylate.cpu.quota", "whylate.memory.limit", "whylate.memory.headroom", "whylate.throttled.cpu.time", "whylate.gc.quota.utilization"} {
		if m, ok := all[n]; ok {
			t.Errorf("%s: %+v of something unknown", n, m)
		}
	}
	if _, ok := all["whylate.gomaxprocs"]; !ok {
		t.Error("no GOMAXPROCS")
	}
}

// Without a provider the global one is used, which does nothing by default.
func TestGlobalProvider(t *testing.T) {
	m, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	m.OnFreeze(probe.Freeze{Verdict: cgroup.VerdictOwn})
	if err := m.Observe(nil, nil); err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}
