package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/output/limitstext"
)

func newLimits() *cobra.Command {
	var pid int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "limits [flags]",
		Short: "Show what a process may use, and which file limits it",
		Long: `Shows how much CPU and memory a process may use, which file of which group sets the limit and why the others do not; what the
Go runtime, automaxprocs, automemlimit and whylate's own packages choose from it; and the traps, where one of them assumes another
limit than the one that applies. A star marks the limit that applies and
the choice in force.

Without --pid it shows what a Go program started from here would get: inside a container, the container's limits. With --pid it
also reads the program's Go version, GODEBUG defaults, linked modules and environment; that needs the same user or root. It
works on Linux; docs/limits.md explains every trap.`,
		Example: `  whylate limits                      # what a program started here may use
  whylate limits --pid $(pidof api)   # and what that one does with it
  whylate limits --json | jq .traps`,
		Args: noArgs,
		RunE: verb(func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("pid") && pid <= 0 {
				return usage(cmd, "--pid %d: a process id is a positive number", pid)
			}
			f, err := limits.Gather(pid)
			if err != nil {
				return err
			}
			a := limits.Judge(f)
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), a)
			} else {
				err = limitstext.Write(cmd.OutOrStdout(), a)
			}
			if err == nil && a.Limits == nil {
				err = errors.New(f.Why) // after the answer, which says so
			}
			return err
		}),
	}
	cmd.Flags().IntVarP(&pid, "pid", "p", 0, "show the limits of this process")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
