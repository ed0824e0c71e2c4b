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
