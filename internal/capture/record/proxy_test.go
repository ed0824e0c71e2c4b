package record

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// clientEnv makes this program a client, for tests of settings that a process reads from its
// environment only once.
const clientEnv = "WHYLATE_TEST_CLIENT"

func runClient(target string) {
	opt := quickOptions()
	opt.Proxy = ""
	s, err := Open(context.Background(), target, opt)
	out := map[string]any{}
	if err != nil {
		out["error"] = err.Error()
	} else {
		n, _ := io.Copy(io.Discard, s)
		s.Close()
		out["bytes"], out["result"] = n, s.Result()
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		panic(err)
	}
}

// A proxyServer is an HTTP proxy: it tunnels CONNECT and forwards other requests. Every host name
// leads to backend.
type proxyServer struct {
	*httptest.Server
	user string // required as user:password; empty: none

	mu      sync.Mutex
	targets []string // method and target
}

func startProxy(t testing.TB, backend, user string) *proxyServer {
	p := &proxyServer{user: user}
	forward := &httputil.ReverseProxy{FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Host = backend }}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.targets = append(p.targets, r.Method+" "+r.Host)
		p.mu.Unlock()
		if p.user != "" {
			probe := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
			user, password, _ := probe.BasicAuth()
			if user+":"+password != p.user {
				w.WriteHeader(http.StatusProxyAuthRequired)
				fmt.Fprintf(w, "not you, %q", r.Header.Get("Proxy-Authorization"))
				return
			}
		}
		if strings.HasPrefix(r.Host, "forbidden.") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if r.Method != http.MethodConnect {
			forward.ServeHTTP(w, r)
			return
		}
		server, err := net.Dial("tcp", backend)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		client, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
		go func() {
			defer server.Close()
			io.Copy(server, buffered)
		}()
		defer client.Close()
		io.Copy(client, server)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *proxyServer) requests() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.targets, "; ")
}

func serverAddr(s *httptest.Server) string { return s.Listener.Addr().String() }

func TestProxies(t *testing.T) {
	t.Parallel()
	pki := newPKI(t)
	plain := serveHandler(t, imitation())
	secure := pki.server(t, imitation(), false)

	t.Run("http", func(t *testing.T) {
		t.Parallel()
		p := startProxy(t, serverAddr(plain), "")
		opt := quickOptions()
		opt.Proxy = p.URL
		data, _, err := record(t, "http://svc.example:6060", opt)
		check.True(t, err == nil && bytes.Equal(data, cannedTrace()) && p.requests() == "GET svc.example:6060",
			"%d bytes, %v; the proxy saw %s", len(data), err, p.requests())
	})
	t.Run("https with proxy password", func(t *testing.T) {
		t.Parallel()
		p := startProxy(t, serverAddr(secure), "jo:pr0xy pass")
		opt := quickOptions()
		opt.Proxy = "http://jo:pr0xy%20pass@" + serverAddr(p.Server)
		opt.TLS.CACert, opt.TLS.ServerName = pki.caFile, "127.0.0.1"
		data, _, err := record(t, "https://svc.example", opt)
		check.True(t, err == nil && bytes.Equal(data, cannedTrace()) && p.requests() == "CONNECT svc.example:443",
			"%d bytes, %v; the proxy saw %s", len(data), err, p.requests())
	})
	t.Run("wrong password", func(t *testing.T) {
		t.Parallel()
		for _, target := range []string{"https://svc.example", "http://svc.example"} {
			p := startProxy(t, serverAddr(secure), "jo:right")
			opt := quickOptions()
			opt.Proxy = "http://jo:wr0ng-word@" + serverAddr(p.Server)
			_, _, err := record(t, target, opt)
			wantKind(t, err, Unauthorized, "407", "proxy")
			if strings.Contains(err.Error(), "wr0ng-word") || strings.Contains(err.Error(), base64.StdEncoding.EncodeToString([]byte("jo:wr0ng-word"))) {
				t.Errorf("the password is in %q", err)
			}
		}
	})
	t.Run("refuses", func(t *testing.T) {
		t.Parallel()
		p := startProxy(t, serverAddr(secure), "")
		opt := quickOptions()
		opt.Proxy = serverAddr(p.Server) // without scheme
		_, _, err := record(t, "https://forbidden.example", opt)
		wantKind(t, err, Proxy, "403", "--proxy none")
	})
	t.Run("not there", func(t *testing.T) {
		t.Parallel()
		opt := quickOptions()
		opt.Proxy = "http://127.0.0.1:1"
		_, _, err := record(t, "https://svc.example", opt)
		wantKind(t, err, Proxy, "connection to the proxy refused", "--proxy")
	})
	t.Run("environment", func(t *testing.T) {
		t.Parallel()
		p := startProxy(t, serverAddr(plain), "jo:env-secret")
		run := func(target, proxy string) map[string]any {
			t.Helper()
			exe := must.Have(os.Executable())(t)
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), clientEnv+"="+target, "HTTP_PROXY="+proxy, "http_proxy="+proxy, "NO_PROXY=direct.example", "no_proxy=direct.example")
			out := must.Have(cmd.Output())(t)
			check.False(t, bytes.Contains(out, []byte("env-secret")), "the proxy's password is in %s", out)
			var m map[string]any
			must.True(t, json.Unmarshal(out, &m) == nil, "the client printed %q", out)
			return m
		}
		if out := run("http://svc.example", "http://jo:env-secret@"+serverAddr(p.Server)); out["bytes"] != float64(len(cannedTrace())) {
			t.Errorf("through the environment's proxy: %v", out)
		}
		check.True(t, p.requests() == "GET svc.example", "the proxy saw %s", p.requests())
	})
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if data, _, err := record(t, plain.URL, quickOptions()); err != nil || !bytes.Equal(data, cannedTrace()) {
			t.Errorf("%d bytes, %v", len(data), err)
		}
	})
}
