// Package cli is the whylate command: one file for each verb, which only connects flags, inputs and outputs. Other packages
// compute the results.
package cli

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/cli/command"
)

// Exit statuses of Run.
const (
	ExitOK, ExitCheck, ExitUsage = command.ExitOK, command.ExitCheck, command.ExitUsage
	ExitFailed, ExitInterrupted  = command.ExitFailed, command.ExitInterrupted
)

// Main runs the command with the arguments, streams and signals of the process and returns its exit status. extraVerbs are verbs
// in addition to those of this package, which run no experiments. The first interrupt asks the verb to stop and to report
// its results until then, the second ends the process. A verb that reads and computes has a second for its report. A verb that runs
// something else, such as a recording or a load, ends that in good order.
func Main(extraVerbs ...command.Verb) int {
	// net/http's client writes a server's unsolicited data to the standard logger, which would overwrite the screen.
	log.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	dismiss := context.AfterFunc(ctx, func() {
		stop() // from now on a signal has its default effect again
		if isPatient(os.Args[1:], extraVerbs...) {
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
	// stop also ends ctx, which is no interrupt: a process may take some time to exit after this.
	defer stop()
	defer dismiss()
	defer close(done)
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, extraVerbs...)
}

// lastSecond is the time that an interrupted verb has to write its results.
const lastSecond = 800 * time.Millisecond

// isPatient reports whether the verb of a command line ends its own work in good order when it is interrupted, however long that takes.
func isPatient(args []string, extraVerbs ...command.Verb) bool {
	verb, _, err := newRoot(new(streams), extraVerbs...).Find(args)
	if err != nil {
		return false
	}
	switch verb.Name() {
	case "explain", "check", "diff", "verify", "export", "cut", "redact", "report", "view", "limits", "rules":
		return false
	}
	return true
}

// Run runs the command with args (without the program's name) and returns the exit status. Results go to stdout, everything
// else to stderr. A done ctx is an interrupt. A stream is a terminal only if it is an *os.File.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, extraVerbs ...command.Verb) int {
	root := newRoot(&streams{command.Streams{In: stdin, Out: stdout, Err: stderr}}, extraVerbs...)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return command.Report(stderr, root.ExecuteContext(ctx))
}

// streams adds reading of inputs to command.Streams.
type streams struct{ command.Streams }
