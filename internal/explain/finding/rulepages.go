package finding

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/report"
)

// RuleByCode returns the rule with a code.
func RuleByCode(rules []Rule, code report.RuleCode) (*Rule, bool) {
	i := slices.IndexFunc(rules, func(r Rule) bool { return r.Code == code })
	if i < 0 {
		return nil, false
	}
	return &rules[i], true
}

// Anchor returns the anchor of this rule on the page of all rules.
func (r *Rule) Anchor() string { return strings.ToLower(string(r.Code)) }

// A Section is a section of a rule's documentation: text, or code.
type Section struct {
	Title, Text string
	IsCode      bool
}

// Sections returns the sections that are not empty, in the order in which they are shown.
func (d *Doc) Sections() []Section {
	all := []Section{
		{"What it means", d.Means, false}, {"How it is measured", d.Measured, false},
		{"Before", d.Before, true}, {"After", d.After, true}, {"When it is wrong", d.Wrong, false},
	}
	return slices.DeleteFunc(all, func(s Section) bool { return s.Text == "" })
}

// Markdown returns the rule's documentation as Markdown without a heading.
func (r *Rule) Markdown() string {
	var b strings.Builder
	for _, s := range r.Doc.Sections() {
		if s.IsCode {
			fmt.Fprintf(&b, "%s:\n\n```go\n%s\n```\n\n", s.Title, s.Text)
		} else {
			fmt.Fprintf(&b, "**%s.** %s\n\n", s.Title, markdownText(s.Text))
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// markdownText escapes characters that Markdown would interpret.
func markdownText(s string) string {
	return strings.NewReplacer(`*`, `\*`, `_`, `\_`, `<`, `\<`, `[`, `\[`).Replace(s)
}

// Page returns the documentation of all rules as one page of Markdown.
func Page(rules []Rule) string {
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
