// Package prometheus exports a process's limits, the tuner's settings and the probe's
// lost time as Prometheus metrics:
//
//	p := probe.Start(probe.Options{})
//	t := tune.Start(tune.Options{})
//	registry.MustRegister(prometheus.NewCollector(p, t))
//
// Names and units follow Prometheus' conventions: seconds, bytes and ratios,
// counters that end in _total. A value that cannot be measured on this
// machine is absent, not zero, and so is a limit that does not exist. Everything is
// read at scrape time; nothing runs between scrapes.
//
// Times called CPU seconds are sums over CPUs, as the kernel counts throttled
// time: compare them with CPU time, never with wall time. An alert on
// latency belongs on whylate_freeze_seconds, by verdict; the share of throttled periods
// hides rare, long freezes.
package prometheus

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/tune"
)

// A Collector is a prometheus.Collector. It may be registered once for each
// registry.
type Collector struct {
	probe *probe.Probe
	tuner *tune.Tuner
	all   []*prometheus.Desc // that it may collect
	ofProbe
	ofTuner
}

type ofProbe struct {
	lateness, waitP, freeze, freezeCPU, freezes *prometheus.Desc
	throttled, periods, throttledPeriods        *prometheus.Desc
	runQueue, unsplit, steal                    *prometheus.Desc
}

type ofTuner struct {
	quota, affinity, hostCPUs, procs                        *prometheus.Desc
	memoryLimit, hostMemory, memoryUsed, headroom, goMemory *prometheus.Desc
	gogc, effectiveGOGC, gcShare, gcQuota                   *prometheus.Desc
}

