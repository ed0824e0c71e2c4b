package budget

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/schematest"
	"github.com/whylate/whylate/report"
)

// TestSchema holds results against the schema, closed for this test: a field that it does not describe fails too.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("check.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	closed := []byte(strings.ReplaceAll(string(text), `"type": "object",`, `"type": "object", "additionalProperties": false,`))
	for _, budget := range []string{"group=g1,p99=59ms", "p99=1s", "group=nosuch,p99=1s", "group=g1,sched=29.9%", "group=g1,p99=60ms"} {
		limits, err := Parse(budget)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(Check(sample(), Rules{Limits: limits, FailOn: report.Low, Baseline: sample()}))
		if err != nil {
			t.Fatal(err)
		}
		schematest.ValidateBy(t, closed, budget, data)
	}
}
