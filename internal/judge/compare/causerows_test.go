package compare

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestCallersOfRows: a line of a dependency has a row for each function of the service that called it, if both reports have
// callers. It detects one caller's gain shown as another's loss.
func TestCallersOfRows(t *testing.T) {
	row := func(ns int64, from string) report.Cause {
		c := report.Cause{Cause: report.CauseNetwork, Site: &report.Site{Func: "dep.org/x.Do", File: "x.go", Line: 7}, TotalNS: ns, Requests: 1}
		if from != "" {
			c.Site.CalledFrom = &report.Caller{Func: from, File: "s.go", Line: 1}
		}
		return c
	}
	band := func(rows ...report.Cause) *report.Band { return &report.Band{Count: 1, Causes: rows} }
	if rows := compareRows(band(row(10, "load"), row(90, "save")), band(row(90, "load"), row(10, "save"))); len(rows) != 2 || rows[0].OldNS+rows[0].NewNS != 100 {
		t.Errorf("two callers: %+v", rows)
	}
	if rows := compareRows(band(row(90, "")), band(row(90, "load"))); len(rows) != 1 || rows[0].DeltaNS != 0 {
		t.Errorf("a report that does not say who called: %+v", rows)
	}
}
