package compare

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestCallersOfRows: the same line of a dependency is a row for each function of the service's own that called it, and
// only where both reports say which. It would catch one caller's gain told as another's loss.
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
