package budget

import (
	"encoding/json"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/report"
)

// TestSchema validates results by the schema.
func TestSchema(t *testing.T) {
	closed := schematest.Closed(t, "check.schema.json")
	for _, budget := range []string{"group=g1,p99=59ms", "p99=1s", "group=nosuch,p99=1s", "group=g1,sched=29.9%", "group=g1,p99=60ms"} {
		limits := must.Have(Parse(budget))(t)
		data := must.Have(json.Marshal(Check(sample(), Rules{Limits: limits, FailOn: report.SeverityLow, Baseline: sample()})))(t)
		schematest.ValidateBy(t, closed, budget, data)
	}
}
