package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/internal/cli/command"
)

// newRoot builds the whole command, with the verbs of extraVerbs at the end of their groups.
func newRoot(s *streams, extraVerbs ...command.Verb) *cobra.Command {
	root := &cobra.Command{
		Use:           "whylate",
		Short:         "Why is this Go service late?",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionLine(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if suggestions := cmd.SuggestionsFor(args[0]); len(suggestions) > 0 {
				hint = "; did you mean `whylate " + strings.Join(suggestions, "` or `whylate ") + "`?"
			}
			return command.Usage(cmd, "unknown command %q%s", args[0], hint)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			writeHelp(s.Err, cmd, width(s.Err))
			return command.Exit(ExitUsage, nil)
		},

		SuggestionsMinimumDistance: maxEditDistance,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { writeHelp(cmd.OutOrStdout(), cmd, width(cmd.OutOrStdout())) })
	root.SetOut(s.Out)
	byGroup := map[string][]*cobra.Command{"": {newDocs()}}
	for _, newVerb := range extraVerbs {
		v := newVerb(&s.Streams)
		byGroup[v.GroupID] = append(byGroup[v.GroupID], v)
	}
	for _, g := range []struct {
		title string
		verbs []*cobra.Command
	}{
		{command.GroupExplain, []*cobra.Command{newExplain(s), newRecord(s), newWatch(s), newView(s), newReport(s), newCapacity(s)}},
		{command.GroupCompare, []*cobra.Command{newDiff(s), newCheck(s), newVerify(s)}},
		{command.GroupPassOn, []*cobra.Command{newExport(s), newCut(s), newRedact(s)}},
		{command.GroupTry, []*cobra.Command{newLimits()}},
		{command.GroupLookUp, []*cobra.Command{newRules(s), newGlossary(), newVersion()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		g.verbs = append(g.verbs, byGroup[g.title]...)
		for _, v := range g.verbs {
			v.GroupID = g.title
		}
		root.AddCommand(g.verbs...)
		root.SetCompletionCommandGroupID(g.title)
	}
	root.AddCommand(byGroup[""]...) // hidden
	addCompletion(root)
	addHelp(append(root.Commands(), root)...)
	return root
}

// Help lists commands by purpose, and suggests them in that order.
func init() { cobra.EnableCommandSorting = false }

// flagError rewrites pflag's errors, and adds the flag that was probably intended.
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

// suggestNames returns which of the names was probably intended by word. It uses cobra's suggestions for verbs.
func suggestNames(word string, names []string) []string {
	list := &cobra.Command{SuggestionsMinimumDistance: maxEditDistance}
	for _, n := range names {
		list.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	return list.SuggestionsFor(word)
}

// maxEditDistance is the number of edits up to which a word is similar to a name: cobra's default.
const maxEditDistance = 2
