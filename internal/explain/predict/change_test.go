package predict

import (
	"testing"

	"github.com/whylate/whylate/report"
)

// TestFamilies holds the families by number to the report's by name.
func TestFamilies(t *testing.T) {
	for _, family := range []report.CauseName{report.FamilyGC, report.FamilySched} {
		names := report.Family(family)
		if len(names) != len(families[family]) {
			t.Errorf("%s has %v, the report %v", family, families[family], names)
			continue
		}
		for i, name := range names {
			if got := families[family][i].String(); got != string(name) {
				t.Errorf("%s: %s, the report has %s", family, got, name)
			}
		}
	}
}
