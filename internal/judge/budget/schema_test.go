package budget

import (
	"encoding/json"
	"testing"

	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/report"
)

// TestSchema holds results against the schema.
func TestSchema(t *testing.T) {
	closed := schematest.Closed(t, "check.schema.json")
	for _, budget := range []string{"group=g1,p99=59ms", "p99=1s", "group=nosuch,p99=1s", "group=g1,sched=29.9%", "group=g1,p99=60ms"} {
		limits, err := Parse(budget)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(Check(sample(), Rules{Limits: limits, FailOn: report.SeverityLow, Baseline: sample()}))
		if err != nil {
			t.Fatal(err)
		}
		schematest.ValidateBy(t, closed, budget, data)
	}
}
