// Command truth runs services that are late for a known reason, sends them requests from another process, and records the
// trace and the truth by which a diagnosis of it is judged.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/whylate/whylate/lab/truth/catalog"
)

const usage = `usage: truth list [-json]                  the services and what is true of them
       truth serve NAME [-addr A] [-fix]   serve one until standard input ends
       truth load -url U -path P[:N] ...   load it and time every request
       truth run NAME -o DIR [-fix]        both, with a trace of the server: DIR/NAME.trace, client.json, truth.json
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// errUsage reports wrong use after a message about it has been printed.
var errUsage = errors.New("wrong use")

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	verbs := map[string]func(context.Context, []string, io.Reader, io.Writer, io.Writer) error{
		"list": listVerb, "serve": serveVerb, "load": loadVerb, "run": runVerb, catalog.PeerVerb: peerVerb,
	}
	verb, ok := verbs[args[0]]
	if !ok {
		fmt.Fprintf(stderr, "truth: no verb %q\n%s", args[0], usage)
		return 2
	}
	switch err := verb(ctx, args[1:], stdin, stdout, stderr); {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		return 2
	default:
		fmt.Fprintf(stderr, "truth %s: %v\n", args[0], err)
		return 1
	}
}

// parse parses flags, with one name before or after them.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) (name string, err error) {
	fs.SetOutput(stderr)
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		name, args = args[0], args[1:]
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return "", err
		}
		return "", errUsage
	}
	rest := fs.Args()
	if name == "" && len(rest) > 0 {
		name, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 {
		fmt.Fprintf(stderr, "%s: %q after the flags and the name: flags come first or last\n", fs.Name(), rest[0])
		return "", errUsage
	}
	return name, nil
}

func listVerb(_ context.Context, args []string, _ io.Reader, stdout, stderr io.Writer) error {
	fs := flag.NewFlagSet("truth list", flag.ContinueOnError)
	asJSON := fs.Bool("json", false, "print all that is known")
	if _, err := parse(fs, args, stderr); err != nil {
		return err
	}
	all, err := catalog.All()
	if err != nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	for _, s := range all {
		fmt.Fprintf(stdout, "%-17s %-6s %-10s %s\n", s.Name, s.Proto, s.Truth.Cause, s.Doc)
	}
	return nil
}
