package finding

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

var update = flag.Bool("update", false, "rewrite docs/findings.md and the golden files")

func TestPage(t *testing.T) {
	file := filepath.Join("..", "..", "..", "docs", "findings.md")
	got := pageOf(All())
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

// pageOf returns the documentation of all rules as one page of Markdown.
func pageOf(rules []Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Findings

For readers of a report. A finding is a rule's verdict about a group of requests or the whole trace: what is wrong, where, the evidence in numbers, what to change, what
that is predicted to win, and how certain it is. This page is generated from the rules; `+"`whylate rules CODE`"+` prints the same. [A test](../internal/acceptance/testdata/confusion.md) holds
which rule reports what.

Severity is the same for all rules. %s

A finding that is known and does not matter is ignored with a reason: `+"`whylate explain --ignore FILE`"+` and `+"`whylate check --ignore FILE`"+`.

`, strings.ToUpper(Severities[:1])+Severities[1:])
	family := ""
	for i := range rules {
		r := &rules[i]
		if f := r.Family(); f != family {
			family = f
			fmt.Fprintf(&b, "%s\n\n", strings.ToUpper(f[:1])+f[1:])
		}
		fmt.Fprintf(&b, "- [%s](#%s) %s: %s\n", r.Code, r.Anchor(), r.Name, r.Summary)
		if i+1 == len(rules) || rules[i+1].Family() != family {
			b.WriteByte('\n')
		}
	}
	for r := range each(rules) {
		fmt.Fprintf(&b, "<a id=\"%s\"></a>\n\n## %s %s\n\n%s.\n\n%s\n", r.Anchor(), r.Code, r.Name, strings.ToUpper(r.Summary[:1])+r.Summary[1:], r.Markdown())
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}
