package record

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// requireAuth lets requests pass that ok accepts, and answers 401 to others.
func requireAuth(ok func(*http.Request) bool) http.Handler {
	inner := imitation()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ok(r) {
			http.Error(w, "who are you", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

func TestCredentialsAreSent(t *testing.T) {
	t.Parallel()
	login := func(r *http.Request) bool { u, p, _ := r.BasicAuth(); return u == "jo" && p == "p/w" }
	for _, c := range []struct {
		name string
		ok   func(*http.Request) bool
		user string // in the URL
		opt  Options
	}{
		{"user in URL", login, "jo:p%2Fw@", Options{}},
		{"user in options", login, "", Options{Login: &Login{"jo", "p/w"}}},
		{"options before URL", login, "x:y@", Options{Login: &Login{"jo", "p/w"}}},
		{"token", func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer t0ken" }, "", Options{Token: "t0ken"}},
		{"headers", func(r *http.Request) bool {
			return strings.Join(r.Header["X-Key"], "+") == "a+b" && r.Host == "other.example"
		}, "", Options{Header: http.Header{"x-key": {"a", "b"}, "Host": {"other.example"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serveHandler(t, requireAuth(c.ok))
			opt := quickOptions()
			opt.NoCPU, opt.NoAllocs = false, false
			opt.Header, opt.Login, opt.Token = c.opt.Header, c.opt.Login, c.opt.Token
			str, err := Open(context.Background(), "http://"+c.user+serverAddr(s), opt)
			must.Do(t, err)
			defer str.Close()
			if data, err := io.ReadAll(str); err != nil || !bytes.Equal(data, cannedTrace()) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if cpu, allocs := str.Profiles(); cpu == nil || allocs == nil {
				t.Errorf("the profiles' requests were refused: %v", str.Result().Warnings)
			}
			opt.Header, opt.Login, opt.Token = nil, &Login{"jo", "wrong"}, ""
			_, _, err = record(t, s.URL, opt)
			wantKind(t, err, Unauthorized, "401", "the credentials given were not accepted")
		})
	}
}

func TestHeaderParsing(t *testing.T) {
	h := http.Header{}
	lines := SplitHeaderLines("# comment\n\n  X-A:  one two \r\nX-A:two\nEmpty:\n")
	must.Do(t, AddHeaders(h, "headers.txt", lines))
	check.False(t, fmt.Sprint(h) != "map[Empty:[] X-A:[one two two]]" && fmt.Sprint(h["X-A"]) != "[one two two]", "%v", h)
	for _, line := range []string{"s3cret", ": s3cret", "X s3cret: v", "X-K: s3cret\x00", "X-K: s3\rcret"} {
		err := AddHeaders(h, "headers.txt", []string{"A: b", line})
		wantKind(t, err, Usage, "headers.txt", "number 2")
		check.False(t, strings.Contains(err.Error(), "s3"), "the header is in %q", err)
	}
}

func TestSecretFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(name, []byte("t0ken\r\n"), 0o600))
	if s, err := ReadSecretFile(name, nil); err != nil || s != "t0ken" {
		t.Errorf("%q, %v", s, err)
	}
	if s, err := ReadSecretFile("-", strings.NewReader("from stdin\n")); err != nil || s != "from stdin" {
		t.Errorf("%q, %v", s, err)
	}
	if _, err := ReadSecretFile(name+"x", nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := ReadSecretFile("-", strings.NewReader(strings.Repeat("x", 70<<10))); err == nil {
		t.Error("a huge file was accepted")
	}
}

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

// secretForms returns all forms in which an output could contain the secrets.
func secretForms(secrets ...string) []string {
	var all []string
	for _, s := range secrets {
		all = append(all, s, url.QueryEscape(s), url.PathEscape(s), base64.StdEncoding.EncodeToString([]byte(s)),
			base64.StdEncoding.EncodeToString([]byte("jo-user:"+s)), fmt.Sprintf("%x", s), fmt.Sprintf("%d", []byte(s)))
	}
	return all
}

// Servers that repeat everything they received, in every part of an answer that a message may quote,
// get no secret into any error, warning, result, or file.
func TestNothingLeaks(t *testing.T) {
	t.Parallel()
	const (
		password = "p@ss/w0rd?leak"
		token    = "t0ken-leak-42"
		header   = "h3ader leak+value"
		query    = "qu3ry leak&value"
		proxyPW  = "pr0xy leak"
	)
	// The secrets of each of the three kinds of credentials below, which no output may contain.
	secrets := [][]string{secretForms(token, header, query), append(secretForms(password, header, query), "jo-user"), append(secretForms(password, header, query, proxyPW), "jo-user")}
	echo := func(r *http.Request) string {
		var b bytes.Buffer
		q, _ := url.QueryUnescape(r.URL.RawQuery)
		u, p, _ := r.BasicAuth()
		fmt.Fprintf(&b, "%s %s %s %s %s", r.URL, q, u, p, r.RequestURI)
		for k, v := range r.Header {
			fmt.Fprintf(&b, " %s: %s", k, v)
		}
		return b.String()
	}
	trace := cannedTrace()
	servers := map[string]http.HandlerFunc{
		"404": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(404); io.WriteString(w, echo(r)) },
		"401": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(401); io.WriteString(w, echo(r)) },
		"500": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, "Could not enable tracing: "+echo(r))
		},
		"400": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(400)
			io.WriteString(w, "exceeds server's WriteTimeout "+echo(r))
		},
		"title": func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "<html><title>"+echo(r)+"</title>") },
		"error title": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
			io.WriteString(w, "<html><title>"+echo(r)+"</title>")
		},
		"body": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Header.Get("Authorization")+r.Header.Get("X-Key")+r.URL.RawQuery)
		},
		"encoding": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", r.Header.Get("X-Key")+token)
			io.WriteString(w, "x")
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://jo-user:"+url.QueryEscape(password)+"@"+r.Host+r.URL.Path+"?"+r.URL.RawQuery+"&x="+url.QueryEscape(echo(r)), http.StatusFound)
		},
		"redirect path": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/"+url.PathEscape(password)+"/"+url.PathEscape(token)+"/"+url.PathEscape(query)+"/"+url.PathEscape(header), http.StatusFound)
		},
		"redirect away": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+token+".invalid/"+url.PathEscape(password)+"?x="+url.QueryEscape(echo(r)), http.StatusFound)
		},
		"redirect scheme": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "weird://"+token+"/"+url.PathEscape(password), http.StatusFound)
		},
		"bad location": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "http://jo-user:"+password+"@%zz/"+token)
			w.WriteHeader(http.StatusFound)
		},
		"garbage": func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(c, "HTTP/1.1 %s %s\r\n\r\n", r.Header.Get("X-Key"), r.URL.RawQuery)
			c.Close()
		},
		"bad header": func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", token+" "+r.Header.Get("Authorization"))
			c.Close()
		},
		"status text": func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			fmt.Fprintf(c, "HTTP/1.1 418 %s %s %s\r\nContent-Length: 0\r\n\r\n", token, r.Header.Get("X-Key"), r.URL.RawQuery)
			c.Close()
		},
		"cut": func(w http.ResponseWriter, r *http.Request) {
			w.Write(trace[:50])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"good": func(w http.ResponseWriter, r *http.Request) { imitation().ServeHTTP(w, r) },
		"sides echo": func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/trace") {
				w.Write(trace)
				return
			}
			w.WriteHeader(500)
			io.WriteString(w, echo(r))
		},
	}
	check := func(t *testing.T, credential int, output, text string) {
		t.Helper()
		for _, s := range secrets[credential] {
			check.False(t, strings.Contains(text, s), "%q is in the %s:\n%s", s, output, text)
		}
	}
	run := func(t *testing.T, credential int, target string, opt Options) {
		t.Helper()
		name := filepath.Join(t.TempDir(), "x.whylate")
		r, err := Save(context.Background(), target, opt, name, "", nil)
		for e := err; e != nil; e = errors.Unwrap(e) {
			check(t, credential, "error", fmt.Sprintf("%v\n%+v\n%#v\n%q", e, e, e, e))
		}
		if r != nil {
			j, _ := json.Marshal(r)
			check(t, credential, "result", fmt.Sprintf("%+v\n%s", *r, j))
		}
		if data, err := os.ReadFile(name); err == nil {
			check(t, credential, "file", string(data))
		}
	}
	for name, h := range servers {
		for credential := range 3 {
			t.Run(fmt.Sprint(name, credential), func(t *testing.T) {
				t.Parallel()
				s := serveHandler(t, h)
				target := "http://" + serverAddr(s) + "/debug/pprof/trace?key=" + url.QueryEscape(query)
				opt := quickOptions()
				opt.NoCPU, opt.NoAllocs = false, false
				opt.Header = http.Header{"X-Key": {header}}
				// Host samples never contain a request's data, so one recording with samples is enough.
				opt.NoHost = name != "good"
				switch credential {
				case 0:
					opt.Token = token
				case 1:
					opt.Login = &Login{"jo-user", password}
				case 2:
					target = strings.Replace(target, "://", "://jo-user:"+url.QueryEscape(password)+"@", 1)
					p := startProxy(t, serverAddr(s), "")
					opt.Proxy = "http://jo-user:" + url.PathEscape(proxyPW) + "@" + serverAddr(p.Server)
				}
				run(t, credential, target, opt)
			})
		}
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		opt := quickOptions()
		opt.Header = http.Header{"X-Key": {header}}
		for _, hostPort := range []string{"127.0.0.1:1", "no-such-host.invalid:1", "[::1]:1", "127.0.0.1:99999", "%zz"} {
			for _, proxy := range []string{"none", "http://jo-user:" + url.PathEscape(proxyPW) + "@127.0.0.1:1", "http://jo-user:" + proxyPW + "@%zz", "x://jo-user:" + url.PathEscape(proxyPW) + "@h"} {
				opt.Proxy = proxy
				run(t, 2, "https://jo-user:"+url.QueryEscape(password)+"@"+hostPort+"/?key="+url.QueryEscape(query), opt)
				run(t, 2, "https://jo-user:"+password+"@"+hostPort+"/?key="+query, opt)
			}
		}
	})
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
