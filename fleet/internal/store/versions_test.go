package store

import (
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/rows"
	"github.com/whylate/whylate/internal/testing/check"
)

// TestMedian: the median of three requests is the second.
func TestMedian(t *testing.T) {
	s := openTestStore(t)
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	r := &rows.Rows{Start: begin, DurationNS: 1e9, Requests: 3}
	for _, bucket := range []int64{100, 200, 300} {
		r.Sums = append(r.Sums, rows.Sum{Group: "GET /", Bucket: bucket, N: 1})
	}
	addExplained(t, s, "1", rows.Labels{Service: "a", Version: "v1"}, r)
	_, versions, err := s.Overview(t.Context(), Selection{From: begin.Add(-time.Hour), To: time.Now()})
	check.True(t, err == nil && len(versions) == 1 && versions[0].P50NS == 200 && versions[0].P99NS == 300, "%+v, %v", versions, err)
}
