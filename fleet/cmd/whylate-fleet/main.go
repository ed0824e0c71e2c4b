// Whylate-fleet receives recordings from many services, explains each, and shows which service loses most time to which cause.
// Its pages and API answer for all services together. See docs/fleet.md.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/cli"
)

const usage = `usage: whylate-fleet [flags] serve             take recordings, explain them, answer
       whylate-fleet [flags] check             check the configuration, and serve nothing
       whylate-fleet [flags] token SERVICE     print a new token for a service's recordings
       whylate-fleet [flags] reader NAME       print a new token for reading
       whylate-fleet [flags] revoke SERVICE    end all tokens of a service, or with reader:NAME of a reader
       whylate-fleet [flags] tokens            list whose tokens there are
       whylate-fleet [flags] backfill          explain again what is kept, after an upgrade (-service, -since)
       whylate-fleet [flags] backup FILE       copy the store, while it is in use
       whylate-fleet [flags] demo              a fleet with three services and a bad deploy

Flags may stand before or after the verb. Every flag may also stand in the file that -config names, a line each without its dash ("listen :4319"), or in the environment
("WHYLATE_FLEET_LISTEN"). A flag counts before the environment, and that before the file.

`

// main runs the fleet, or, if the first argument is work.VerbArgument, one verb of whylate with bounded memory: that is the
// child process in which a recording is explained.
func main() {
	if len(os.Args) > 1 && os.Args[1] == work.VerbArgument {
		if err := work.LimitProcess(); err != nil {
			fmt.Fprintln(os.Stderr, "whylate-fleet: bounding memory:", err)
			os.Exit(3)
		}
		go endWithParent(os.Getppid())
		os.Args = append(os.Args[:1], os.Args[2:]...)
		os.Exit(cli.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "whylate-fleet:", err)
		}
		os.Exit(2)
	}
}

// endWithParent waits until this process has another parent than the one with the given process id, because that was killed, and ends this process
// with status 3.
func endWithParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(time.Second)
	}
	os.Exit(3)
}

// run parses args (without the program's name) and runs the verb, until it is done or ctx ends.
func run(ctx context.Context, args []string) error {
	if len(args) == 4 && args[0] == demoService {
		return runDemoService(ctx, args[1], args[2], args[3])
	}
	c, arguments, err := parseConfig(args)
	if err != nil {
		return err
	}
	verb, name := "", ""
	if len(arguments) > 0 {
		verb = arguments[0]
	}
	if len(arguments) > 1 {
		name = arguments[1]
	}
	switch {
	case verb == "serve" && len(arguments) == 1:
		return serve(ctx, c, nil)
	case verb == "check" && len(arguments) == 1:
		fmt.Println("the configuration is right")
		return nil
	case verb == "demo" && len(arguments) == 1:
		return serveDemo(ctx, c)
	case (verb == "token" || verb == "reader" || verb == "revoke" || verb == "backup") && len(arguments) == 2 && name != "",
		(verb == "tokens" || verb == "backfill") && len(arguments) == 1:
		st, err := c.openStore(ctx, false)
		if err != nil {
			return err
		}
		defer st.Close()
		return administer(ctx, st, c, verb, name)
	}
	return errors.New("say what to do: serve, check, token, reader, revoke, tokens, backfill, backup or demo; see whylate-fleet -help")
}

// administer runs the verbs that only read or change the store.
func administer(ctx context.Context, st *store.Store, c *config, verb, name string) error {
	switch verb {
	case "token", "reader":
		token, scope := rand.Text(), store.SendScope
		if verb == "reader" {
			scope = store.ReadScope
		}
		if err := st.AddToken(ctx, token, scope, name, time.Now().Add(c.tokenLifetime)); err != nil {
			return err
		}
		fmt.Println(token)
	case "revoke":
		scope := store.SendScope
		if reader, ok := readerName(name); ok {
			scope, name = store.ReadScope, reader
		}
		n, err := st.RevokeTokens(ctx, scope, name)
		if err != nil {
			return err
		}
		fmt.Printf("%d tokens of %s ended\n", n, name)
	case "tokens":
		list, err := st.Tokens(ctx)
		if err != nil {
			return err
		}
		for _, t := range list {
			fmt.Printf("%s %s made %s expires %s\n", t.Scope, t.Name, t.Created.UTC().Format(time.RFC3339), t.Expires.UTC().Format(time.RFC3339))
		}
	case "backfill":
		n, err := st.Requeue(ctx, c.backfillService, time.Now().Add(-c.backfillAge))
		if err != nil {
			return err
		}
		fmt.Printf("%d recordings wait to be explained again\n", n)
	case "backup":
		return st.Backup(ctx, name)
	}
	return nil
}
