package otel

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/whylate/whylate/service/flight"
)

// ObserveFlight creates the instruments of a flight recorder, which are read at
// collection. Call it once for each recorder.
func (m *Metrics) ObserveFlight(r *flight.Recorder) error {
	b := &builder{meter: m.meter}
	recording := b.intGauge("whylate.flight.recording", "1", "Whether the runtime's flight recorder runs.")
	cost := b.gauge("whylate.flight.cost", "1", "The runtime's flight recorder's share of the CPUs if it runs all the time, and how that is known.")
	ownCost := b.gauge("whylate.flight.own_cost", "1", "The share of the CPUs that reading the kernel's counters takes.")
	budget := b.gauge("whylate.flight.budget", "1", "What the recorder may cost, as a share of the CPUs.")
	duty := b.gauge("whylate.flight.duty", "1", "The part of the time that the recorder runs to stay within its budget.")
	off := b.counter("whylate.flight.off.time", "s", "Time in which the recorder was off because of its budget.")
	triggers := b.intCounter("whylate.flight.triggers", "{moment}", "Moments worth a recording, by kind.")
	missed := b.intCounter("whylate.flight.missed", "{moment}", "Moments worth a recording that are in none, by kind: there were enough, or the recorder was off.")
	recordings := b.intCounter("whylate.flight.recordings", "{recording}", "Recordings kept.")
	failed := b.intCounter("whylate.flight.failures", "{recording}", "Recordings that could not be written or handed over.")
	disk := b.intGauge("whylate.flight.disk", "By", "What the recordings in the directory take.")
	sent := b.intCounter("whylate.flight.uploads", "{recording}", "Recordings sent to a collector, by what became of them; failed ones are attempts that are made again.")
	with := func(key, value string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
	}
	kinds := make(map[flight.Kind]metric.MeasurementOption)
	for _, k := range flight.Kinds() {
		kinds[k] = with("whylate.flight.kind", string(k))
	}
	const outcome = "whylate.flight.outcome"
	sentOutcome, refusedOutcome, failedOutcome := with(outcome, "sent"), with(outcome, "refused"), with(outcome, "failed")
	return m.register(b, func(_ context.Context, o metric.Observer) error {
		s := r.State()
		n := int64(0)
		if s.Recording {
			n = 1
		}
		o.ObserveInt64(recording, n)
		o.ObserveFloat64(cost, s.Cost, metric.WithAttributes(attribute.String("whylate.source", s.CostFrom)))
		o.ObserveFloat64(ownCost, s.OwnCost)
		if s.Budget > 0 {
			o.ObserveFloat64(budget, s.Budget)
		}
		o.ObserveFloat64(duty, s.Duty)
		o.ObserveFloat64(off, s.Off.Seconds())
		for k, as := range kinds {
			o.ObserveInt64(triggers, int64(s.Triggers[k]), as)
			o.ObserveInt64(missed, int64(s.Missed[k]), as)
		}
		o.ObserveInt64(recordings, int64(s.Kept))
		o.ObserveInt64(failed, int64(s.Failed))
		o.ObserveInt64(disk, s.DiskBytes)
		if u := s.Upload; u != nil {
			o.ObserveInt64(sent, int64(u.Sent), sentOutcome)
			o.ObserveInt64(sent, int64(u.Refused), refusedOutcome)
			o.ObserveInt64(sent, int64(u.Failed), failedOutcome)
		}
		return nil
	})
}
