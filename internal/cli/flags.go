package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/output/words"
)

// A choice is a flag's value that is one of several words.
type choice[S ~string] struct {
	value *S
	of    []S
	kind  string // what help calls it
}

func (c *choice[S]) Type() string   { return c.kind }
func (c *choice[S]) String() string { return string(*c.value) }
func (c *choice[S]) Set(text string) error {
	if !slices.Contains(c.of, S(text)) {
		return fmt.Errorf("use one of %s", words.List(c.of))
	}
	*c.value = S(text)
	return nil
}

// choose adds a flag whose value is one of several words, which completion offers. What to holds is the default.
func choose[S ~string](cmd *cobra.Command, to *S, name, usage string, of ...S) {
	addChoice(cmd, &choice[S]{to, of, "string"}, name, usage)
}

func addChoice[S ~string](cmd *cobra.Command, c *choice[S], name, usage string) {
	cmd.Flags().Var(c, name, usage)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(strs(c.of), cobra.ShellCompDirectiveNoFileComp))
}

// strs returns names as plain strings.
func strs[S ~string](names []S) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return out
}

// sizeFlag is a flag's value in bytes: 300MB, 1.5GiB, 268435456.
type sizeFlag int64

func (f *sizeFlag) Type() string { return "size" }

func (f *sizeFlag) String() string {
	if *f == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*f), 10)
}

func (f *sizeFlag) Set(s string) error {
	n, err := words.ParseBytes(s)
	if err != nil {
		return errors.New("write a size such as 300MB, 1.5GiB or 268435456")
	}
	*f = sizeFlag(n)
	return nil
}

// percentFlag is a share: 2%, or 0.02.
type percentFlag float64

func (p *percentFlag) Type() string   { return "share" }
func (p *percentFlag) String() string { return fmt.Sprintf("%g%%", 100*float64(*p)) }
func (p *percentFlag) Set(s string) error {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil {
		return errors.New("write a share such as 2%")
	}
	if percent {
		v /= 100
	}
	if !(v > 0 && v <= 1) {
		return errors.New("write a share above 0% and up to 100%")
	}
	*p = percentFlag(v)
	return nil
}
