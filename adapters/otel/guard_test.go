package otel

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// TestCallbackPanics tests that a panic at collection is that collection's error, and that no recorder is no panic.
func TestCallbackPanics(t *testing.T) {
	r := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(r))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	m, err := New(Options{Provider: provider})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ObserveFlight(nil); err != nil {
		t.Fatal(err)
	}
	var rm metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &rm); err != nil {
		t.Errorf("without a recorder: %v", err)
	}
	if err := m.Observe(nil, new(tune.Tuner)); err != nil { // which was not started
		t.Fatal(err)
	}
	if err := r.Collect(context.Background(), &rm); err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("the error is %v", err)
	}
}

// TestNoProvider tests a program whose global provider is nil.
func TestNoProvider(t *testing.T) {
	otel.SetMeterProvider(nil)
	defer otel.SetMeterProvider(noop.NewMeterProvider())
	m, err := New(Options{})
	if err == nil {
		t.Error("it is used")
	}
	m.OnFreeze(probe.Freeze{})
}
