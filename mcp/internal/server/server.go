// Package server answers assistants with whylate's reports over the Model Context Protocol
// (https://modelcontextprotocol.io).
//
// It computes nothing: each tool runs a verb of whylate in a child process and shortens the child's
// JSON to a size that an assistant can read at once. So a malicious recording can affect one child
// only, whose time and memory are bounded.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/whylate/whylate/internal/cli"
)

// Config configures the files and services that a Server may use.
type Config struct {
	// Roots are the directories whose files may be read.
	Roots []string
	// URLs are the services that may be recorded: scheme, host and port, and a prefix of the path.
	URLs []string
	// Recordings is the directory of new recordings; "" means one in the user's cache directory.
	Recordings string
	// Fleet is the address of a fleet, which is queried with FleetToken; "" means none.
	Fleet, FleetToken string
	// MaxFile bounds the size of a file in bytes, MaxRecord the length of a recording, and Timeout the
	// time of an answer without that length.
	MaxFile            int64
	MaxRecord, Timeout time.Duration
}

// A Server answers any number of sessions. It is safe for concurrent use.
type Server struct {
	config  Config
	policy  *accessPolicy
	reports *reports
	verbs   verbs
	mcp     *mcp.Server
}

const instructions = `whylate says why requests of a Go service were late, from an execution trace.
The loop: 1. explain a recording or a service's URL; read "verdict" (what slow requests spent their time on) and "findings" (what to change, where, and the predicted gain). 2. request shows one slow request's path; source shows the lines of a site. 3. Change the code. 4. Record again under the same load and call verify (were the promises kept?) or diff (what changed?).
Trust the words: "perhaps" and a low confidence mean that a better recording is needed; "judged" names the command that makes it. Do not report causes that no tool returned.`

// New returns a Server. The error names a directory or address of the Config that is unusable.
func New(c Config) (*Server, error) {
	allow, err := newAccessPolicy(c)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, policy: allow, reports: new(reports)}
	s.verbs = verbs{timeout: c.Timeout, slots: make(chan struct{}, 1)}
	s.mcp = mcp.NewServer(&mcp.Implementation{Name: "whylate", Title: "Why is this Go service late?", Version: cli.Version()},
		&mcp.ServerOptions{Instructions: instructions, Capabilities: &mcp.ServerCapabilities{}})
	s.addTools()
	s.addResources()
	s.addPrompts()
	return s, nil
}

// ServeStdio serves one session on standard input and output until the session or ctx ends, which is no error.
func (s *Server) ServeStdio(ctx context.Context) error {
	err := s.mcp.Run(ctx, &mcp.StdioTransport{})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// ServeHTTP serves sessions at http://ADDRESS/mcp until ctx ends, and prints the address to log. The
// address must be a loopback address, because there are no credentials. Requests from web pages are
// refused by their Origin and Host.
func (s *Server) ServeHTTP(ctx context.Context, address string, log io.Writer) error {
	l, err := listenLoopback(ctx, address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", http.NewCrossOriginProtection().Handler(mcp.NewStreamableHTTPHandler(
		func(*http.Request) *mcp.Server { return s.mcp },
		&mcp.StreamableHTTPOptions{SessionTimeout: time.Hour, MaxRequestBodyBytes: 1 << 20})))
	h := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { h.Close() })
	defer stop()
	fmt.Fprintf(log, "whylate-mcp: serving http://%s/mcp\n", l.Addr())
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// listenLoopback listens at an address and port, which must be of the loopback interface.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); !ok || !a.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("%s is not a loopback address: there are no credentials, so only this machine may connect; use 127.0.0.1:PORT", address)
	}
	return l, nil
}
