// Whylate-fleet takes recordings from many services and says which of them lose most time to what. See docs/fleet.md.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/whylate/whylate/fleet/internal/server"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/fleet/internal/work"
	"github.com/whylate/whylate/internal/cli"
)

const usage = `usage: whylate-fleet [flags] serve             take recordings, explain them, answer
       whylate-fleet [flags] token SERVICE     print a new token for a service's recordings
       whylate-fleet [flags] revoke SERVICE    end all tokens of a service
       whylate-fleet [flags] demo              a fleet with three services and a bad deploy

`

func main() {
	if len(os.Args) > 1 && os.Args[1] == work.VerbArg {
		if err := work.Limit(); err != nil {
			fmt.Fprintln(os.Stderr, "whylate-fleet: bounding memory:", err)
			os.Exit(3)
		}
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

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("whylate-fleet", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	dir := flags.String("dir", "whylate-fleet", "`directory` for the store and the raw recordings; it is made")
	listen := flags.String("listen", "127.0.0.1:4319", "loopback `address` to serve on")
	expires := flags.Duration("expires", 90*24*time.Hour, "how long a new token is valid")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch verb, service := flags.Arg(0), flags.Arg(1); {
	case verb == "serve" && flags.NArg() == 1:
		return serve(ctx, *dir, *listen, nil)
	case verb == "demo" && flags.NArg() == 1:
		return demo(ctx, *listen)
	case verb == demoService && flags.NArg() == 4:
		return runService(ctx, service, flags.Arg(2), flags.Arg(3))
	case (verb == "token" || verb == "revoke") && flags.NArg() == 2 && service != "":
		st, err := open(*dir)
		if err != nil {
			return err
		}
		defer st.Close()
		if verb == "revoke" {
			n, err := st.Revoke(ctx, service)
			if err == nil {
				fmt.Printf("%d tokens of %s ended\n", n, service)
			}
			return err
		}
		token := rand.Text()
		if err := st.AddToken(ctx, token, service, time.Now().Add(*expires)); err != nil {
			return err
		}
		fmt.Println(token)
		return nil
	}
	flags.Usage()
	return errors.New("say what to do: serve, token SERVICE, revoke SERVICE or demo")
}

func open(dir string) (*store.Store, error) {
	if err := os.MkdirAll(filepath.Join(dir, "raw"), 0o700); err != nil {
		return nil, err
	}
	return store.Open(filepath.Join(dir, "fleet.db"))
}

// serve runs all parts in this process until ctx ends. ready, if not nil, is told the address.
func serve(ctx context.Context, dir, listen string, ready func(address string, st *store.Store) error) error {
	st, err := open(dir)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.Requeue(ctx); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer l.Close()
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		return fmt.Errorf("%s is not a loopback address; a proxy that asks who reads has to stand before others", listen)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s := &server.Server{Store: st, Raw: filepath.Join(dir, "raw"), Log: log}
	h := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 2 * time.Minute}
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	parts.Go(func() { work.Run(ctx, st, s.Raw, log) })
	parts.Go(func() {
		<-ctx.Done()
		drain, end := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer end()
		_ = h.Shutdown(drain)
	})
	if ready != nil {
		if err := ready("http://"+l.Addr().String(), st); err != nil {
			return err
		}
	} else {
		log.Info("serving", "address", "http://"+l.Addr().String())
	}
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
