package record

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// A headerRecorder is a server on another origin that records the headers of every request.
type headerRecorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
}

func startHeaderRecorder(t testing.TB, h http.Handler) *headerRecorder {
	w := &headerRecorder{}
	w.Server = serveHandler(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %s host=%s\n", r.Method, r.URL, r.Host)
		r.Header.Write(&b)
		w.mu.Lock()
		w.requests = append(w.requests, b.String())
		w.mu.Unlock()
		h.ServeHTTP(rw, r)
	}))
	return w
}

func (w *headerRecorder) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.requests, "\n")
}

func TestRedirectsGetNoCredentials(t *testing.T) {
	t.Parallel()
	const secret = "r3direct-secret"
	otherHost := startHeaderRecorder(t, imitation())
	var server *httptest.Server
	server = serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := "http://" + serverAddr(otherHost.Server)
		if strings.HasPrefix(r.URL.Path, "/same") {
			to = server.URL // the login must survive this one
		}
		if r.Header.Get("X-Secret") != secret {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		path := strings.TrimPrefix(r.URL.Path, "/same")
		http.Redirect(w, r, to+path+"?seconds="+r.FormValue("seconds"), http.StatusTemporaryRedirect)
	}))
	for _, prefix := range []string{"", "/same"} {
		opt := quickOptions()
		opt.NoCPU, opt.NoAllocs = false, false
		opt.Login = &Login{"jo", secret}
		opt.Header = http.Header{"X-Secret": {secret}, "Cookie": {"session=" + secret}, "X-Api-Key": {secret}, "Host": {"named.example"}}
		data, r, err := record(t, server.URL+prefix+"/debug/pprof?key="+secret, opt)
		check.True(t, err == nil && bytes.Equal(data, cannedTrace()) && !r.Partial, "%d bytes, %v", len(data), err)
	}
	requests := otherHost.all()
	must.Equal(t, strings.Count(requests, "GET /debug/pprof/trace"), 2, "the other host saw\n%s", requests)
	basicSecret := base64.StdEncoding.EncodeToString([]byte("jo:" + secret))
	for _, s := range []string{secret, basicSecret, "Authorization", "Cookie", "X-Secret", "X-Api-Key", "Referer", "named.example"} {
		check.False(t, strings.Contains(requests, s), "the other host saw %q:\n%s", s, requests)
	}
	// The other host wants a login: say why it got none.
	locked := startHeaderRecorder(t, answer(401, "text/plain", "login"))
	toLocked := serveHandler(t, http.RedirectHandler("http://"+serverAddr(locked.Server)+"/debug/pprof/trace", http.StatusFound))
	opt := quickOptions()
	opt.Token = secret
	_, _, err := record(t, toLocked.URL, opt)
	wantKind(t, err, Unauthorized, serverAddr(locked.Server), "a redirect led to another host")
}

func TestTrusted(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"http://svc:1", "http://svc:1/x", true},
		{"http://svc:1", "http://SVC.:1/x", true},
		{"http://svc", "http://svc:80", true},
		{"http://svc", "https://svc", true},
		{"http://svc:6060", "https://svc", false},
		{"https://svc", "http://svc", false},
		{"https://svc", "https://svc:8443", false},
		{"https://svc", "https://sub.svc", false},
		{"https://sub.svc", "https://svc", false},
		{"https://[::1]:1", "https://[::1]:1", true},
	} {
		end, _, err := ParseEndpoint(c.from)
		must.Do(t, err)
		to := must.Have(url.Parse(c.to))(t)
		check.Equal(t, (&client{endpoint: end}).isTrusted(to), c.want, "from %s to %s", c.from, c.to)
	}
}

// TestNoRedirects: the client requests no other address, not even of the same server.
func TestNoRedirects(t *testing.T) {
	s := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check.False(t, strings.HasPrefix(r.URL.Path, "/elsewhere"), "request for %s", r.URL)
		http.Redirect(w, r, "/elsewhere"+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	_, err := Save(t.Context(), s.URL+"/debug/pprof/trace", Options{Duration: time.Second, NoRedirects: true, NoHost: true}, filepath.Join(t.TempDir(), "x.trace"), "", nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Redirect {
		t.Errorf("%v", err)
	}
}
