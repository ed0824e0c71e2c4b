package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
)

// newRoot builds the whole command, with the verbs of extraVerbs at the end of their groups.
func newRoot(s *streams, extraVerbs ...command.Verb) *cobra.Command {
	root := &cobra.Command{
		Use:           "whylate",
		Short:         "Why is this Go service late?",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       readBuild().line(),
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
