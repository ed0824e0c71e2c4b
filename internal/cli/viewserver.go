package cli

import (
	"context"
	"fmt"
	"hash/crc32"
	"log"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/internal/cli/command"
)

// socketPrefix begins a value of --listen that is the path of a Unix socket. It is for programs that pass requests on.
const socketPrefix = "unix:"

// checkAddress returns an error for an address that other machines can reach, unless --allow-remote is set.
func (v *viewFlags) checkAddress(cmd *cobra.Command) error {
	if _, isSocket := strings.CutPrefix(v.listen, socketPrefix); isSocket {
		return nil
	}
	host, port, err := net.SplitHostPort(v.listen)
	if err != nil {
		return command.Usage(cmd, "--listen %q: write ADDRESS:PORT, such as 127.0.0.1:8080", v.listen)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return command.Usage(cmd, "--listen %q: %q is not a port", v.listen, port)
	}
	ip := net.ParseIP(host)
	if host == "localhost" || ip != nil && ip.IsLoopback() || v.remote {
		return nil
	}
	return command.Usage(cmd, "--listen %s can be reached from other machines, which would see everything in the trace; add --allow-remote to allow that", v.listen)
}

// listenForFile listens at the address of --listen. For a file, port 0 is the same free port each time, so that links to the
// page stay valid; it is below the ports that systems assign to connections. If that port is in use, or the argument is no
// file, it is any free port.
func (v *viewFlags) listenForFile(arg string) (net.Listener, error) {
	if path, isSocket := strings.CutPrefix(v.listen, socketPrefix); isSocket {
		return net.Listen("unix", path)
	}
	host, port, err := net.SplitHostPort(v.listen)
	if err == nil && port == "0" && arg != "-" && !isURL(arg) {
		if path, err := filepath.Abs(arg); err == nil {
			filePort := 20000 + crc32.ChecksumIEEE([]byte(path))%12000
			if l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(filePort))); err == nil {
				return l, nil
			}
		}
	}
	return net.Listen("tcp", v.listen)
}

// servingGC is the garbage collector's pace while a trace is served: most of
// the memory is decoded generations, which live long and hold no pointers.
const servingGC = 30

// serve begins to serve the page and returns at once. The caller must call stop, which ends it within a second; ctx ends only the requests. failed
// gets the error if serving ends before.
func (v *viewFlags) serve(ctx context.Context, s *streams, listener net.Listener, handler http.Handler) (stop func(), failed <-chan error) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		// Requests end with the program.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(s.Err, "whylate: ", 0),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	url := "http://" + listener.Addr().String() + "/"
	fmt.Fprintln(s.Out, url)
	fmt.Fprintln(s.Err, "whylate: the page is served until you stop whylate (Ctrl-C)")
	if v.open {
		if err := openBrowser(url); err != nil {
			fmt.Fprintf(s.Err, "whylate: opening the browser: %s\n", command.OneLine(err.Error()))
		}
	}
	return func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(last) != nil {
			server.Close()
		}
	}, ended
}

// openBrowser opens a page in the desktop's browser, without waiting for it.
func openBrowser(url string) error {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }()
	return nil
}
