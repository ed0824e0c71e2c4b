package acceptance_test

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/report"
)

// TestGCMarkingTakesPs: goroutines that assist marking take Ps for the garbage collector, so a goroutine that waits for such a
// P waits for the collector. The first finding is about the collector, and no major finding blames the service's own computing
// for taking the Ps.
func TestGCMarkingTakesPs(t *testing.T) {
	for name, rep := range map[string]*report.Report{
		"gcstress-long": explainFile(t, testprog.Recording(t, "programs/gcstress-long.trace")),
		"gc-assist":     explainService(t, "gc-assist"),
	} {
		if f := &rep.Findings[0]; f.Code != report.RuleGCTooFrequent && f.Code != report.RuleMarkAssist || f.Severity != report.SeverityHigh {
			t.Errorf("%s: the first finding is %s", name, describeFinding(f))
		}
		for i := range rep.Findings {
			if f := &rep.Findings[i]; f.Code == report.RulePsTaken && f.Severity.IsMajor() {
				t.Errorf("%s: %s", name, describeFinding(f))
			}
		}
	}
}
