// Kubectl-whylate is a plugin of kubectl: `kubectl whylate POD` explains why the requests of a Go service in a pod are late. See
// docs/kubernetes.md.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/whylate/whylate/internal/capture/atomicfile"
	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/kube/internal/plugin"
)

func main() { os.Exit(run()) }

// run runs the command. After the first interrupt it explains what has been recorded; the second ends
// the process.
func run() int {
	// Libraries log errors that they return as well.
	log.SetOutput(io.Discard)
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	tmp, err := os.MkdirTemp("", "kubectl-whylate-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl whylate:", err)
		return cli.ExitFailed
	}
	defer os.RemoveAll(tmp)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go endAtSignals(signals, cancel, tmp, os.Exit)
	return plugin.Run(ctx, os.Args[1:], plugin.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, tmp)
}

// endAtSignals calls cancel at the first signal. At the second it removes unfinished files and calls exit.
func endAtSignals(signals <-chan os.Signal, cancel func(), tmp string, exit func(status int)) {
	<-signals
	cancel()
	<-signals
	atomicfile.RemoveUnfinished()
	os.RemoveAll(tmp)
	exit(cli.ExitInterrupted)
}
