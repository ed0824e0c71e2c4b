// Package otel exports a process's limits, the tuner's settings and the probe's lost
// time as OpenTelemetry metrics:
//
//	m, err := otel.New(otel.Options{}) // the global meter provider
//	if err != nil {
//		return err
//	}
//	defer m.Close()
//	p := probe.Start(probe.Options{OnFreeze: m.OnFreeze})
//	t := tune.Start(tune.Options{})
//	err = m.Observe(p, t)
//	err = m.ObserveFlight(rec) // a *flight.Recorder, if there is one
//
// Instruments follow OpenTelemetry's conventions: dots between words, units in
// UCUM, monotonic counters for values that only grow. A value that cannot be
// measured on this machine is absent, not zero, and so is a limit that does not
// exist. Everything but freezes is read when a reader collects.
//
// Times with unit s whose name has cpu are sums over CPUs, as the kernel
// counts throttled time: compare them with CPU time, never with wall
// time.
package otel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/whylate/whylate/adapters/otel"

// Options configure the metrics.
type Options struct {
	// Provider makes the meter; nil is the global one.
	Provider metric.MeterProvider
}

// Metrics holds the instruments. Its methods may be called concurrently.
type Metrics struct {
	meter  metric.Meter
	freeze metric.Float64Histogram
	regs   []metric.Registration

	verdicts map[cgroup.Verdict]metric.MeasurementOption
}

// New creates the instruments for freezes. Observe creates the other ones.
func New(o Options) (*Metrics, error) {
	if o.Provider == nil {
		o.Provider = otel.GetMeterProvider()
	}
	if o.Provider == nil {
		return nil, errors.New("the program set a nil meter provider")
	}
	m := &Metrics{meter: o.Provider.Meter(Scope), verdicts: map[cgroup.Verdict]metric.MeasurementOption{}}
	var err error
	m.freeze, err = m.meter.Float64Histogram("whylate.freeze.duration",
		metric.WithUnit("s"),
		metric.WithDescription("Intervals of wall time in which the kernel ran none of the process's threads."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5))
	if err != nil {
		return nil, fmt.Errorf("making the histogram of freezes: %w", err)
	}
	for _, v := range cgroup.Verdicts() {
		m.verdicts[v] = metric.WithAttributeSet(attribute.NewSet(attribute.String("whylate.verdict", string(v))))
	}
	return m, nil
}

// OnFreeze records one freeze. Set it as probe.Options.OnFreeze. A nil m, which New returns with an error, records none.
func (m *Metrics) OnFreeze(f probe.Freeze) {
	if m == nil {
		return
	}
	m.freeze.Record(context.Background(), f.Likely.Seconds(), m.verdicts[f.Verdict])
}

// Observe creates the instruments of p and t, which are read at collection. Either
// may be nil. Call it once.
func (m *Metrics) Observe(p *probe.Probe, t *tune.Tuner) error {
	var err error
	if p != nil {
		err = errors.Join(err, m.observeProbe(p))
	}
	if t != nil {
		err = errors.Join(err, m.observeTuner(t))
	}
	return err
}

// Close ends the observation.
func (m *Metrics) Close() error {
	var err error
	for _, r := range m.regs {
		err = errors.Join(err, r.Unregister())
	}
	m.regs = nil
	return err
}

// A builder creates instruments and collects their errors.
type builder struct {
	meter metric.Meter
	all   []metric.Observable
	err   error
}

// counter makes an observable counter and adds it to all. An error is joined to err.
func (b *builder) counter(name, unit, description string) metric.Float64ObservableCounter {
	i, err := b.meter.Float64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.all, b.err = append(b.all, i), errors.Join(b.err, err)
	return i
}

// intCounter makes an observable counter of integers and adds it to all. An error is joined to err.
func (b *builder) intCounter(name, unit, description string) metric.Int64ObservableCounter {
	i, err := b.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.all, b.err = append(b.all, i), errors.Join(b.err, err)
	return i
}

