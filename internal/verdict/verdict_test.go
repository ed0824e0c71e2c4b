package verdict

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestLead checks that no share of the requests is claimed that they are not.
func TestLead(t *testing.T) {
	for _, c := range []struct {
		band      report.BandName
		count, of int
		want      string
	}{
		{report.BandAll, 18, 18, "Requests of"},
		{report.Band99, 10, 1000, "The slowest 1% of"},
		{report.Band99, 40, 1000, "The slowest 1% of"}, // a bucket's width more
		{report.Band99, 12, 18, "The slowest requests of"},
		{report.Band99, 1, 18, "The slowest request of"},
		{report.Band9099, 12, 100, "From p90 to p99, requests of"},
		{report.BandAll, 1, 1, "One request of"},
	} {
		g := &report.Group{Count: c.of}
		if got, _ := lead(g, &report.Band{Band: c.band, Count: c.count, FromNS: 1e6, ToNS: 2e6}); got != c.want {
			t.Errorf("%d of %d requests in band %s are called %q, want %q", c.count, c.of, c.band, got, c.want)
		}
	}
}
