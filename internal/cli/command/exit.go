// Package command has what verbs of the whylate command share: exit statuses, streams, arguments, flags and files.
package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/record"
	"github.com/whylate/whylate/internal/output/termtext"
)

// Exit statuses. Scripts read them: never change one.
const (
	ExitOK          = 0   // done, also if a truncated trace had at least one whole generation
	ExitCheck       = 1   // check found a budget or a finding exceeded
	ExitUsage       = 2   // wrong use
	ExitFailed      = 3   // nothing could be analysed, reached or written
	ExitInterrupted = 130 // interrupted, after a partial report if there was anything to report
)

// StatusError is an error with the exit status that it leads to.
type StatusError struct {
	Status int
	Err    error // nil ends the run with the status and no message
}

// Exit returns a StatusError.
func Exit(status int, err error) error { return &StatusError{status, err} }

func (e *StatusError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return e.Err.Error()
}

func (e *StatusError) Unwrap() error { return e.Err }

// Report prints err as one line to w and returns its exit status: that of a *StatusError, ExitOK for nil, else ExitUsage.
func Report(w io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	status := ExitUsage // cobra's own errors are all about how it was called
	if st, ok := errors.AsType[*StatusError](err); ok {
		status, err = st.Status, st.Err
	}
	if err != nil {
		fmt.Fprintf(w, "whylate: %s\n", OneLine(err.Error()))
	}
	return status
}

// Usage returns an error about how cmd was called, with the exit status ExitUsage and a reference to its help.
func Usage(cmd *cobra.Command, format string, args ...any) error {
	return Exit(ExitUsage, fmt.Errorf(format+"; see `%s --help`", append(args, cmd.CommandPath())...))
}

// RecordError returns an error of package record, not nil, with its exit status. It returns an error that has a status unchanged.
func RecordError(err error) error {
	if _, ok := errors.AsType[*StatusError](err); ok {
		return err
	}
	return Exit(RecordStatus(err), err)
}

// RecordStatus returns the exit status of a recording that failed with err: ExitUsage or ExitInterrupted for an error of that kind, else ExitFailed.
func RecordStatus(err error) int {
	if e, ok := errors.AsType[*record.Error](err); ok {
		switch e.Kind {
		case record.Usage:
			return ExitUsage
		case record.Interrupted:
			return ExitInterrupted
		}
	}
	return ExitFailed
}

// NoArgs returns an error of usage if there are arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(cmd, "%s takes no arguments, got %q", cmd.Name(), args[0])
	}
	return nil
}

// AtLeast returns a check that refuses fewer than n arguments with the message.
func AtLeast(n int, message string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return Usage(cmd, "%s", message)
		}
		return nil
	}
}

// Exactly returns a check that refuses any other number of arguments than n with the message, in which {n} becomes their number.
func Exactly(n int, message string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return Usage(cmd, "%s", strings.ReplaceAll(message, "{n}", strconv.Itoa(len(args))))
		}
		return nil
	}
}

// RunE returns run as a cobra RunE. An error of run without a status gets ExitFailed: the work failed, the command line was not wrong.
func RunE(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		var st *StatusError
		if err == nil || errors.As(err, &st) {
			return err
		}
		return Exit(ExitFailed, err)
	}
}

// maxErrorLine bounds an error's text: file names and server answers may be of any length.
const maxErrorLine = 2000

// OneLine makes any text fit for one line of a terminal.
func OneLine(msg string) string {
	return termtext.Head(strings.Join(strings.Fields(msg), " "), maxErrorLine)
}
