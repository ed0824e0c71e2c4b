package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/output/words"
)

// A choice is a flag's value that is one of several words.
type choice[S ~string] struct {
	value *S
	words []S
	kind  string // its name in the help
}

func (c *choice[S]) Type() string   { return c.kind }
func (c *choice[S]) String() string { return string(*c.value) }

// Set stores text as the value; it must be one of the words.
func (c *choice[S]) Set(text string) error {
	if !slices.Contains(c.words, S(text)) {
		return fmt.Errorf("use one of %s", words.List(c.words))
	}
	*c.value = S(text)
	return nil
}

// Choose adds the flag name, whose value is one of several words, which completion offers; usage is its help. The present value
// of to is the default.
func Choose[S ~string](cmd *cobra.Command, to *S, name, usage string, values ...S) {
	ChooseKind(cmd, to, "string", name, usage, values...)
}

// ChooseKind is Choose for a value that the help calls kind, such as "string".
func ChooseKind[S ~string](cmd *cobra.Command, to *S, kind, name, usage string, values ...S) {
	cmd.Flags().Var(&choice[S]{to, values, kind}, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(Strings(values), cobra.ShellCompDirectiveNoFileComp))
}

// Strings returns names as plain strings.
func Strings[S ~string](names []S) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return out
}

// UsualFlags is the annotation with the names of a verb's flags that its help shows; --help-all shows all.
const UsualFlags = "usual"

// ShowFlags sets the flags that the help of a verb with many flags shows.
func ShowFlags(c *cobra.Command, names ...string) {
	c.Annotations = map[string]string{UsualFlags: strings.Join(append(names, "help", "help-all"), " ")}
}