// gauge makes an observable gauge and adds it to all. An error is joined to err.
func (b *builder) gauge(name, unit, description string) metric.Float64ObservableGauge {
	i, err := b.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.all, b.err = append(b.all, i), errors.Join(b.err, err)
	return i
}

// intGauge makes an observable gauge of integers and adds it to all. An error is joined to err.
func (b *builder) intGauge(name, unit, description string) metric.Int64ObservableGauge {
	i, err := b.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	b.all, b.err = append(b.all, i), errors.Join(b.err, err)
	return i
}

// register makes the meter call f at each collection to observe the instruments of b, until Close. It returns the first error
// of making these instruments, if there was one.
func (m *Metrics) register(b *builder, f metric.Callback) error {
	if b.err != nil {
		return fmt.Errorf("making instruments: %w", b.err)
	}
	r, err := m.meter.RegisterCallback(recoverPanics(f), b.all...)
	if err != nil {
		return fmt.Errorf("registering the callback: %w", err)
	}
	m.regs = append(m.regs, r)
	return nil
}

// recoverPanics returns f with panics as errors: readers of metrics call it in goroutines in which a panic would end the service.
func recoverPanics(f metric.Callback) metric.Callback {
	return func(ctx context.Context, o metric.Observer) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("whylate's metrics panicked: %v\n%s", p, debug.Stack())
			}
		}()
		return f(ctx, o)
	}
}

// observeProbe makes the instruments of a probe (lateness, freezes, throttling, run queue and steal) and registers the callback
// that reads its snapshot at each collection. A counter that the host does not have is not observed.
func (m *Metrics) observeProbe(p *probe.Probe) error {
	b := &builder{meter: m.meter}
	lateness := b.counter("whylate.timer.lateness", "s", "How late the probe's timer went off, all ticks together.")
	waitP := b.counter("whylate.timer.wait_p", "s", "The part of the lateness spent waiting for a P while goroutines ran.")
	ticks := b.intCounter("whylate.timer.ticks", "{tick}", "Ticks of the probe's timer.")
	freezeCPU := b.counter("whylate.freeze.cpu.time", "s", "Time lost in freezes, times the CPUs in use before each.")
	throttled := b.counter("whylate.throttled.cpu.time", "s", "Time the kernel held the process's cgroup back, by the level of the quota.")
	periods := b.intCounter("whylate.quota.periods", "{period}", "Enforcement periods of the process's own cgroup, by whether it used its quota up.")
	runQueue := b.counter("whylate.run_queue.time", "s", "Time threads were runnable without running while no quota held them back, summed over threads.")
	unsplit := b.counter("whylate.run_queue.unsplit.time", "s", "The same while a quota did hold them back, less the throttled time.")
	steal := b.counter("whylate.steal.cpu.time", "s", "CPU time the hypervisor took from the whole machine.")
	level := func(v string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("whylate.quota.level", v)))
	}
	state := func(v string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("whylate.quota.state", v)))
	}
	ownLevel, ancestorLevel := level("own"), level("ancestor")
	full, free := state("throttled"), state("free")
	return m.register(b, func(_ context.Context, o metric.Observer) error {
		var s probe.Snapshot
		p.Snapshot(&s)
		o.ObserveFloat64(lateness, s.Lateness.Sum.Seconds())
		o.ObserveInt64(ticks, int64(s.Ticks))
		if s.Has&probe.HasFreezes != 0 {
			o.ObserveFloat64(waitP, s.WaitP.Sum.Seconds())
			o.ObserveFloat64(freezeCPU, s.FreezeCPU.Seconds())
		}
		if s.Has&probe.HasThrottling != 0 {
			o.ObserveFloat64(throttled, s.Throttled.Own.Seconds(), ownLevel)
			o.ObserveFloat64(throttled, s.Throttled.Ancestor.Seconds(), ancestorLevel)
			o.ObserveInt64(periods, s.Throttled.ThrottledPeriods, full)
			o.ObserveInt64(periods, s.Throttled.Periods-s.Throttled.ThrottledPeriods, free)
		}
		if s.Has&probe.HasRunQueue != 0 {
			o.ObserveFloat64(runQueue, s.RunQueue.Seconds())
			o.ObserveFloat64(unsplit, s.Unsplit.Seconds())
		}
		if s.Has&probe.HasSteal != 0 {
			o.ObserveFloat64(steal, s.Steal.Seconds())
		}
		return nil
	})
}

