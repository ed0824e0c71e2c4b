package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"slices"

	"google.golang.org/grpc"

	"github.com/whylate/whylate/lab/truth/catalog"
	"github.com/whylate/whylate/lab/truth/wire"
)

// serveVerb runs one service until stdin ends. It prints a line for each address: "listening on ADDR" (the service), "pprof on
// ADDR" (net/http/pprof and /debug/truth/units; the same address except for gRPC), "NAME on ADDR" for each further listener.
// Then it prints "ready".
func serveVerb(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("truth serve", flag.ContinueOnError)
	addr := fs.String("addr", "127.0.0.1:0", "listen on `host:port`")
	fixed := fs.Bool("fix", false, "take the fault out")
	procs := fs.Int("procs", 0, "set GOMAXPROCS (0: as the service needs it)")
	hogs := fs.Int("hogs", 0, "start goroutines that compute without any rest")
	gogc := fs.Int("gogc", 0, "set GOGC, whatever the service sets itself")
	gone := fs.Bool("gone", false, "as -fix, and what took time takes none")
	name, err := parse(fs, args, stderr)
	if err != nil {
		return err
	}
	s, err := catalog.Find(name)
	if err != nil {
		return err
	}
	for range *hogs {
		go catalog.Hog()
	}
	if *procs == 0 && !(*fixed && s.Place != nil) {
		*procs = s.Procs
	}
	if *procs > 0 {
		runtime.GOMAXPROCS(*procs)
	}
	env, err := catalog.NewEnv(*fixed, *gone)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, env.Close()) }()
	parts, err := s.Start(env)
	if err != nil {
		return err
	}
	if *gogc != 0 {
		debug.SetGCPercent(*gogc)
	}

	ended := make(chan error, 8)
	listen := func(label, addr string, serve func(net.Listener) error) error {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("listening for %s: %w", name, err)
		}
		fmt.Fprintf(stdout, "%s on %s\n", label, ln.Addr())
		if label == "listening" && parts.GRPC == nil {
			fmt.Fprintf(stdout, "pprof on %s\n", ln.Addr())
		}
		go func() { ended <- serve(ln) }()
		return nil
	}
	if parts.GRPC != nil {
		g := grpc.NewServer(parts.GRPCOptions...)
		g.RegisterService(wire.Desc(), parts.GRPC)
		if err := listen("listening", *addr, g.Serve); err != nil {
			return err
		}
		if err := listen("pprof", "127.0.0.1:0", httpServer(addDebugRoutes(http.NotFoundHandler(), env)).Serve); err != nil {
			return err
		}
	} else if err := listen("listening", *addr, httpServer(addDebugRoutes(parts.HTTP, env)).Serve); err != nil {
		return err
	}
	for _, label := range slices.Sorted(maps.Keys(parts.Extra)) {
		if err := listen(label, "127.0.0.1:0", httpServer(parts.Extra[label]).Serve); err != nil {
			return err
		}
	}
	fmt.Fprintln(stdout, "ready")

	eof := make(chan struct{})
	go func() {
		io.Copy(io.Discard, stdin)
		close(eof)
	}()
	select {
	case <-eof:
		return nil
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return fmt.Errorf("serving %s: %w", name, err)
	}
}

func httpServer(h http.Handler) *http.Server {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: p}
}

// addDebugRoutes adds the profiles to the service's own mux, as most services do.
func addDebugRoutes(h http.Handler, units http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/debug/truth/units", units)
	mux.Handle("/", h)
	return mux
}
