package healthcheck

import "testing"

// TestSince: percentiles are of what came between two readings, also where a bucket is new in the second.
func TestSince(t *testing.T) {
	first := counts{[]float64{0.001, 0.004}, []int64{5, 10}}
	last := counts{[]float64{0.001, 0.002, 0.004, 1}, []int64{5, 65, 109, 110}}
	if p50, p99, n := last.since(first); p50 != 2e6 || p99 != 4e6 || n != 100 {
		t.Errorf("p50 %d, p99 %d, n %d", p50, p99, n)
	}
	if p50, p99, n := (counts{}).since(first); p50 != 0 || p99 != 0 || n != 0 {
		t.Error("of nothing")
	}
}
