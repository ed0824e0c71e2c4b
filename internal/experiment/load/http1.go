package load

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/whylate/whylate/internal/capture/wire"
)

// http1Sender sends HTTP/1.1 on the worker's goroutine. net/http's client would put two goroutines
// between the socket and the clock, each of which waits for a thread: on two cores it measured 170 to
// 200 us for answers that took 120 to 150 us.
type http1Sender struct {
	targets     []http1Target
	reusesConns bool
	tls         *tls.Config

	mu        sync.Mutex
	idleConns map[string][]*http1Conn // by scheme and address, the most recently used one last
}

type http1Target struct {
	scheme, host, address string
	method                string
	requestBytes          []byte // the whole request
}

type http1Conn struct {
	net.Conn
	reader *wire.Reader
}

// newHTTP1Sender returns a sender of HTTP/1.1 requests to the targets of o, whose parsed URLs are urls. It encodes each
// target's request once.
func newHTTP1Sender(o *Options, urls []*url.URL) (*http1Sender, error) {
	h := &http1Sender{reusesConns: !o.HTTP.NoReuse, tls: o.HTTP.TLS, idleConns: map[string][]*http1Conn{}}
	if h.tls == nil {
		h.tls = &tls.Config{}
	}
	for i, u := range urls {
		t := &o.Targets[i]
		req := &http.Request{Method: t.method(), URL: u, Header: t.Header.Clone(), Host: t.Header.Get("Host"), Close: o.HTTP.NoReuse, ContentLength: int64(len(t.Body))}
		if req.Header == nil {
			req.Header = http.Header{}
		}
		if _, ok := req.Header["User-Agent"]; !ok {
			req.Header.Set("User-Agent", "whylate")
		}
		if password, ok := u.User.Password(); ok && req.Header.Get("Authorization") == "" {
			req.SetBasicAuth(u.User.Username(), password)
		}
		if len(t.Body) > 0 {
			req.Body = io.NopCloser(bytes.NewReader(t.Body))
		}
		var b bytes.Buffer
		if err := req.Write(&b); err != nil {
			return nil, fmt.Errorf("the request for %s: %w", u.Redacted(), err)
		}
		h.targets = append(h.targets, http1Target{u.Scheme, u.Hostname(), net.JoinHostPort(u.Hostname(), wire.Port(u)), req.Method, b.Bytes()})
	}
	return h, nil
}

// close closes the idle connections.
func (h *http1Sender) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, list := range h.idleConns {
		for _, c := range list {
			c.Close()
		}
	}
	h.idleConns = nil
}

// acquireConn returns an idle connection to the target (reused is true), or else opens a new one. The caller closes or releases it.
func (h *http1Sender) acquireConn(ctx context.Context, t *http1Target) (c *http1Conn, reused bool, err error) {
	key := t.scheme + t.address
	h.mu.Lock()
	if list := h.idleConns[key]; len(list) > 0 {
		c = list[len(list)-1]
		h.idleConns[key] = list[:len(list)-1]
	}
	h.mu.Unlock()
	if c != nil {
		return c, true, nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, false, err
	}
	if t.scheme == "https" {
		config := h.tls.Clone()
		config.ServerName = cmp.Or(config.ServerName, t.host)
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, false, err
		}
		conn = secure
	}
	return &http1Conn{conn, wire.NewReader(conn)}, false, nil
}

// releaseConn makes a connection available for the next request.
func (h *http1Sender) releaseConn(t *http1Target, c *http1Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idleConns == nil { // closed
		c.Close()
		return
	}
	h.idleConns[t.scheme+t.address] = append(h.idleConns[t.scheme+t.address], c)
}

// send sends a request to the target with this index and reads the answer. If the server closes a reused connection before the
// answer begins, it tries again on another one.
func (h *http1Sender) send(ctx context.Context, target int) Answer {
	t := &h.targets[target]
	for {
		c, reused, err := h.acquireConn(ctx, t)
		if err != nil {
			return Answer{Err: err}
		}
		a, answerBegan := h.exchange(ctx, t, c)
		// A server may close an idle connection while the request is on its way. That is not the request's failure, so try again.
		if a.Err == nil || answerBegan || !reused || ctx.Err() != nil {
			return a
		}
	}
}

// exchange sends a request on c and reads the answer, and then releases c, or closes it if it cannot be used again. answerBegan reports whether any
// byte of the answer arrived.
func (h *http1Sender) exchange(ctx context.Context, t *http1Target, c *http1Conn) (a Answer, answerBegan bool) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	reusable := false
	defer func() {
		if stop() && reusable {
			h.releaseConn(t, c)
			return
		}
		c.Close()
		if a.Err != nil && ctx.Err() != nil {
			a.Err = ctx.Err()
		}
	}()
	if _, err := c.Write(t.requestBytes); err != nil {
		return Answer{Err: err}, false
	}
	if _, err := c.reader.Peek(1); err != nil {
		return Answer{Err: err}, false
	}
	resp, err := c.reader.Response(&http.Request{Method: t.method})
	if err != nil {
		return Answer{Err: fmt.Errorf("reading the answer: %w", err)}, true
	}
	a.Status = resp.StatusCode
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		a.Err = fmt.Errorf("reading the answer: %w", err)
		return a, true
	}
	reusable = h.reusesConns && !resp.Close && resp.ProtoMajor == 1 && resp.StatusCode != http.StatusSwitchingProtocols
	switch {
	case resp.ProtoMajor != 1:
		a.Err = errors.New("the server does not speak HTTP/1")
	case resp.StatusCode >= 400:
		a.Err = fmt.Errorf("status %d", resp.StatusCode)
	}
	return a, true
}
