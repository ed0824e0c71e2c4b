package flight

import (
	"runtime/metrics"
	"time"
)

// The runtime's own numbers, looked at once a second.
const (
	metricLatency    = "/sched/latencies:seconds"
	metricGoroutines = "/sched/goroutines:goroutines"
	metricGC         = "/cpu/classes/gc/total:cpu-seconds"
	metricCPU        = "/cpu/classes/total:cpu-seconds"
	metricIdle       = "/cpu/classes/idle:cpu-seconds"
)

// signals are what one second has shown.
type signals struct {
	goroutines uint64
	// late is the time that a hundredth of goroutines waited longer than to run.
	late time.Duration
	// gc is garbage collection's share of the CPU time that was used.
	gc float64
	// starts is how many times a goroutine began to run since the reading before,
	// about, and took how long that is.
	starts float64
	took   time.Duration
}

type signalReader struct {
	samples []metrics.Sample
	counts  []uint64 // of latencies, before
	gc, cpu float64
	last    time.Time
}

func newSignalReader() *signalReader {
	r := new(signalReader)
	for _, name := range []string{metricLatency, metricGoroutines, metricGC, metricCPU, metricIdle} {
		r.samples = append(r.samples, metrics.Sample{Name: name})
	}
	return r
}

// tracked is of how many of its turns the runtime measures one
// (runtime.gTrackingPeriod).
const tracked = 8

func (r *signalReader) read(now time.Time) (s signals) {
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
	if d := cpu - r.cpu; d > 0 && !r.last.IsZero() {
		s.gc = (gc - r.gc) / d
	}
	if v := r.samples[0].Value; v.Kind() == metrics.KindFloat64Histogram {
		h := v.Float64Histogram()
		if len(r.counts) == len(h.Counts) && now.After(r.last) {
			total := uint64(0)
			for i, n := range h.Counts {
				r.counts[i] = n - r.counts[i]
				total += r.counts[i]
			}
			s.late = quantile(h.Buckets, r.counts, total, 0.99)
			s.starts, s.took = tracked*float64(total), now.Sub(r.last)
		}
		r.counts = append(r.counts[:0], h.Counts...)
	}
	r.gc, r.cpu, r.last = gc, cpu, now
	return s
}

// quantile returns the lower bound of the bucket in which a quantile lies; 0
// with fewer than a hundred.
func quantile(bounds []float64, counts []uint64, total uint64, q float64) time.Duration {
	if total < 100 {
		return 0
	}
	left := uint64(float64(total) * q)
	for i, n := range counts {
		if n > left {
			return time.Duration(max(bounds[i], 0) * float64(time.Second))
		}
		left -= n
	}
	return 0
}
