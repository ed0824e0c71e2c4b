package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const exitStatusHelp = `Exit status: 0 done, also when a trace is cut but holds a whole second; 1 a check found too much; 2 wrong use; 3 nothing
could be analysed, reached or written; 130 interrupted, after a report on what there was.`

// newRoot builds the whole command.
func newRoot(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "whylate",
		Short: "Why is this Go service late?",
		Long: `Whylate reads a Go execution trace, finds the requests in it without any instrumentation, follows each one's critical
path across goroutines, and gives every nanosecond of its latency one cause with a source line.

` + exitStatusHelp,
		Example: `  whylate explain http://localhost:6060     # record a running service and explain it
  whylate explain x.trace                   # explain a trace that is already there
  whylate demo                              # see it on a service with known faults`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionLine(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := nearestVerb(cmd, args[0]); near != "" {
				hint = "; did you mean `whylate " + near + "`?"
			}
			return usage(cmd, "unknown command %q%s", args[0], hint)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			writeHelp(s.err, cmd, width(s.err))
			return &statusError{ExitUsage, nil}
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd, width(cmd.OutOrStdout())) })
	root.AddCommand(
		newExplain(s),
		newRecord(s),
		newReport(s),
		newView(s),
		newWatch(s),
		newExport(s),
		newDiff(s),
		newCheck(s),
		newVerify(s),
		newDemo(s),
		newDemoService(s),
		newRules(s),
		newLimits(),
		newLoad(s),
		newSweep(s),
		newSweepGuard(s),
		newCompletion(),
		newDocs(),
		newVersion(),
	)
	return root
}

// nearestVerb returns the verb that name was probably meant to be, or "".
func nearestVerb(root *cobra.Command, name string) string {
	var names []string
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
			names = append(names, c.Aliases...)
		}
	}
	return nearest(name, names)
}

// flagError words what pflag found wrong, with the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if near := nearest(unknown.GetSpecifiedName(), names); near != "" {
			return usage(cmd, "%v; did you mean --%s?", err, near)
		}
	}
	return usage(cmd, "%v", err)
}

// nearest returns the candidate within a third of word's length, at most four edits and at least one, that has the smallest edit
// distance to it; a candidate that word begins is as near as one edit. It returns "" if there is none.
func nearest(word string, candidates []string) string {
	best, at := "", min(len(word)/3, 3)+2
	for _, c := range candidates {
		d := editDistance(word, c)
		if len(word) > 1 && strings.HasPrefix(c, word) {
			d = 1
		}
		if d < at {
			best, at = c, d
		}
	}
	return best
}

// editDistance is the Levenshtein distance in bytes, with the two-row table of Wagner and Fischer. Words longer than
// any name of ours are far from all of them.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	prev, cur := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		cur[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			cur[j+1] = min(prev[j+1]+1, cur[j]+1, prev[j]+cost)
		}
		prev, cur = cur, prev
	}
	return prev[len(b)]
}
