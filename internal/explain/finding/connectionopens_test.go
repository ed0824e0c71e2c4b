package finding

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"
)

// TestReuseAdvice: database/sql keeps 2 idle connections unless set, which is too few only where more are in use at once.
func TestReuseAdvice(t *testing.T) {
	for underWayNS, want := range map[int64]string{400e6: "check SetConnMaxLifetime", 4e9: "raise SetMaxIdleConns"} {
		in := &Input{Report: &report.Report{Input: report.Input{DurationNS: 1e9}, Groups: []report.Group{{TotalNS: underWayNS / 4}, {TotalNS: underWayNS * 3 / 4}}}}
		advice := in.reuseAdviceOf(stdPool("database/sql.(*DB).conn"))
		check.True(t, strings.HasPrefix(advice, want), "%d ns of requests in one second: %s", underWayNS, advice)
	}
}
