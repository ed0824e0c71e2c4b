package otel

import (
	"context"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/whylate/whylate/service/flight"
)

// TestFlight exports a recorder's state and checks each value under its name.
func TestFlight(t *testing.T) {
	r, err := flight.Start(flight.Options{Dir: t.TempDir(), Upload: &flight.UploadOptions{URL: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	m, err := New(Options{Provider: provider})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.ObserveFlight(r); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Capture(context.Background(), "to see"); err != nil {
		t.Skip(err) // a Go version without a flight recorder, or a trace is being recorded
	}
	all := collect(t, reader)
	whole := func(name string) (sum int64, points int) {
		switch d := all[name].Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range d.DataPoints {
				sum, points = sum+p.Value, points+1
			}
		case metricdata.Gauge[int64]:
			for _, p := range d.DataPoints {
				sum, points = sum+p.Value, points+1
			}
		}
		return sum, points
	}
	kinds := len(flight.Kinds())
	for name, want := range map[string][2]int64{
		"whylate.flight.recording": {1, 1}, "whylate.flight.recordings": {1, 1}, "whylate.flight.failures": {0, 1},
		"whylate.flight.triggers": {0, int64(kinds)}, "whylate.flight.missed": {0, int64(kinds)}, "whylate.flight.uploads": {-1, 3},
		"whylate.flight.disk": {r.State().LastBytes, 1},
	} {
		sum, points := whole(name)
		if want[0] >= 0 && sum != want[0] || int64(points) != want[1] {
			t.Errorf("%s is %d of %d points, want %v", name, sum, points, want)
		}
	}
	for name, want := range map[string]float64{"whylate.flight.duty": 1, "whylate.flight.budget": 0.02} {
		d, ok := all[name].Data.(metricdata.Gauge[float64])
		if !ok || len(d.DataPoints) != 1 || d.DataPoints[0].Value != want {
			t.Errorf("%s is %+v", name, all[name])
		}
	}
}
