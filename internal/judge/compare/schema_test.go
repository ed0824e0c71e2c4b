package compare

import (
	"encoding/json"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/schematest"
	"github.com/whylate/whylate/report"
)

// TestSchema validates diffs by the schema.
func TestSchema(t *testing.T) {
	closed := schematest.Closed(t, "diff.schema.json")
	old := reportOf("a", shop(0).group(1), load{"main.gone", report.KindTask, 10, 7, shop(0).request}.group(3))
	start := reportOf("b", shop(3e6).group(2), load{"main.new", report.KindTask, 2, 7, shop(0).request}.group(4))
	old.Input.Truncated = true
	for name, d := range map[string]*Diff{"grown": Reports(old, start), "itself": Reports(old, old), "nothing": Reports(&report.Report{}, &report.Report{})} {
		data := must.Have(json.Marshal(d))(t)
		schematest.ValidateBy(t, closed, name, data)
	}
}
