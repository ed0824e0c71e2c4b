package prometheus

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/whylate/whylate/service/flight"
)

// TestFlight exports a recorder's state, and checks each value under its name and
// Prometheus' conventions.
func TestFlight(t *testing.T) {
	r, err := flight.Start(flight.Options{Dir: t.TempDir(), Upload: &flight.UploadOptions{URL: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop()
	c := NewFlightCollector(r)
	problems, err := testutil.CollectAndLint(c)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if err := prometheus.NewPedanticRegistry().Register(c); err != nil {
		t.Error(err)
	}
	if _, err := r.Capture(context.Background(), "to see"); err != nil {
		t.Skip(err) // a Go version without a flight recorder, or a trace is being recorded
	}
	got := map[string]float64{}
	var exemplars []string
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += "/" + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if e := m.GetCounter().GetExemplar(); e != nil {
				exemplars = append(exemplars, f.GetName()+" "+e.Label[0].GetName()+"="+e.Label[0].GetValue()+e.Timestamp.AsTime().Format(" 20060102T150405.000"))
			}
		}
	}
	for name, want := range map[string]float64{
		"whylate_flight_recording": 1, "whylate_flight_recordings_total": 1, "whylate_flight_failures_total": 0,
		"whylate_flight_triggers_total/slow": 0, "whylate_flight_missed_total/freeze": 0, "whylate_flight_budget_ratio": 0.02,
		"whylate_flight_duty_ratio": 1, "whylate_flight_off_seconds_total": 0, "whylate_flight_uploads_total/sent": 0,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, %v; want %v", name, v, ok, want)
		}
	}
	last := r.State()
	if want := []string{"whylate_flight_recordings_total recording=" + last.Last + last.LastAt.UTC().Format(" 20060102T150405.000")}; !slices.Equal(exemplars, want) ||
		!strings.Contains(last.Last, last.LastAt.UTC().Format("20060102T150405.000")) {
		t.Errorf("exemplars are %q, want %q", exemplars, want)
	}
	if got["whylate_flight_disk_bytes"] != float64(r.State().LastBytes) || got["whylate_flight_disk_bytes"] == 0 {
		t.Errorf("on disk are %v", got["whylate_flight_disk_bytes"])
	}
}
