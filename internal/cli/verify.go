package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/termtext"
	"github.com/whylate/whylate/internal/output/words"
)

// newVerify returns the command verify, which checks by a second recording whether predictions of the first came true.
func newVerify(s *streams) *cobra.Command {
	var (
		e      explainFlags
		ledger string
	)
	cmd := &cobra.Command{
		Use:   "verify [flags] BEFORE AFTER",
		Short: "Check whether predictions came true",
		Args:  cobra.MatchAll(command.Exactly(2, "name two traces or reports, got {n}"), twoInputs),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			if err := e.validate(cmd); err != nil {
				return err
			}
			before, after, err := e.readBoth(cmd, s, args[0], args[1])
			if err != nil {
				return err
			}
			finding.MarkIgnored(before.Findings, e.ignored)
			res := verify.Reports(before, after)
			if ledger != "" {
				all, err := verify.AddToLedger(ledger, res.Verdicts)
				if err != nil {
					return err
				}
				res.Ledger = verify.SumVerdicts(all)
			}
			return s.WriteTo(e.output, func(w io.Writer) error {
				if e.json {
					return command.WriteJSON(w, res)
				}
				return writeVerified(w, res, ledger)
			})
		}),
	}
	f := cmd.Flags()
	f.StringVar(&ledger, "ledger", "", "add the verdicts to this `file`, and print how accurate all its predictions have been")
	f.BoolVar(&e.json, "json", false, "print the verdicts as JSON")
	f.StringVarP(&e.output, "output", "o", "", "write to this `file` instead")
	f.StringVar(&e.group, "group", "", "verify only groups whose name matches this regular `expression`")
	e.addShared(cmd, "request", "path-map", "max-memory", "ignore")
	e.color.add(cmd)
	return cmd
}

// writeVerified writes the verdicts and warnings as text, and how accurate the predictions of the ledger, a file's name, have
// been.
func writeVerified(w io.Writer, r *verify.Result, ledger string) error {
	var b strings.Builder
	if len(r.Verdicts) == 0 {
		b.WriteString("No finding of the first recording predicted a gain.\n")
	}
	for i := range r.Verdicts {
		v := &r.Verdicts[i]
		fmt.Fprintf(&b, "%-8s %s  %s\n         %s\n", v.Judgement, v.Code, termtext.Escape(v.Title), termtext.Escape(v.Text(words.Duration)))
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "\nnote: %s\n", termtext.Escape(warning.Text))
	}
	if a := r.Ledger; a != nil {
		fmt.Fprintf(&b, "\n%s: %d verdicts, %d with evidence: %d kept, %d better, %d short", termtext.Escape(ledger), a.Verdicts, a.Judged, a.Kept, a.Better, a.Short)
		if a.MedianError != nil {
			fmt.Fprintf(&b, "; half of the predictions were off by less than %.0f%%", 100**a.MedianError)
		}
		b.WriteString(".\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing the verdicts: %w", err)
	}
	return nil
}
