// Package wire holds the bounds on what a peer on the network may send. Whoever reads an answer does so by this package: a server that is
// broken, or means harm, then costs no more memory than these bounds. A test reads the tool's source and lists the readers.
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

// Bounds on what stands before an answer's body: the status line and the headers, with those of interim answers (1xx).
const (
	HeadBytes = 256 << 10
	// A short line takes many times its bytes once it is parsed.
	HeadLines = 2000
)

// ErrHead says that no answer's body began within the bounds.
var ErrHead = fmt.Errorf("the answer's headers go beyond %d KiB or %d lines", HeadBytes>>10, HeadLines)

// ErrLarge says that there is more than was allowed.
var ErrLarge = errors.New("it is larger than allowed")

// Client returns a client that follows no redirect: headers may hold credentials, which are for one host only. It bounds the heads of answers.
// Bodies are to be read by All, First, or in pieces that are not kept.
func Client(t *http.Transport) *http.Client {
	return &http.Client{Transport: Transport(t), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Transport sets the bounds in a transport and returns it.
func Transport(t *http.Transport) *http.Transport {
	t.MaxResponseHeaderBytes = HeadBytes
	return t
}

// DefaultTransport returns a transport with the standard library's settings, and the environment's proxies. It does not copy
// http.DefaultTransport, which a program may have replaced.
func DefaultTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return Transport(&http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		MaxIdleConns: 100, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second,
	})
}

// Port is the port that a URL leads to, its scheme's where it names none.
func Port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// ReadFirst reads the beginning of what r gives, at most that many bytes.
func ReadFirst(r io.Reader, limit int64) ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit)) }

// ReadAll reads what r gives. The error is ErrLarge if that is more than so many bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := ReadFirst(r, limit+1)
	if err == nil && int64(len(b)) > limit {
		return nil, ErrLarge
	}
	return b, err
}

// A Reader reads the answers of HTTP/1 that come over one connection.
type Reader struct {
	*bufio.Reader
	source headReader
}

// NewReader returns a Reader of a connection.
func NewReader(r io.Reader) *Reader {
	a := &Reader{source: headReader{r: r}}
	a.Reader = bufio.NewReaderSize(&a.source, 8<<10)
	return a
}

// Response reads the final answer to a request, past interim ones. The caller reads its body from the connection, in pieces.
func (r *Reader) Response(req *http.Request) (*http.Response, error) {
	r.source = headReader{r: r.source.r, isBounded: true}
	defer func() { r.source.isBounded = false }()
	for {
		resp, err := http.ReadResponse(r.Reader, req)
		if err != nil && r.source.isExceeded { // which may have been taken as the end of a line
			return nil, ErrHead
		}
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
	}
}

// headReader reads a connection, within the bounds while heads are read.
type headReader struct {
	r                     io.Reader
	isBounded, isExceeded bool
	bytes, lines          int
}

func (h *headReader) Read(p []byte) (int, error) {
	if !h.isBounded {
		return h.r.Read(p)
	}
	// What came with the head's last bytes may be of the body, so that only asking for more goes beyond.
	if h.bytes >= HeadBytes || h.lines >= HeadLines {
		h.isExceeded = true
		return 0, ErrHead
	}
	n, err := h.r.Read(p[:min(len(p), HeadBytes-h.bytes)])
	h.bytes += n
	h.lines += bytes.Count(p[:n], []byte{'\n'})
	return n, err
}
