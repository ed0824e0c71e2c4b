package flight

import (
	"runtime/metrics"
	"time"
)

// Names of the runtime's metrics that are read once a second.
const (
	metricLatency    = "/sched/latencies:seconds"
	metricGoroutines = "/sched/goroutines:goroutines"
	metricGC         = "/cpu/classes/gc/total:cpu-seconds"
	metricCPU        = "/cpu/classes/total:cpu-seconds"
	metricIdle       = "/cpu/classes/idle:cpu-seconds"
)

// A metricsReading summarises the interval since the previous reading.
type metricsReading struct {
	goroutines   uint64
	schedLatency time.Duration // p99 of goroutines' waits for a P
	gcShare      float64       // garbage collection's share of the CPU time used
	starts       float64       // about the number of times that a goroutine started to run
	elapsed      time.Duration // since the previous reading
}

type metricsReader struct {
	samples                []metrics.Sample
	latencyCounts          []uint64 // at the previous reading
	gcSeconds, busySeconds float64
	last                   time.Time
}

// newMetricsReader returns a reader of the runtime's metrics: scheduling latency,
// goroutines, and CPU time.
func newMetricsReader() *metricsReader {
	r := new(metricsReader)
	for _, name := range []string{metricLatency, metricGoroutines, metricGC, metricCPU, metricIdle} {
		r.samples = append(r.samples, metrics.Sample{Name: name})
	}
	return r
}

// The runtime measures the wait of one goroutine in trackedOneIn (runtime.gTrackingPeriod).
const trackedOneIn = 8

// read reads the metrics and returns the changes since the previous call; those of the first call are 0.
func (r *metricsReader) read(now time.Time) (s metricsReading) {
	metrics.Read(r.samples)
	if v := r.samples[1].Value; v.Kind() == metrics.KindUint64 {
		s.goroutines = v.Uint64()
	}
	float := func(i int) float64 {
		if v := r.samples[i].Value; v.Kind() == metrics.KindFloat64 {
			return v.Float64()
		}
		return 0
	}
	gc, cpu := float(2), float(3)-float(4)
	if d := cpu - r.busySeconds; d > 0 && !r.last.IsZero() {
		s.gcShare = (gc - r.gcSeconds) / d
	}
	if v := r.samples[0].Value; v.Kind() == metrics.KindFloat64Histogram {
		h := v.Float64Histogram()
		if len(r.latencyCounts) == len(h.Counts) && now.After(r.last) {
			total := uint64(0)
			for i, n := range h.Counts {
				r.latencyCounts[i] = n - r.latencyCounts[i]
				total += r.latencyCounts[i]
			}
			s.schedLatency = quantile(h.Buckets, r.latencyCounts, total, 0.99)
			s.starts, s.elapsed = trackedOneIn*float64(total), now.Sub(r.last)
		}
		r.latencyCounts = append(r.latencyCounts[:0], h.Counts...)
	}
	r.gcSeconds, r.busySeconds, r.last = gc, cpu, now
	return s
}

// quantile returns the lower bound of the bucket with the quantile q (0 to 1) of total values. bounds are in seconds. It is 0 for fewer than a
// hundred values.
func quantile(bounds []float64, counts []uint64, total uint64, q float64) time.Duration {
	if total < 100 {
		return 0
	}
	remaining := uint64(float64(total) * q)
	for i, n := range counts {
		if n > remaining {
			return time.Duration(max(bounds[i], 0) * float64(time.Second))
		}
		remaining -= n
	}
	return 0
}
