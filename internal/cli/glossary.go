package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// newGlossary returns a topic of the help: the words of reports.
func newGlossary() *cobra.Command {
	return &cobra.Command{
		Use:     "glossary",
		Short:   "Explain the words of reports",
		Long:    glossary(),
		Example: "  whylate glossary",
		Args:    command.Exactly(0, "glossary takes no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write([]byte(glossary()))
			return err
		},
	}
}

// glossary returns the terms of reports with their meanings as text.
func glossary() string {
	var b strings.Builder
	b.WriteString("The words of reports, of the page and of the viewer.\n\n")
	for _, t := range words.Glossary() {
		b.WriteString("  " + t.Word + "\n      " + strings.Join(termtext.Wrap(strings.Fields(t.Meaning), 74), "\n      ") + "\n\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}
