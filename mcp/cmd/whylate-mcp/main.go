// Whylate-mcp serves whylate's reports to assistants over the Model Context Protocol, on standard
// input and output or over HTTP on loopback. See docs/assistants.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/cli"
	"github.com/whylate/whylate/mcp/internal/server"
)

const usage = `usage: whylate-mcp [flags]

Serves whylate to an assistant by the Model Context Protocol: over standard input and output, or with -http over HTTP.
It reads recordings below the directories that -root names, records the services that -url names, and asks the fleet
that -fleet names, with the reader's token of WHYLATE_FLEET_TOKEN; nothing else leaves this machine.

`

// main runs the server, or, if the first argument is server.VerbArg, one verb of whylate: that is the child process of a tool.
func main() {
	// The server runs each verb in a child process of this same program.
	if len(os.Args) > 1 && os.Args[1] == server.VerbArg {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "whylate-mcp:", err)
		}
		os.Exit(2)
	}
}

// run parses the flags and serves on standard input and output, or on the loopback address of -http, until ctx ends.
func run(ctx context.Context, args []string) error {
	var c server.Config
	flags := flag.NewFlagSet("whylate-mcp", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	appendTo := func(list *[]string) func(string) error {
		return func(s string) error { *list = append(*list, s); return nil }
	}
	flags.Func("root", "`directory` whose recordings and sources may be read; may be repeated (default: the current directory)", appendTo(&c.Roots))
	flags.Func("url", "`address` of a service that may be recorded, such as http://localhost:6060; may be repeated (default: none)", appendTo(&c.URLs))
	flags.StringVar(&c.Fleet, "fleet", os.Getenv("WHYLATE_FLEET"), "`address` of a fleet that may be asked, such as https://fleet.example.com (default: WHYLATE_FLEET, or none)")
	c.FleetToken = os.Getenv("WHYLATE_FLEET_TOKEN")
	flags.StringVar(&c.Recordings, "recordings", "", "`directory` that new recordings go to (default: one in the user's cache directory)")
	flags.Int64Var(&c.MaxFile, "max-file", 512<<20, "size in `bytes` of the largest recording that is read")
	flags.DurationVar(&c.MaxRecord, "max-record", 30*time.Second, "longest `duration` of a recording")
	flags.DurationVar(&c.Timeout, "timeout", 2*time.Minute, "longest `duration` of one answer besides a recording's own")
	address := flags.String("http", "", "serve streamable HTTP on this loopback `address`, such as 127.0.0.1:7070, instead of standard input and output")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; see whylate-mcp -help", flags.Arg(0))
	}
	if len(c.Roots) == 0 {
		c.Roots = []string{"."}
	}
	s, err := server.New(c)
	if err != nil {
		return err
	}
	if *address != "" {
		return s.ServeHTTP(ctx, *address, os.Stderr)
	}
	return s.ServeStdio(ctx)
}