// NewCollector returns a collector of what p and t know; either may be nil.
func NewCollector(p *probe.Probe, t *tune.Tuner) *Collector {
	c := &Collector{probe: p, tuner: t}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		c.all = append(c.all, prometheus.NewDesc("whylate_"+name, help, labels, nil))
		return c.all[len(c.all)-1]
	}
	if p != nil {
		c.ofProbe = ofProbe{
			lateness:         desc("timer_lateness_seconds", "How late the probe's timer went off."),
			waitP:            desc("timer_wait_p_seconds", "The part of a timer's lateness spent waiting for a P while goroutines ran."),
			freeze:           desc("freeze_seconds", "Intervals of wall time in which the kernel ran none of the process's threads, by whose quota caused them; none means run queue or hypervisor.", "verdict"),
			freezes:          desc("freezes_total", "Freezes by whose quota caused them; none means run queue or hypervisor.", "verdict"),
			freezeCPU:        desc("freeze_cpu_seconds_total", "Time lost in freezes, times the CPUs in use before each."),
			throttled:        desc("throttled_cpu_seconds_total", "Time the kernel held the process's cgroup back, summed over CPUs, by the level of the quota.", "level"),
			periods:          desc("quota_periods_total", "Enforcement periods in which the process's own cgroup ran."),
			throttledPeriods: desc("throttled_periods_total", "Periods in which the process's own cgroup used its quota up."),
			runQueue:         desc("run_queue_seconds_total", "Time threads were runnable without running while no quota held them back, summed over threads."),
			unsplit:          desc("run_queue_unsplit_seconds_total", "The same while a quota did hold them back, less the throttled time: quota or other processes."),
			steal:            desc("steal_cpu_seconds_total", "CPU time the hypervisor took from the whole machine."),
		}
	}
	if t != nil {
		c.ofTuner = ofTuner{
			quota:    desc("cpu_quota_cpus", "The tightest visible CPU quota; absent without one."),
			affinity: desc("cpu_affinity_cpus", "CPUs that the process may run on."),
			hostCPUs: desc("host_cpus", "CPUs of the machine."),
			procs:    desc("gomaxprocs", "GOMAXPROCS, and who set it.", "source"),

			memoryLimit: desc("memory_limit_bytes", "The tightest visible memory limit; absent without one."),
			hostMemory:  desc("host_memory_bytes", "Memory of the machine."),
			memoryUsed:  desc("memory_used_bytes", "Memory the process's cgroup is charged for, without page cache that can be dropped."),
			headroom:    desc("memory_headroom_bytes", "The memory limit less what is used; absent without a limit."),
			goMemory:    desc("gomemlimit_bytes", "GOMEMLIMIT, and who set it; absent without one.", "source"),

			gogc:          desc("gogc_ratio", "GOGC as a ratio (GOGC=100 is 1), and who set it; absent if off.", "source"),
			effectiveGOGC: desc("effective_gogc_ratio", "GOGC that the heap goal amounts to under the memory limit."),
			gcShare:       desc("gc_cpu_ratio", "The garbage collector's share of the CPU time the process used lately."),
			gcQuota:       desc("gc_quota_ratio", "The garbage collector's share of the CPU quota lately; absent without a quota."),
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.all {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	defer reportPanic()
	if c.probe != nil {
		var s probe.Snapshot
		c.probe.Snapshot(&s)
		c.collectProbe(out, &s)
	}
	if c.tuner != nil {
		s := c.tuner.State()
		c.collectTuner(out, &s)
	}
}

// collectProbe sends the metrics of a probe's snapshot to out, without those that the host does not have (Snapshot.Has).
func (c *Collector) collectProbe(out chan<- prometheus.Metric, s *probe.Snapshot) {
	counter := func(desc *prometheus.Desc, v float64, labels ...string) {
		m, err := prometheus.NewConstMetric(desc, prometheus.CounterValue, v, labels...)
		send(out, m, err)
	}
	times := func(desc *prometheus.Desc, h *probe.Histogram, labels ...string) {
		m, err := histogram(desc, h, labels...)
		send(out, m, err)
	}
	times(c.lateness, &s.Lateness)
	if s.Has&probe.HasFreezes != 0 {
		times(c.waitP, &s.WaitP)
		for _, v := range cgroup.Verdicts() {
			h := s.FreezesBy(v)
			times(c.freeze, h, string(v))
			counter(c.freezes, float64(h.Count), string(v))
		}
		counter(c.freezeCPU, s.FreezeCPU.Seconds())
	}
	if s.Has&probe.HasThrottling != 0 {
		counter(c.throttled, s.Throttled.Own.Seconds(), string(cgroup.VerdictOwn))
		counter(c.throttled, s.Throttled.Ancestor.Seconds(), string(cgroup.VerdictAncestor))
		counter(c.periods, float64(s.Throttled.Periods))
		counter(c.throttledPeriods, float64(s.Throttled.ThrottledPeriods))
	}
	if s.Has&probe.HasRunQueue != 0 {
		counter(c.runQueue, s.RunQueue.Seconds())
		counter(c.unsplit, s.Unsplit.Seconds())
	}
	if s.Has&probe.HasSteal != 0 {
		counter(c.steal, s.Steal.Seconds())
	}
}

// Buckets from 64 µs to 8 s, one to each doubling: the probe's own have four,
// which is more series than the answer is worth.
const (
	shortest = 64 * time.Microsecond
	longest  = 8 * time.Second
)

// histogram converts a probe's histogram to one of Prometheus with fewer buckets.
func histogram(desc *prometheus.Desc, h *probe.Histogram, labels ...string) (prometheus.Metric, error) {
	buckets := map[float64]uint64{}
	var sum uint64
	next := shortest
	for end, n := range h.Buckets() {
		sum += n
		// A bucket's upper bound is exclusive here and inclusive there: the
		// difference is one nanosecond.
		if end == next && end <= longest+longest/8 {
			buckets[end.Seconds()] = sum
			next *= 2
		}
	}
	return prometheus.NewConstHistogram(desc, h.Count, h.Sum.Seconds(), buckets, labels...)
}

// collectTuner sends the metrics of a tuner's state to out, without values that are not known.
func (c *Collector) collectTuner(out chan<- prometheus.Metric, s *tune.State) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		m, err := prometheus.NewConstMetric(desc, prometheus.GaugeValue, v, labels...)
		send(out, m, err)
	}
	gaugeIfPositive := func(desc *prometheus.Desc, v float64) {
		if v > 0 {
			gauge(desc, v)
		}
	}
	gaugeIfPositive(c.quota, s.Quota)
	gaugeIfPositive(c.affinity, float64(s.Affinity))
	gaugeIfPositive(c.hostCPUs, float64(s.HostCPUs))
	gauge(c.procs, float64(s.GOMAXPROCS), s.ProcsBy)
	gaugeIfPositive(c.memoryLimit, float64(s.MemoryLimit))
	gaugeIfPositive(c.hostMemory, float64(s.HostMemory))
	if s.MemoryUsed >= 0 {
		gauge(c.memoryUsed, float64(s.MemoryUsed))
	}
	if s.Headroom >= 0 {
		gauge(c.headroom, float64(s.Headroom))
	}
	if s.GOMEMLIMIT != math.MaxInt64 {
		gauge(c.goMemory, float64(s.GOMEMLIMIT), s.MemoryBy)
	}
	if s.GOGC >= 0 {
		gauge(c.gogc, float64(s.GOGC)/100, s.GOGCBy)
	}
	if s.EffectiveGOGC >= 0 {
		gauge(c.effectiveGOGC, s.EffectiveGOGC/100)
	}
	if s.GCShare >= 0 {
		gauge(c.gcShare, s.GCShare)
	}
	if s.GCQuotaShare >= 0 {
		gauge(c.gcQuota, s.GCQuotaShare)
	}
}
