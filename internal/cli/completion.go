package cli

import "github.com/spf13/cobra"

// addCompletion adds cobra's own completion command, with texts like those of the other verbs. A shell that it has no script for
// is wrong use: cobra would print its help, which then lies in the file of a script.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, _ := root.Find([]string{"completion"})
	c.Use = "completion bash|zsh|fish|powershell"
	c.Short = "Print a script that completes commands and flags in a shell"
	c.Long = `Prints a script for the shell to read. It completes verbs, flags, and the values that a flag takes. Bash needs the package
bash-completion.`
	c.Example = `  source <(whylate completion bash)                                        # this bash session
  whylate completion bash > /etc/bash_completion.d/whylate                 # every bash session
  whylate completion zsh > "${fpath[1]}/_whylate"                          # zsh
  whylate completion fish > ~/.config/fish/completions/whylate.fish        # fish
  whylate completion powershell | Out-String | Invoke-Expression           # this PowerShell session`
	c.Args = nil // then cobra suggests a shell
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return usage(cmd, "name one shell: bash, zsh, fish or powershell")
	}
}
