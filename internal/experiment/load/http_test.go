package load

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestHTTP sends real requests: the server's counts agree with the result, for each protocol, with the
// requested connections, bodies and headers.
func TestHTTP(t *testing.T) {
	if testing.Short() {
		t.Skip("sends requests over the loopback network")
	}
	var conns, requestCount atomic.Int64
	var mu sync.Mutex
	var wrong []string
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requestCount.Add(1)
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/post" && (r.Method != "POST" || string(body) != "hello" || r.Header.Get("X-Who") != "me" || r.Host != "service.example") {
			mu.Lock()
			wrong = append(wrong, r.Method+" "+string(body)+" "+r.Host)
			mu.Unlock()
		}
		if r.URL.Path == "/broken" {
			w.WriteHeader(http.StatusTeapot)
		}
		io.WriteString(w, strings.Repeat("x", 10<<10))
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			conns.Add(1)
		}
	}
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	targets := []Target{{URL: srv.URL + "/get"}, {URL: srv.URL + "/post", Body: []byte("hello"), Header: http.Header{"X-Who": {"me"}, "Host": {"service.example"}}}, {URL: srv.URL + "/broken"}}
	for _, c := range []struct {
		name  string
		http  HTTP
		pace  Pace
		conns func(n int64, requests int64) bool
	}{
		{"http1", HTTP{}, PaceSleep, func(n, requestCount int64) bool { return n < requestCount/2 }},
		{"http1 without reuse", HTTP{NoReuse: true}, PaceTimer, func(n, requestCount int64) bool { return n == requestCount }},
		{"http2", HTTP{H2: true}, PaceSpin, func(n, _ int64) bool { return n <= 4 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			conns.Store(0)
			requestCount.Store(0)
			r := must.Have(Run(context.Background(), Options{Targets: targets, Phases: []Phase{{300, 300, 500 * time.Millisecond}}, Pace: c.pace, HTTP: c.http, Seed: 1}))(t)
			if r.Requests != requestCount.Load() || r.Requests < 80 || r.Status[200]+r.Status[418] != r.Requests || r.Errors != r.Status[418] || r.Errors == 0 {
				t.Errorf("%d served: %+v", requestCount.Load(), r)
			}
			check.True(t, c.conns(conns.Load(), requestCount.Load()), "%d connections for %d requests", conns.Load(), requestCount.Load())
			check.True(t, len(wrong) == 0, "arrived: %q", wrong)
		})
	}
	t.Run("no listener", func(t *testing.T) {
		l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
		l.Close()
		r, err := Run(context.Background(), Options{Targets: []Target{{URL: "http://" + l.Addr().String()}}, Phases: []Phase{{100, 100, 100 * time.Millisecond}}})
		check.True(t, err == nil && !r.Valid && len(r.Reasons) == 1 && r.Reasons[0].Text == "connection refused", "%+v, %v", r, err)
	})
}

func TestReadTargets(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "b.json"), []byte("{}"), 0o666))
	got, err := ReadTargets(strings.NewReader("# mix\n\n3 GET http://127.0.0.1:1/a?x=1\n/b\nPOST /c @b.json\n\tContent-Type: application/json\n  X: y: z\n"), "http://127.0.0.1:2/base", dir)
	must.True(t, err == nil && len(got) == 3, "%+v, %v", got, err)
	if got[0].Weight != 3 || got[0].method() != "GET" || got[1].URL != "http://127.0.0.1:2/b" || got[1].Weight != 1 ||
		got[2].method() != "POST" || string(got[2].Body) != "{}" || got[2].Header.Get("X") != "y: z" || got[2].Header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string]string{
		"":                         "no target",
		"/a":                       "give the service's URL",
		"  X: y":                   "header of the target above",
		"0 http://x/":              "weight of 0",
		"GET http://x/ /b":         "write [WEIGHT]",
		"GET":                      "write",
		"ftp://x/":                 "write it as http",
		"http://x/ @missing":       "reading a body",
		"http://u:secret@ x/":      "line 1",
		"http://x/\n\tno colon":    "line 2",
		"http://u:secret@h:x y/\n": "line 1",
	} {
		_, err := ReadTargets(strings.NewReader(text), "", dir)
		check.True(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "secret"),
			"%q: %v, want %q", text, err, want)
	}
	if !AreLoopback(got) || AreLoopback([]Target{{URL: "http://10.0.0.1/"}}) || AreLoopback([]Target{{URL: "http://localhost.example/"}}) || !AreLoopback([]Target{{URL: "http://[::1]:80/"}, {URL: "http://localhost/"}}) {
		t.Error("loopback addresses are not distinguished from others")
	}
}

// TestHTTP1Connections: a connection that the server closes while it is idle fails no request, interim
// answers are skipped, chunked answers are read to their end, and TLS works.
func TestHTTP1Connections(t *testing.T) {
	if testing.Short() {
		t.Skip("sends requests over the loopback network")
	}
	send := func(t *testing.T, target Target, o Options) *Result {
		t.Helper()
		o.Targets, o.Phases = []Target{target}, []Phase{{100, 100, 300 * time.Millisecond}}
		return must.Have(Run(context.Background(), o))(t)
	}
	t.Run("closed while idle", func(t *testing.T) {
		l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
		defer l.Close()
		var conns atomic.Int64
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				conns.Add(1)
				go func() { // announces keep-alive, and closes the connection
					defer c.Close()
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}()
			}
		}()
		if r := send(t, Target{URL: "http://" + l.Addr().String()}, Options{}); r.Errors != 0 || r.Requests != 30 || conns.Load() != 30 {
			t.Errorf("%d errors of %d requests, %d connections: %v", r.Errors, r.Requests, conns.Load(), r.Reasons)
		}
	})
	t.Run("tls, chunked and head", func(t *testing.T) {
		srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.(http.Flusher).Flush()
			io.WriteString(w, "in pieces")
		}))
		defer srv.Close()
		config := srv.Client().Transport.(*http.Transport).TLSClientConfig
		for _, method := range []string{"GET", "HEAD"} {
			if r := send(t, Target{URL: srv.URL, Method: method}, Options{HTTP: HTTP{TLS: config}}); r.Errors != 0 || r.Status[200] != 30 {
				t.Errorf("%s: %+v", method, r)
			}
		}
		if r := send(t, Target{URL: srv.URL}, Options{}); r.Errors != 30 || !strings.Contains(r.Reasons[0].Text, "certificate") {
			t.Errorf("an unknown certificate is trusted: %+v", r)
		}
	})
	t.Run("an answer that never ends", func(t *testing.T) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		defer srv.Close()
		if r := send(t, Target{URL: srv.URL}, Options{Timeout: 50 * time.Millisecond}); r.TimedOut != 30 || r.Reasons[0].Text != "no answer within the time-out" {
			t.Errorf("%+v", r)
		}
	})
}
