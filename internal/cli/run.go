// Package cli is the whylate command: one file a verb, wiring only. What a verb computes lives in other packages.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/output/termtext"
)

// Exit statuses. Scripts read them: never change one.
const (
	ExitOK          = 0   // done, also when a cut trace had at least one whole generation
	ExitCheck       = 1   // check found a budget or a finding exceeded
	ExitUsage       = 2   // wrong use
	ExitFailed      = 3   // nothing could be analysed, reached or written
	ExitInterrupted = 130 // interrupted, after a partial report if there was anything to report
)

// Main runs the command with the arguments, streams and signals of the process and returns its exit status. The first
// interrupt asks the verb to stop and report what it has, the second ends the process. A verb that reads and computes has
// a second for its report; those that run something of others (a recording, a load) end that in good order.
func Main() int {
	// net/http's client writes what a server sends unasked to the standard logger, over whatever is on the screen.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	patient := isPatient(os.Args[1:])
	done := make(chan struct{})
	dismiss := context.AfterFunc(ctx, func() {
		stop() // from now on a signal has its default effect again
		if patient {
			return
		}
		select {
		case <-time.After(lastSecond):
		case <-done:
			return
		}
		atomicfile.RemoveUnfinished()
		fmt.Fprintln(os.Stderr, "whylate: interrupted before the computation was finished")
		os.Exit(ExitInterrupted)
	})
	// stop ends ctx, too, and that is no interrupt: a process may take a while to exit after this.
	defer stop()
	defer dismiss()
	defer close(done)
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

// lastSecond is how long a verb that was interrupted may take to write what it has.
const lastSecond = 800 * time.Millisecond

// isPatient reports whether the verb of a command line ends what it runs by itself when it is interrupted.
func isPatient(args []string) bool {
	verb, _, err := newRoot(new(streams)).Find(args)
	if err != nil {
		return false
	}
	switch verb.Name() {
	case "explain", "check", "diff", "verify", "export", "cut", "redact", "report", "view", "limits", "rules":
		return false
	}
	return true
}

// Run runs the command with args (without the program's name) and returns the exit status. Results go to stdout,
// everything else to stderr. A done ctx stands for an interrupt. Terminals are recognised when a stream is an *os.File.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &streams{in: stdin, out: stdout, err: stderr}
	root := newRoot(s)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return s.exit(root.ExecuteContext(ctx))
}

// streams are the standard streams of one run.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exit prints err, if there is one, as one line and returns the status for it.
func (s *streams) exit(err error) int {
	if err == nil {
		return ExitOK
	}
	status := ExitUsage // cobra's own errors are all about how it was called
	if st, ok := errors.AsType[*statusError](err); ok {
		status, err = st.status, st.err
	}
	if err != nil {
		fmt.Fprintf(s.err, "whylate: %s\n", oneLine(err.Error()))
	}
	return status
}

// statusError is an error with the exit status that it leads to. A nil err ends the run with the status and no message.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// usage makes an error about how cmd was called.
func usage(cmd *cobra.Command, format string, args ...any) error {
	return &statusError{ExitUsage, fmt.Errorf(format+"; see `%s --help`", append(args, cmd.CommandPath())...)}
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "%s takes no arguments, got %q", cmd.Name(), args[0])
	}
	return nil
}

// atLeast refuses fewer than n arguments.
func atLeast(n int, message string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usage(cmd, "%s", message)
		}
		return nil
	}
}

// exactly refuses any other number of arguments than n. {n} in the message is how many there are.
func exactly(n int, message string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usage(cmd, "%s", strings.ReplaceAll(message, "{n}", strconv.Itoa(len(args))))
		}
		return nil
	}
}

// verb makes a cobra RunE: errors without a status of their own mean that the work could not be done, not that the
// command line was wrong.
func verb(run func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		var st *statusError
		if err == nil || errors.As(err, &st) {
			return err
		}
		return &statusError{ExitFailed, err}
	}
}

// maxErrorLine bounds an error's text: file names and server answers may be of any length.
const maxErrorLine = 2000

// oneLine makes text fit for one line of a terminal, whatever it was made from.
func oneLine(msg string) string {
	return termtext.Head(strings.Join(strings.Fields(msg), " "), maxErrorLine)
}
