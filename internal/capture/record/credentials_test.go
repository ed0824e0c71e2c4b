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
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
