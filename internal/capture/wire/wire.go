// Package wire bounds what a client reads from a peer on the network, so that a broken or malicious
// server cannot exhaust its memory. Clients have to come from this package, and bodies have to be read
// by ReadAll, ReadFirst, or in pieces that are dropped. A test checks the source of the tool for other
// readers.
package wire

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Bounds on the head of an answer: the status line and the headers, including those of interim answers (1xx).
const (
	HeadBytes = 256 << 10
	// HeadLines exists because a parsed short line takes many times its bytes.
	HeadLines = 2000
)

// ErrHead reports an answer whose head exceeds the bounds.
var ErrHead = fmt.Errorf("the answer's headers go beyond %d KiB or %d lines", HeadBytes>>10, HeadLines)

// ErrLarge reports a body that is larger than allowed.
var ErrLarge = errors.New("it is larger than allowed")

// Client returns a client that bounds the heads of answers and follows no redirect, because headers
// may have credentials, which are for one host only.
func Client(t *http.Transport) *http.Client {
	return &http.Client{Transport: Transport(t), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Transport sets the bounds in t and returns it.
func Transport(t *http.Transport) *http.Transport {
	t.MaxResponseHeaderBytes = HeadBytes
	return t
}

// DefaultTransport returns a transport with the settings of http.DefaultTransport, including the
// environment's proxies. It does not copy http.DefaultTransport, because a program may have replaced
// that.
func DefaultTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return Transport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	})
}

// Port returns the port of a URL, or else the default port of its scheme.
func Port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// ReadFirst reads at most the first limit bytes of r.
func ReadFirst(r io.Reader, limit int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit)) }

// ReadAll reads r to its end. If r has more than limit bytes, it returns nil and ErrLarge.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := ReadFirst(r, limit+1)
	if err == nil && int64(len(b)) > limit {
		return nil, ErrLarge
	}
	return b, err
}

// A Reader reads the answers of HTTP/1 on one connection.
type Reader struct {
	*bufio.Reader
	source headReader
}

// NewReader returns a Reader of the connection.
func NewReader(r io.Reader) *Reader {
	a := &Reader{source: headReader{r: r}}
	a.Reader = bufio.NewReaderSize(&a.source, 8<<10)
	return a
}

// Response reads the final answer to a request and skips interim ones. The caller reads its body from
// the connection, in pieces.
func (r *Reader) Response(req *http.Request) (*http.Response, error) {
	r.source = headReader{r: r.source.r, isBounded: true}
	defer func() { r.source.isBounded = false }()
	for {
		resp, err := http.ReadResponse(r.Reader, req)
		if err != nil && r.source.isExceeded { // http.ReadResponse may report another error for the missing bytes
			return nil, ErrHead
		}
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// A headReader reads a connection and enforces the bounds while it reads a head.
type headReader struct {
	r                     io.Reader
	isBounded, isExceeded bool
	bytes, lines          int
}

// Read reads from the connection. While a head is read, it returns ErrHead once the head has HeadBytes bytes or HeadLines
// lines.
func (h *headReader) Read(p []byte) (int, error) {
	if !h.isBounded {
		return h.r.Read(p)
	}
	// The last bytes of a head may come with bytes of the body, so only the next read is an error.
	if h.bytes >= HeadBytes || h.lines >= HeadLines {
		h.isExceeded = true
		return 0, ErrHead
	}
	n, err := h.r.Read(p[:min(len(p), HeadBytes-h.bytes)])
	h.bytes += n
	h.lines += bytes.Count(p[:n], []byte{'\n'})
	return n, err
}
