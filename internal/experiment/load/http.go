package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/capture/wire"
)

// HTTP configures how HTTP requests are sent.
type HTTP struct {
	// H2 selects HTTP/2, without TLS for http URLs. The default is HTTP/1.1.
	H2 bool
	// NoReuse opens a connection for every request.
	NoReuse bool
	TLS     *tls.Config // nil: the system's defaults
}

// A sender sends requests. Its close closes the connections.
type sender interface {
	send(ctx context.Context, target int) Answer
	close()
}

// newHTTPSender returns a sender of requests to the targets of o: by HTTP/2 with net/http's client if o.HTTP.H2 is set, else by
// HTTP/1.1 with one of this package. The error is that of a target's URL.
func newHTTPSender(o *Options) (sender, error) {
	var urls []*url.URL
	for i := range o.Targets {
		u, err := o.Targets[i].parse()
		if err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	if !o.HTTP.H2 {
		return newHTTP1Sender(o, urls)
	}
	t := wire.Transport(&http.Transport{
		DialContext:         (&net.Dialer{Timeout: o.Timeout}).DialContext,
		MaxIdleConnsPerHost: max(o.MaxInFlight, o.ClosedClients),
		DisableCompression:  true, // decompressing would cost time of the generator
		DisableKeepAlives:   o.HTTP.NoReuse,
		TLSClientConfig:     o.HTTP.TLS,
		TLSHandshakeTimeout: o.Timeout,
		IdleConnTimeout:     time.Minute,
		Protocols:           new(http.Protocols),
	})
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return &http2Sender{wire.Client(t), o.Targets, urls}, nil
}

// http2Sender sends HTTP/2 with net/http's client: all requests share a connection.
type http2Sender struct {
	client  *http.Client
	targets []Target
	urls    []*url.URL
}

func (h *http2Sender) close() { h.client.CloseIdleConnections() }

// send sends a request to the target with this index and reads the whole answer. An answer with a status from 400, or by
// another protocol than HTTP/2, is an error.
func (h *http2Sender) send(ctx context.Context, target int) Answer {
	t := &h.targets[target]
	req := (&http.Request{Method: t.method(), URL: h.urls[target], Header: t.Header, Host: t.Header.Get("Host")}).WithContext(ctx)
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if len(t.Body) > 0 {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(t.Body)), int64(len(t.Body))
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(t.Body)), nil }
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return Answer{Err: err}
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return Answer{Status: resp.StatusCode, Err: fmt.Errorf("reading the answer: %w", err)}
	}
	a := Answer{Status: resp.StatusCode}
	switch {
	case resp.ProtoMajor != 2:
		a.Err = fmt.Errorf("the server speaks %s, not HTTP/2", resp.Proto)
	case resp.StatusCode >= 400:
		a.Err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return a
}

// errorText returns a text of an error by which errors are counted: equal for equal errors, without addresses and ports of this side.
func errorText(err error) string {
	var dns *net.DNSError
	var n net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within the time-out"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset by the server"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed by the server"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "no more open files for this process: raise the limit (ulimit -n) or lower --max-in-flight"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no free local port: reuse connections"
	case errors.As(err, &dns):
		return "no such host: " + dns.Name
	case errors.As(err, &n) && n.Timeout():
		return "no answer within the time-out"
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err
	}
	text := strings.Join(strings.Fields(err.Error()), " ")
	return text[:min(len(text), 200)]
}
