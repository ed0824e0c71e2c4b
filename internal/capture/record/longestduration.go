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

// findHandlers decides between the two paths of the endpoint by requesting the handler "symbol" of each, and sets
// endpoint.base.Path: to the first path if neither has the handler.
func (c *client) findHandlers(ctx context.Context) {
	if c.endpoint.alternativePath == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.options.ConnectTimeout)
	defer cancel()
	first := c.endpoint.base.Path
	for _, path := range []string{first, c.endpoint.alternativePath} {
		c.endpoint.base.Path = path
		resp, err := c.get(ctx, c.endpoint.handlerURL("symbol", 0))
		if err != nil {
			break // the recording reports the error
		}
		found := resp.StatusCode == http.StatusOK && resp.Header.Get("Content-Type") == "text/plain; charset=utf-8"
		b, _ := wire.ReadFirst(resp.Body, 64)
		resp.Body.Close()
		if found && bytes.HasPrefix(b, []byte("num_symbols:")) {
			return
		}
	}
	c.endpoint.base.Path = first
}

// longestDuration returns the longest duration, in whole seconds below refusedSeconds, that a service
// accepts whose pprof checks it against the server's WriteTimeout, as Go before 1.23 does; 0 if that
// is unknown. It searches with requests for the allocation profile: a refusal comes at once, and any
// other answer is abandoned after half a second.
func (c *client) longestDuration(ctx context.Context, refusedSeconds int) int {
	const patience = 500 * time.Millisecond
	accepted, rejected := 0, refusedSeconds
	for rejected-accepted > 1 {
		mid := accepted + (rejected-accepted)/2
		t, cancel := context.WithTimeout(ctx, patience)
		resp, err := c.get(t, c.endpoint.handlerURL("allocs", mid))
		switch {
		case err == nil:
			e := c.statusError("", resp, mid)
			resp.Body.Close()
			cancel()
			if e.Kind != TooLong {
				return 0
			}
			rejected = mid
		case errors.Is(t.Err(), context.DeadlineExceeded) && ctx.Err() == nil:
			cancel()
			accepted = mid
		default:
			cancel()
			return 0
		}
	}
	return accepted
}

// explainCut returns the probable reason why the trace was cut. It sends a request, for two seconds at most, to distinguish a
// dead service from one that limits the duration. lastByteTime is the arrival of the last bytes, from the request on.
func (s *Stream) explainCut(lastByteTime time.Duration) string {
	if explain := s.client.options.ExplainCut; explain != nil {
		if explanation := explain(s.ctx); explanation != "" {
			return explanation
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, 2*time.Second)
	defer cancel()
	resp, err := s.client.get(ctx, s.client.endpoint.handlerURL("cmdline", 0))
	if err != nil {
		return "the service no longer answers: it stopped or was killed, or the network failed"
	}
	resp.Body.Close()
	if resp.StatusCode >= 502 && resp.StatusCode <= 504 {
		return "the proxy before the service answers " + s.client.quotableStatus(resp) + ": the service stopped or was killed"
	}
	cause := "the service still answers, so its http.Server's WriteTimeout, or the time limit of a proxy in between, ended the answer"
	if longest := int(lastByteTime / time.Second); longest >= 1 && longest < s.seconds {
		return fmt.Sprintf("%s: -d %ds would fit; or serve net/http/pprof from a separate http.Server", cause, longest)
	}
	return cause + ": raise it, or serve net/http/pprof from a separate http.Server"
}
