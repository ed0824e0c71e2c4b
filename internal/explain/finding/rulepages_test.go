package finding

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "rewrite docs/findings.md and the golden files")

func TestPage(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "findings.md")
	got := Page(All())
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Have(os.ReadFile(file))(t)
	check.Equal(t, got, string(want), "%s differs from the rules: go test ./internal/explain/finding -update", file)
}

// TestRuleByCode: only a code of a rule has one.
func TestRuleByCode(t *testing.T) {
	r, ok := RuleByCode(All(), report.RuleSleep)
	check.True(t, ok && r.Code == report.RuleSleep, "%+v", r)
	r, ok = RuleByCode(All(), "WL0000")
	check.True(t, !ok && r == nil, "%+v", r)
}