// observeTuner makes the instruments of a tuner (limits, use, GOMAXPROCS, GOMEMLIMIT and GOGC) and registers the callback that
// reads its state at each collection. A value that is not known is not observed.
func (m *Metrics) observeTuner(t *tune.Tuner) error {
	b := &builder{meter: m.meter}
	quota := b.gauge("whylate.cpu.quota", "{cpu}", "The tightest visible CPU quota.")
	affinity := b.intGauge("whylate.cpu.affinity", "{cpu}", "CPUs that the process may run on.")
	host := b.intGauge("whylate.host.cpu.count", "{cpu}", "CPUs of the machine.")
	procs := b.intGauge("whylate.gomaxprocs", "{thread}", "GOMAXPROCS, and who set it.")
	memory := b.intGauge("whylate.memory.limit", "By", "The tightest visible memory limit.")
	hostMemory := b.intGauge("whylate.host.memory", "By", "Memory of the machine.")
	used := b.intGauge("whylate.memory.used", "By", "Memory the process's cgroup is charged for, without page cache that can be dropped.")
	headroom := b.intGauge("whylate.memory.headroom", "By", "The memory limit less what is used.")
	goMemory := b.intGauge("whylate.gomemlimit", "By", "GOMEMLIMIT, and who set it.")
	gogc := b.intGauge("whylate.gogc", "%", "GOGC, and who set it.")
	effective := b.gauge("whylate.gogc.effective", "%", "GOGC that the heap goal amounts to under the memory limit.")
	gcShare := b.gauge("whylate.gc.cpu.utilization", "1", "The garbage collector's share of the CPU time the process used lately.")
	gcQuota := b.gauge("whylate.gc.quota.utilization", "1", "The garbage collector's share of the CPU quota lately.")
	source := func(v string) metric.MeasurementOption {
		return metric.WithAttributes(attribute.String("whylate.source", v))
	}
	return m.register(b, func(_ context.Context, o metric.Observer) error {
		s := t.State()
		observePositive := func(i metric.Int64Observable, v int64) {
			if v > 0 {
				o.ObserveInt64(i, v)
			}
		}
		if s.Quota > 0 {
			o.ObserveFloat64(quota, s.Quota)
		}
		observePositive(affinity, int64(s.Affinity))
		observePositive(host, int64(s.HostCPUs))
		o.ObserveInt64(procs, int64(s.GOMAXPROCS), source(s.ProcsBy))
		observePositive(memory, s.MemoryLimit)
		observePositive(hostMemory, s.HostMemory)
		if s.MemoryUsed >= 0 {
			o.ObserveInt64(used, s.MemoryUsed)
		}
		if s.Headroom >= 0 {
			o.ObserveInt64(headroom, s.Headroom)
		}
		if s.GOMEMLIMIT != math.MaxInt64 {
			o.ObserveInt64(goMemory, s.GOMEMLIMIT, source(s.MemoryBy))
		}
		if s.GOGC >= 0 {
			o.ObserveInt64(gogc, int64(s.GOGC), source(s.GOGCBy))
		}
		if s.EffectiveGOGC >= 0 {
			o.ObserveFloat64(effective, s.EffectiveGOGC)
		}
		if s.GCShare >= 0 {
			o.ObserveFloat64(gcShare, s.GCShare)
		}
		if s.GCQuotaShare >= 0 {
			o.ObserveFloat64(gcQuota, s.GCQuotaShare)
		}
		return nil
	})
}
