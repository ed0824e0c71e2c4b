package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/report"
)

// TestFeatures compares what users can ask for with docs/internals/features.txt: verbs, flags with their defaults, formats,
// variables of the environment, and the words of the report. With the public API (TestPublicAPI), the JSON schema, docs/cli and the
// golden files it shows that a change took nothing away. -update writes it.
func TestFeatures(t *testing.T) {
	var b bytes.Buffer
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		fmt.Fprintln(&b, "verb", c.UseLine())
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			value := f.Value.Type()
			if f.DefValue != "" && value != "bool" {
				value += " " + f.DefValue
			}
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			fmt.Fprintln(&b, " ", name, value)
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(&streams{}, allVerbs()...))
	for _, f := range export.Formats() {
		fmt.Fprintln(&b, "export", f.Name)
	}
	for what, names := range map[string][]string{
		"check": checkFormats, "band": command.Strings(report.BandNames()), "cause": command.Strings(report.Causes()), "wait": command.Strings(report.WaitKinds()),
		"rule": command.Strings(report.RuleCodes()), "variable": {envHeaders, envPassword, envToken},
	} {
		for _, name := range names {
			fmt.Fprintln(&b, what, name)
		}
	}
	section := regexp.MustCompile(`h\('section', \{ id: '(\w+)'`)
	pages, err := filepath.Glob(filepath.Join("..", "..", "report", "html", "*", "*.js"))
	if err != nil || len(pages) == 0 {
		t.Fatal(err, len(pages))
	}
	for _, page := range pages {
		text := must.Have(os.ReadFile(page))(t)
		for _, id := range section.FindAllSubmatch(text, -1) {
			fmt.Fprintf(&b, "section %s\n", id[1])
		}
	}
	lines := strings.SplitAfter(b.String(), "\n")
	at := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "export") })
	slices.Sort(lines[at:])
	got := strings.Join(lines, "")
	file := filepath.Join("..", "..", "docs", "internals", "features.txt")
	if *update {
		must.Do(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want := must.Have(os.ReadFile(file))(t)
	for _, line := range strings.SplitAfter(string(want), "\n") {
		check.True(t, slices.Contains(lines, line), "gone: %s", line)
	}
	check.False(t, got != string(want) && !t.Failed(), "%s lacks something, or has another order: -update writes it", file)
}
