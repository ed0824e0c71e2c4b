package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain/finding"
	"github.com/whylate/whylate/internal/judge/budget"
	"github.com/whylate/whylate/internal/judge/verify"
	"github.com/whylate/whylate/internal/output/violations"
	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

var (
	checkFormats = []string{"text", "json", "sarif", "github"}
	failLevels   = []report.Severity{report.SeverityHigh, report.SeverityMedium, report.SeverityLow}
)

// checkFlags contains the flags of check.
type checkFlags struct {
	explainFlags
	budgets           []string
	failOn            report.Severity
	baseline          string
	tolerance, format string
	ledger            string
}

// newCheck returns the command check, which checks a recording against budgets and a baseline, for CI.
func newCheck(s *streams) *cobra.Command {
	c := checkFlags{format: "text"}
	cmd := &cobra.Command{
		Use:   "check [flags] TRACE|REPORT|-",
		Short: "Check a recording against budgets, for CI",
		Args: cobra.MatchAll(command.AtLeast(1, "name a trace or report, or - for standard input"), func(cmd *cobra.Command, args []string) error {
			if c.baseline != "" {
				args = append([]string{c.baseline}, args...)
			}
			return twoInputs(cmd, args)
		}),
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error { return c.run(cmd, s, args) }),
	}
	f := cmd.Flags()
	f.StringArrayVar(&c.budgets, "budget", nil, "check these `limits`: [group=NAME,]p99=50ms,sched=5%,p99-max:gc=20% (may be repeated)")
	command.Choose(cmd, &c.failOn, "fail-on", "findings of this severity and worse are violations: "+words.List(failLevels), failLevels...)
	f.StringVar(&c.baseline, "baseline", "", "compare with this earlier `trace` or report: being slower is a violation")
	f.StringVar(&c.ledger, "ledger", "", "a `file` of whylate verify: a finding that it calls fixed, and that is back, is a violation")
	f.StringVar(&c.tolerance, "tolerance", "5%", "allow requests to be slower than the baseline by this `share`")
	command.Choose(cmd, &c.format, "format", "format of violations: "+words.List(checkFormats), checkFormats...)
	f.StringVarP(&c.output, "output", "o", "", "write to this `file` instead")
	c.addShared(cmd, "request", "path-map", "max-memory", "ignore")
	return cmd
}

// rules returns the budgets and limits of the flags, without the baseline and the ledger, which it does not read.
func (c *checkFlags) rules(cmd *cobra.Command) (budget.Rules, error) {
	rules := budget.Rules{FailOn: c.failOn}
	for _, b := range c.budgets {
		limits, err := budget.Parse(b)
		if err != nil {
			return rules, command.Usage(cmd, "--budget: %v", err)
		}
		rules.Limits = append(rules.Limits, limits...)
	}
	var err error
	switch rules.Tolerance, err = budget.ParsePercent(c.tolerance); {
	case err != nil:
		return rules, command.Usage(cmd, "--tolerance: %v", err)
	case cmd.Flags().Changed("tolerance") && c.baseline == "":
		return rules, command.Usage(cmd, "--tolerance needs --baseline")
	case len(rules.Limits) == 0 && c.failOn == "" && c.baseline == "" && c.ledger == "":
		return rules, command.Usage(cmd, "say what to check: give --budget, --fail-on, --baseline or --ledger")
	}
	return rules, c.validate(cmd)
}

// run checks the recordings or the report in args, writes notes to standard error and violations to the output. The error has
// the exit status ExitCheck if there is a violation.
func (c *checkFlags) run(cmd *cobra.Command, s *streams, args []string) error {
	rules, err := c.rules(cmd)
	if err != nil {
		return err
	}
	if c.baseline != "" {
		if rules.Baseline, err = c.readReport(cmd, s, c.baseline); err != nil {
			return err
		}
	}
	if c.ledger != "" {
		if rules.Ledger, err = command.WaitFor(cmd.Context(), c.ledger, func() ([]verify.Verdict, error) { return verify.ReadLedger(c.ledger) }); err != nil {
			return err
		}
		if len(rules.Ledger) == 0 {
			fmt.Fprintf(s.Err, "whylate: note: the ledger %s has no verdicts yet\n", command.OneLine(c.ledger))
		}
	}
	rep, err := c.readReport(cmd, s, args...)
	if err != nil {
		return err
	}
	finding.MarkIgnored(rep.Findings, c.ignored)
	res := budget.Check(rep, rules)
	for _, n := range res.Notes {
		fmt.Fprintf(s.Err, "whylate: note: %s\n", command.OneLine(n.Text))
	}
	root, _ := os.Getwd() // on an error, names of files stay unchanged
	if err := s.WriteTo(c.output, func(w io.Writer) error {
		switch c.format {
		case "json":
			return command.WriteJSON(w, res)
		case "sarif":
			return violations.WriteSARIF(w, res, root, readBuild().Version)
		case "github":
			return violations.WriteGitHub(w, res, root)
		}
		return violations.WriteText(w, res)
	}); err != nil {
		return err
	}
	if !res.OK {
		return command.Exit(ExitCheck, nil)
	}
	return nil
}
