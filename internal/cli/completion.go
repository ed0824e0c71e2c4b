package cli

import (
	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
)

// addCompletion adds cobra's completion command, with texts like those of the other verbs. For an unknown shell it returns a
// usage error: cobra would print its help, which the user redirects to the file of a script.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, _ := root.Find([]string{"completion"})
	c.Use = "completion bash|zsh|fish|powershell"
	c.Short = "Print a script that completes commands and flags in a shell"
	c.Args = nil // then cobra suggests a shell
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return command.Usage(cmd, "name one shell: bash, zsh, fish or powershell")
	}
}
