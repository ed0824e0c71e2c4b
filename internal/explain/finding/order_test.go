package finding

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestLoudOrder: of one severity, what the slow requests lose most by comes first, as in the first sentence; among what is not loud, what all lose.
func TestLoudOrder(t *testing.T) {
	often := Won{TotalNS: 900, SlowNS: 20}
	for _, c := range []struct {
		severity report.Severity
		first    report.RuleCode
	}{{report.SeverityHigh, report.RuleStoppedWorld}, {report.SeverityMedium, report.RuleStoppedWorld}, {report.SeverityLow, report.RuleSlowPeer}} {
		all := []Verdict{
			{Won: often, Finding: report.Finding{Code: report.RuleSlowPeer, Severity: c.severity}},
			{Won: Won{TotalNS: 400, SlowNS: 50}, Finding: report.Finding{Code: report.RuleStoppedWorld, Severity: c.severity}},
		}
		if inOrder(all); all[0].Code != c.first {
			t.Errorf("%s: %s comes first", c.severity, all[0].Code)
		}
	}
}
