package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/report"
)

// newRules returns the command rules, which lists the rules, or explains those with the given codes.
func newRules(s *streams) *cobra.Command {
	var (
		asJSON   bool
		language string
	)
	cmd := &cobra.Command{
		Use:   "rules [flags] [CODE...]",
		Short: "Explain what findings mean",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var codes []string
			for _, r := range finding.All() {
				codes = append(codes, string(r.Code)+"\t"+r.Summary)
			}
			return codes, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			rules := finding.All()
			if len(args) > 0 {
				var err error
				if rules, err = rulesByName(cmd, rules, args); err != nil {
					return err
				}
			}
			switch {
			case language != "en":
				return writeTranslations(cmd, s.Out, rules, language, len(args) == 0)
			case asJSON:
				return command.WriteJSON(s.Out, describe(rules))
			case len(args) == 0:
				return listRules(s.Out, rules)
			}
			columns := cmp.Or(width(s.Out), widestHelp)
			for i := range rules {
				if err := explainRule(s.Out, &rules[i], i == 0, min(max(columns, narrowest), widestHelp)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	cmd.Flags().StringVar(&language, "lang", "en", "print in this `language`: en, or in short zh (Chinese)")
	return cmd
}

// writeTranslations writes rules in another language: a line each if asList, else with their texts. Without a translation it is an error of usage.
func writeTranslations(cmd *cobra.Command, w io.Writer, rules []finding.Rule, language string, asList bool) error {
	var b strings.Builder
	for i := range rules {
		r := &rules[i]
		summary, text, ok := finding.Translation(language, r.Code)
		if !ok {
			return command.Usage(cmd, "there is no translation to %q: --lang is en or zh", language)
		}
		if asList {
			fmt.Fprintf(&b, "%s  %-20s %s\n", r.Code, r.Name, summary)
			continue
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s %s: %s\n\n%s", r.Code, r.Name, summary, indented(text))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// rulesByName returns the rules with these codes or names, in the order of args. An unknown one is an error with suggestions.
func rulesByName(cmd *cobra.Command, rules []finding.Rule, args []string) ([]finding.Rule, error) {
	var out []finding.Rule
	for _, a := range args {
		i := slices.IndexFunc(rules, func(r finding.Rule) bool { return strings.EqualFold(string(r.Code), a) || r.Name == a })
		if i < 0 {
			var names []string // without codes, which are all similar
			for _, r := range rules {
				names = append(names, r.Name)
			}
			hint := "`whylate rules` lists them"
			if suggestions := suggestNames(a, names); len(suggestions) > 0 {
				hint = "did you mean " + strings.Join(suggestions, " or ") + "? " + hint
			}
			return nil, command.Usage(cmd, "there is no rule %q; %s", a, hint)
		}
		out = append(out, rules[i])
	}
	return out, nil
}

// listRules writes a line for each rule, under a head for each family.
func listRules(w io.Writer, rules []finding.Rule) error {
	family := ""
	var b strings.Builder
	for i := range rules {
		r := &rules[i]
		if f := r.Family(); f != family {
			if family != "" {
				b.WriteByte('\n')
			}
			family = f
			fmt.Fprintf(&b, "%s\n", f)
		}
		fmt.Fprintf(&b, "  %s  %-20s %s\n", r.Code, r.Name, r.Summary)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// explainRule writes the documentation of a rule, wrapped at columns. Before each rule but the first it writes an empty line.
func explainRule(w io.Writer, r *finding.Rule, first bool, columns int) error {
	var b strings.Builder
	if !first {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s %s (%s): %s\n", r.Code, r.Name, r.Family(), r.Summary)
	for _, s := range append(r.Doc.Sections(), finding.Section{Title: "Severity", Text: finding.Severities}) {
		fmt.Fprintf(&b, "\n%s\n", s.Title)
		if s.IsCode {
			b.WriteString(indented(strings.ReplaceAll(s.Text, "\t", "    ")))
			continue
		}
		for i, p := range strings.Split(s.Text, "\n\n") {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(indented(reflow(p, columns-2)))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

// ruleJSON is a rule in --json.
type ruleJSON struct {
	Code    report.RuleCode `json:"code"`
	Name    string          `json:"name"`
	Family  string          `json:"family"`
	Summary string          `json:"summary"`
	finding.Doc
}

// describe returns the rules, in the same order, with their documentation in the form of --json.
func describe(rules []finding.Rule) []ruleJSON {
	out := make([]ruleJSON, 0, len(rules))
	for i := range rules {
		r := &rules[i]
		out = append(out, ruleJSON{r.Code, r.Name, r.Family(), r.Summary, r.Doc})
	}
	return out
}
