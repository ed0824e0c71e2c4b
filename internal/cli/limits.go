package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/limits"
	"github.com/whylate/whylate/internal/output/limitstext"
)

// newLimits returns the command limits, which shows the CPU and memory that a process may use, and the files that limit it.
func newLimits() *cobra.Command {
	var pid int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "limits [flags]",
		Short: "Show what a process may use, and which file limits it",
		Args:  command.NoArgs,
		RunE: command.RunE(func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("pid") && pid <= 0 {
				return command.Usage(cmd, "--pid %d: a process id is a positive number", pid)
			}
			f, err := limits.Gather(pid)
			if err != nil {
				return err
			}
			a := limits.Judge(f)
			if asJSON {
				err = command.WriteJSON(cmd.OutOrStdout(), a)
			} else {
				err = limitstext.Write(cmd.OutOrStdout(), a)
			}
			if err == nil && a.Limits == nil {
				err = errors.New(f.LimitsError) // after the answer, which says so
			}
			return err
		}),
	}
	cmd.Flags().IntVarP(&pid, "pid", "p", 0, "show the limits of this process")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
