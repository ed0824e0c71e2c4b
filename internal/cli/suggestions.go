package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/cli/command"
)

// flagError converts an error of pflag to an error of usage, with the flag that was probably intended.
func flagError(cmd *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return pflag.ErrHelp
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if cmd.Name() == "explain" && isRecordFlag(unknown.GetSpecifiedName()) {
			return command.Usage(cmd, "%v: use `whylate record FLAGS -o - URL | whylate explain -`", err)
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if suggestions := suggestNames(unknown.GetSpecifiedName(), names); len(suggestions) > 0 {
			return command.Usage(cmd, "%v; did you mean --%s?", err, strings.Join(suggestions, " or --"))
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		f, wrong := invalid.GetFlag(), invalid.Unwrap()
		switch f.Value.Type() {
		case "duration":
			wrong = errors.New("write a time with its unit, such as 500ms or 10s")
		case "int", "uint64":
			wrong = errors.New("write a whole number")
		}
		return command.Usage(cmd, "--%s %q: %v", f.Name, invalid.GetValue(), wrong)
	}
	return command.Usage(cmd, "%v", err)
}

// suggestNames returns those of the names that word probably intended, nil if none is similar. It uses cobra's suggestions for verbs.
func suggestNames(word string, names []string) []string {
	list := &cobra.Command{SuggestionsMinimumDistance: maxEditDistance}
	for _, n := range names {
		list.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	return list.SuggestionsFor(word)
}

// maxEditDistance is the number of edits up to which a word is similar to a name: cobra's default.
const maxEditDistance = 2
