package cli

import (
	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a script that completes commands and flags in a shell",
		Long: `Prints a script for the shell to read. It completes verbs, flags, and the values that a flag takes. For bash the package
bash-completion must be installed.`,
		Example: `  source <(whylate completion bash)                                        # this bash session
  whylate completion bash > /etc/bash_completion.d/whylate                 # every bash session
  whylate completion zsh > "${fpath[1]}/_whylate"                          # zsh
  whylate completion fish > ~/.config/fish/completions/whylate.fish        # fish
  whylate completion powershell | Out-String | Invoke-Expression           # this PowerShell session`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "name one shell: bash, zsh, fish or powershell")
			}
			for _, s := range shells {
				if args[0] == s {
					return nil
				}
			}
			return usage(cmd, "no completion for %q: bash, zsh, fish and powershell are known", args[0])
		},
		RunE: verb(func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(out)
			case "fish":
				return cmd.Root().GenFishCompletion(out, true)
			default:
				return cmd.Root().GenPowerShellCompletionWithDesc(out)
			}
		}),
	}
}
