package cli

import (
	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/limits"
)

func newLimits() *cobra.Command {
	var opts limits.Options
	cmd := &cobra.Command{
		Use:   "limits [flags]",
		Short: "Say what a process may use, by which file",
		Long: `Says how much CPU and memory a process may use, which file of which group says so and why the others did not win; what the
Go runtime, automaxprocs, automemlimit and whylate's own packages make of it; and the traps in between. A star marks what
binds and what is in force.

Without --pid it looks at a Go program that would be started from here: inside a container, at the container. With --pid it
also reads the program's Go version, GODEBUG defaults and linked modules, and its environment, as far as it may: run it as
the same user or as root. It is for Linux; docs/limits.md explains every trap.`,
		Example: `  whylate limits                      # what a program started here may use
  whylate limits --pid $(pidof api)   # and what that one does with it
  whylate limits --json | jq .traps`,
		Args: noArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("pid") && opts.PID <= 0 {
				return usage(cmd, "--pid %d: a process id is a positive number", opts.PID)
			}
			return limits.Run(cmd.Context(), cmd.OutOrStdout(), opts)
		}),
	}
	cmd.Flags().IntVarP(&opts.PID, "pid", "p", 0, "look at this process")
	cmd.Flags().BoolVar(&opts.JSON, "json", false, "print JSON")
	return cmd
}
