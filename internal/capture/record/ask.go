package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// What a service is asked beside a recording: short questions, whose answers say where its handlers are and why something failed.

// findHandlers decides, where the user's path leaves two readings, which of them the service has.
func (c *client) findHandlers(ctx context.Context) {
	if c.end.other == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.opt.ConnectTimeout)
	defer cancel()
	first := c.end.base.Path
	for _, path := range []string{first, c.end.other} {
		c.end.base.Path = path
		resp, err := c.get(ctx, c.end.address("symbol", 0))
		if err != nil {
			break // the recording itself will say what is wrong
		}
		found := resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "text/plain; charset=utf-8"
		b, _ := wire.First(resp.Body, 64)
		resp.Body.Close()
		if found && bytes.HasPrefix(b, []byte("num_symbols:")) {
			return
		}
	}
	c.end.base.Path = first
}

// longest finds the longest duration, in whole seconds below refused, that a service whose pprof checks it against the
// server's WriteTimeout would accept; 0 if it cannot be told. Go before 1.23 checks so. It asks the allocation profile:
// a refusal comes at once, anything else is given up after a moment.
func (c *client) longest(ctx context.Context, refused int) int {
	const patience = 500 * time.Millisecond
	lo, hi := 0, refused
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		t, cancel := context.WithTimeout(ctx, patience)
		resp, err := c.get(t, c.end.address("allocs", mid))
		switch {
		case err == nil:
			e := c.statusError("", resp, mid)
			resp.Body.Close()
			cancel()
			if e.Kind != TooLong {
				return 0
			}
			hi = mid
		case errors.Is(t.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
			cancel()
			lo = mid
		default:
			cancel()
			return 0
		}
	}
	return lo
}

// whyCut tells a server that died from one that cuts, by asking it something. Last is when the last bytes came.
func (s *Stream) whyCut(last time.Duration) string {
	if gone := s.c.opt.Gone; gone != nil {
		if why := gone(s.ctx); why != "" {
			return why
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
	defer cancel()
	resp, err := s.c.get(ctx, s.c.end.address("cmdline", 0))
	if err != nil {
		return "the service no longer answers: it stopped or was killed, or the network failed"
	}
	resp.Body.Close()
	if resp.StatusCode >= 502 && resp.StatusCode <= 504 {
		return "the proxy before the service answers " + s.c.status(resp) + ": the service stopped or was killed"
	}
	cause := "the service still answers, so its http.Server's WriteTimeout, or the time limit of a proxy in between, ended the answer"
	if fits := int(last / time.Second); fits >= 1 && fits < s.seconds {
		return fmt.Sprintf("%s: -d %ds would fit; or serve net/http/pprof from a separate http.Server", cause, fits)
	}
	return cause + ": raise it, or serve net/http/pprof from a separate http.Server"
}
