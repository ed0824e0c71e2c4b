package names

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestEvidence: a statement has no number, but a count of 0 is one.
func TestEvidence(t *testing.T) {
	for _, c := range []struct {
		e    report.Evidence
		want string
	}{
		{report.Evidence{Text: "no sample shows what ran"}, "no sample shows what ran"},
		{report.Evidence{Text: "requests that ended", Unit: "count"}, "requests that ended: 0"},
		{report.Evidence{Text: "time lost", Unit: "ns"}, "time lost: 0s"},
		{report.Evidence{Text: "factor", Value: 2.5}, "factor: 2.5"},
		{report.Evidence{Text: "mean wait", Value: 1.5e6, Unit: "ns"}, "mean wait: 1.50ms"},
	} {
		check.Equal(t, Evidence(c.e.Text, c.e), c.want, "%+v", c.e)
	}
}
