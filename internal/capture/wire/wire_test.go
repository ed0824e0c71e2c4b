package wire_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/capture/wire"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/endless"
	"github.com/whylate/whylate/internal/testing/must"
)

// maxAllocated bounds what a client may allocate for one answer, including garbage: a head takes
// several times its bytes while its buffer grows.
const maxAllocated = 8 << 20

// TestEndlessHeads sends requests to servers whose head never ends. Without the bounds each answer
// takes from 150 MB to a gigabyte.
func TestEndlessHeads(t *testing.T) {
	for _, kind := range endless.Heads() {
		t.Run(kind, func(t *testing.T) {
			url := endless.Serve(t, kind)
			client := wire.Client(&http.Transport{DisableKeepAlives: true})
			if n := endless.Allocated(func() {
				resp, err := client.Get(url)
				if err == nil {
					resp.Body.Close()
					t.Errorf("the client takes it as %s", resp.Status)
				}
			}); n > maxAllocated {
				t.Errorf("the client allocates %d bytes", n)
			}
			conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			must.Do(t, err)
			defer conn.Close()
			io.WriteString(conn, "GET / HTTP/1.1\r\n\r\n")
			if n := endless.Allocated(func() {
				_, err = wire.NewReader(conn).Response(&http.Request{Method: "GET"})
			}); n > maxAllocated {
				t.Errorf("the reader allocates %d bytes", n)
			}
			check.True(t, errors.Is(err, wire.ErrHead), "the reader says %v", err)
		})
	}
}

// TestReader reads the answers of real servers on one connection: the bounds apply to each answer's
// head, not to its body or to the whole connection.
func TestReader(t *testing.T) {
	body := strings.Repeat("\n", 2*wire.HeadLines) + strings.Repeat("x", 2*wire.HeadBytes)
	head := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\nX-Cookie: " + strings.Repeat("c", wire.HeadBytes/2) + "\r\n\r\n"
	interim := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 5)
	r := wire.NewReader(bufio.NewReader(strings.NewReader(strings.Repeat(interim+head+body, 4) + "HTTP/1.1 101 Switching Protocols\r\n\r\n")))
	for i := range 4 {
		resp, err := r.Response(&http.Request{Method: "GET"})
		must.True(t, err == nil, "answer %d: %v", i+1, err)
		b, err := io.ReadAll(resp.Body)
		must.True(t, err == nil && string(b) == body && resp.StatusCode == 200,
			"answer %d: status %d, %d bytes, %v", i+1, resp.StatusCode, len(b), err)
	}
	if resp, err := r.Response(&http.Request{Method: "GET"}); err != nil || resp.StatusCode != 101 {
		t.Errorf("the last: %v", err)
	}
	if _, err := r.Response(&http.Request{Method: "GET"}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("after the last: %v", err)
	}
}

func TestReadAll(t *testing.T) {
	for _, c := range []struct {
		limit int64
		want  error
	}{{5, nil}, {4, wire.ErrLarge}, {0, wire.ErrLarge}} {
		if b, err := wire.ReadAll(strings.NewReader("hello"), c.limit); !errors.Is(err, c.want) || err == nil && string(b) != "hello" {
			t.Errorf("at most %d: %q, %v", c.limit, b, err)
		}
	}
	if b, err := wire.ReadFirst(strings.NewReader("hello"), 2); err != nil || string(b) != "he" {
		t.Errorf("the first two: %q, %v", b, err)
	}
}

// TestNoRedirects: Client follows no redirect, because headers may be credentials of one host.
func TestNoRedirects(t *testing.T) {
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check.Equal(t, r.URL.Path, "/", "unexpected request for %s", r.URL)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})}
	go srv.Serve(l)
	defer srv.Close()
	resp, err := wire.Client(wire.DefaultTransport()).Get("http://" + l.Addr().String() + "/")
	must.True(t, err == nil && resp.StatusCode == http.StatusTemporaryRedirect, "%v, %v", resp, err)
	resp.Body.Close()
}

// TestPort: without a port in the URL, Port returns the default port of the scheme.
func TestPort(t *testing.T) {
	for text, want := range map[string]string{"http://h": "80", "https://h/": "443", "http://h:": "80", "https://[::1]:8443": "8443", "ftp://h": ""} {
		check.Equal(t, wire.Port(must.Have(url.Parse(text))(t)), want, "%s leads to port", text)
	}
}

type replacedTransport struct{ http.RoundTripper }

// TestDefaultTransport checks a program that has replaced http.DefaultTransport.
func TestDefaultTransport(t *testing.T) {
	original := http.DefaultTransport
	defer func() { http.DefaultTransport = original }()
	http.DefaultTransport = replacedTransport{original}
	if u, standard := wire.DefaultTransport(), original.(*http.Transport); u.Proxy == nil || u.MaxIdleConns != standard.MaxIdleConns || u.TLSHandshakeTimeout != standard.TLSHandshakeTimeout || u.IdleConnTimeout != standard.IdleConnTimeout {
		t.Errorf("the transport is %+v", u)
	}
}
