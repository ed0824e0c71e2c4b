package main

import (
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// metrics count checks. They are for any number of goroutines.
type metrics struct {
	failed, sum atomic.Int64 // sum in ns
	// buckets are by four steps in each power of two of a nanosecond.
	buckets [256]atomic.Int64

	mu    sync.Mutex
	named map[string]float64
}

func (m *metrics) checked(took time.Duration, failed bool) {
	if failed {
		m.failed.Add(1)
	}
	m.sum.Add(int64(took))
	m.buckets[bucket(took)].Add(1)
}

// bucket returns where a time belongs; upper is the inverse.
func bucket(d time.Duration) int {
	n := uint64(max(d, 4))
	e := bits.Len64(n) - 1
	return 4*e + int(n>>(e-2)&3)
}

func upper(b int) time.Duration {
	e := b / 4
	return time.Duration(math.Ldexp(1+float64(b%4+1)/4, e))
}

// add adds to a value that is known by a name with labels in it.
func (m *metrics) add(key string, v float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.named == nil {
		m.named = map[string]float64{}
	}
	m.named[key] += v
}

// serve writes a histogram in Prometheus' text format.
func (m *metrics) serve(w http.ResponseWriter, _ *http.Request) {
	n := int64(0)
	fmt.Fprintln(w, "# TYPE check_seconds histogram")
	for b := range m.buckets {
		k := m.buckets[b].Load()
		if n += k; k > 0 {
			fmt.Fprintf(w, "check_seconds_bucket{le=\"%g\"} %d\n", upper(b).Seconds(), n)
		}
	}
	fmt.Fprintf(w, "check_seconds_bucket{le=\"+Inf\"} %d\ncheck_seconds_sum %g\ncheck_seconds_count %d\n", n, time.Duration(m.sum.Load()).Seconds(), n)
	fmt.Fprintf(w, "# TYPE check_failed_total counter\ncheck_failed_total %d\n", m.failed.Load())
}
