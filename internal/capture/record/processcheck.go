package record

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	hostsamples "github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/wire"
)

// checkPatience bounds the wait for the answer that checkProcess needs.
const checkPatience = time.Second

// checkBeforeTrace is client.checkProcess with a separate client, before the trace is requested. It returns why another process
// than pid answers there, "" if that is not so or not known.
func checkBeforeTrace(ctx context.Context, endpoint Endpoint, urlLogin *Login, opt Options, pid int) string {
	c, err := newClient(ctx, endpoint, urlLogin, opt)
	if err != nil {
		return "" // the recording reports the error
	}
	defer c.transport.CloseIdleConnections()
	c.findHandlers(ctx)
	return c.checkProcess(ctx, pid)
}

// checkProcess returns why the samples of a process are not those of the service, "" if they may be: an error text if the command line that the
// service reports differs from that of the process that listens: then a proxy or a forwarded port is in between. A service that does not report its
// command line passes the check.
func (c *client) checkProcess(ctx context.Context, pid int) string {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	resp, err := c.get(ctx, c.endpoint.handlerURL("cmdline", 0))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	r, err := decodedBody(resp)
	if err != nil {
		return ""
	}
	const limit = 256 << 10
	b, err := wire.ReadAll(r, limit)
	if err != nil || len(b) < 2 {
		return ""
	}
	commandLine, ok := hostsamples.CommandLine(pid)
	if !ok || isSameCommand(string(b), commandLine) {
		return ""
	}
	return fmt.Sprintf("the process that listens on this port (%d, %s) is not the one that answers: a proxy, or a port that is forwarded; name the service's process with --pid", pid, cleanLine(hostsamples.ProgramName(pid), 40))
}

// isSameCommand reports whether two command lines, with NUL between arguments, are equal. A program
// may have removed its verb from os.Args, so the reported one may lack one argument that is not a
// flag.
func isSameCommand(reported, actual string) bool {
	if reported == actual {
		return true
	}
	args := strings.Split(actual, "\x00")
	for i, arg := range args {
		if !strings.HasPrefix(arg, "-") && reported == strings.Join(slices.Delete(slices.Clone(args), i, i+1), "\x00") {
			return true
		}
	}
	return false
}
