package cli

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
	"github.com/whylate/whylate/internal/explain/capacity"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/text"
)

// newCapacity returns the command capacity, which predicts the load that a service will take, and what saturates first.
func newCapacity(s *streams) *cobra.Command {
	var (
		e       explainFlags
		conn    connectFlags
		changes []string
	)
	cmd := &cobra.Command{
		Use:   "capacity [flags] TRACE|URL|- [TRACE]",
		Short: "Say how much load the service will take, and what saturates first",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 2 {
				return twoInputs(nil, args)
			}
			return command.Exactly(1, "name a trace, a URL, or - for standard input, or two traces at different loads; got {n}")(nil, args)
		},
		RunE: command.RunE(func(cmd *cobra.Command, args []string) error {
			question, err := capacityQuestion(cmd, &e, changes)
			if err != nil {
				return err
			}
			e.options.Capacity = question
			e.writeAnswer = func(w io.Writer, rep *report.Report, columns int) error {
				if rep.Capacity == nil {
					return errors.New("no client waits for a request in this recording, so there is no load")
				}
				if e.asJSON() {
					return command.WriteJSON(w, rep.Capacity)
				}
				return text.WriteCapacity(w, rep.Capacity, columns)
			}
			if len(args) == 2 {
				return e.runTwoLoads(cmd, s, args)
			}
			return e.runInput(cmd, s, &conn, args[0])
		}),
	}
	f := cmd.Flags()
	e.addShared(cmd, "request", "no-marks", "module", "path-map", "max-memory")
	f.StringVar(&e.slo, "slo", "", "find the highest load that keeps these `goals`, such as p99=50ms")
	f.StringArrayVar(&changes, "what-if", nil, "assume this `change`: load=2x, cpus=8, quota=4, slots@SITE=16, or SITE=1ms for what a lock is held for (may be repeated)")
	f.BoolVar(&e.json, "json", false, "print the answer as JSON")
	f.StringVarP(&e.output, "output", "o", "", "write to this `file` instead; a name that ends in .json asks for JSON")
	e.addPage(cmd)
	conn.addExplainFlags(f)
	command.ShowFlags(cmd, "duration", "request", "what-if", "slo", "html", "json", "output")
	return cmd
}

// capacityQuestion returns the question of the command line: the goals of --slo, which it moves out of e.options, and the changes of --what-if. The
// error is one of usage.
func capacityQuestion(cmd *cobra.Command, e *explainFlags, changes []string) (*capacity.Question, error) {
	if err := e.validate(cmd); err != nil {
		return nil, err
	}
	question := new(capacity.Question)
	for _, goal := range e.options.Goals {
		question.Goals = append(question.Goals, report.CapacityGoal{Percentile: goal.Percentile, MostNS: int64(goal.Limit)})
	}
	e.options.Goals = nil
	for _, one := range changes {
		c, err := capacity.Parse(one)
		if err != nil {
			return nil, command.Usage(cmd, "--%v", err)
		}
		question.Changes = append(question.Changes, c)
	}
	return question, nil
}

// runTwoLoads answers from two recordings of one service at different loads, in any order, and writes the report of the higher load.
func (e *explainFlags) runTwoLoads(cmd *cobra.Command, s *streams, args []string) error {
	old, new, err := e.readBoth(cmd, s, args[0], args[1])
	if err != nil {
		return err
	}
	if old.Capacity == nil || new.Capacity == nil {
		return errors.New("both inputs must be traces with requests that clients wait for")
	}
	if old.Capacity.LoadPerS > new.Capacity.LoadPerS {
		old, new = new, old
	}
	capacity.AddGrowth(new.Capacity, old.Capacity)
	return e.writeAndExit(cmd, s, "", new, nil)
}
