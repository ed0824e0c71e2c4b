package record

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// Tests against servers in this process that imitate pprof and proxies.

func serveHandler(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func answer(status int, contentType, body string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
}

func TestAnswersThatAreNoTrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		h    http.Handler
		kind Kind
		want []string
	}{
		{"404", http.NotFoundHandler(), NotFound, []string{"404", `import _ "net/http/pprof"`}},
		{"401", answer(401, "text/plain", "who are you"), Unauthorized, []string{"401", "(who are you)", "--user"}},
		{"403", answer(403, "text/plain", ""), Forbidden, []string{"403", "credentials may be missing"}},
		{"405", answer(405, "text/plain", ""), Status, []string{"405", "check the path"}},
		{"502 page", answer(502, "text/html", "<html><head><TITLE lang=en>Bad\nGateway</TITLE></head>"), Status, []string{"(Bad Gateway)", "a proxy or load balancer"}},
		{"500", answer(500, "text/plain", "boom\x1b[31m\u202e"), Status, []string{"500", `(boom\x1b[31m\u202e)`}},
		{"login page", answer(200, "text/html", "<!doctype html><title>Sign in</title>"), NotATrace, []string{`web page with the title "Sign in"`, "is it a login?"}},
		{"text", answer(200, "text/plain", "hello, world, this is not a trace"), NotATrace, []string{`begins with "hello, world`, "pprof.Trace"}},
		{"short text", answer(200, "text/plain", "OK"), NotATrace, []string{`begins with "OK"`}},
		{"a profile", answer(200, "application/octet-stream", gzipped("profile bytes, long enough for a header")), NotATrace, []string{"not an execution trace"}},
		{"damaged gzip", answer(200, "application/octet-stream", "\x1f\x8b\xff nonsense that is long enough"), NotATrace, []string{"gzip header is damaged"}},
		{"old trace", answer(200, "application/octet-stream", "go 1.21 trace\x00\x00\x00rest"), OldTrace, []string{"Go 1.21", "Go 1.22 or later"}},
		{"empty", answer(200, "application/octet-stream", ""), Cut, []string{"without a trace"}},
		{"redirect without end", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}), Redirect, []string{"redirects more than"}},
		{"redirect to nowhere", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(304) }), Redirect, []string{"304"}},
		{"TLS port", answer(400, "text/plain", "Client sent an HTTP request to an HTTPS server.\n"), TLS, []string{"use https://"}},
		{"unknown encoding", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "?")
		}), NotATrace, []string{`encoded as "br"`}},
		{"hang up", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), Unreachable, []string{"closed the connection without an answer"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serveHandler(t, c.h)
			opt := quickOptions()
			opt.NoCPU, opt.NoAllocs = false, false // they fail too, which must neither matter nor hide the answer
			_, _, err := record(t, s.URL, opt)
			wantKind(t, err, c.kind, c.want...)
			check.False(t, strings.ContainsAny(err.Error(), "\x1b\n"), "control characters in %q", err)
		})
	}
}

func gzipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, s)
	z.Close()
	return b.String()
}

func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	trace := cannedTrace()
	for name, h := range map[string]http.HandlerFunc{
		"content encoding": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(trace[:100])
			z.Flush()
			w.(http.Flusher).Flush()
			time.Sleep(time.Second)
			z.Write(trace[100:])
			z.Close()
		},
		"compressed file": func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			io.WriteString(w, gzipped(string(trace)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var accepts string
			s := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				accepts = r.Header.Get("Accept-Encoding")
				h(w, r)
			}))
			data, r, err := record(t, s.URL, quickOptions())
			check.True(t, err == nil && bytes.Equal(data, trace) && !r.Partial, "%d of %d bytes, %v, %+v", len(data), len(trace), err, r)
			check.True(t, accepts == "identity", "the request accepts encoding %q: the observed service should not compress", accepts)
		})
	}
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		s := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(trace)
			z.Flush() // and no end
		}))
		data, r, err := record(t, s.URL, quickOptions())
		wantKind(t, err, Cut)
		check.True(t, bytes.Equal(data, trace) && r.Partial, "%d of %d bytes, %+v", len(data), len(trace), r)
	})
}

// A server that ends the trace early, with a regular end, limits the duration: the recording is
// complete but shorter.
func TestShortTrace(t *testing.T) {
	t.Parallel()
	s := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write(cannedTrace()) }))
	opt := quickOptions()
	opt.Duration = 20 * time.Second
	data, r, err := record(t, s.URL, opt)
	check.True(t, err == nil && !r.Partial && bytes.Equal(data, cannedTrace()) && len(r.Warnings) == 1 && r.Warnings[0].Code == WarnShort,
		"%d bytes, %v, %+v", len(data), err, r)
}

// In HTTP/1.0 a regular end and a broken connection look the same: before the end of the window it is
// a cut.
func TestOldProtocolCut(t *testing.T) {
	t.Parallel()
	l := must.Have(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
			c.Write(cannedTrace())
			c.Close()
		}
	}()
	opt := quickOptions()
	opt.Duration = 20 * time.Second
	data, r, err := record(t, l.Addr().String(), opt)
	wantKind(t, err, Cut)
	check.True(t, r.Partial && bytes.Equal(data, cannedTrace()), "%d bytes, %+v", len(data), r)
}

// Servers before Go 1.23 refuse a duration that their WriteTimeout does not allow, with this condition
// and text. A duration that fits is found by requests; only the clock of a synctest bubble fixes how
// long an answer takes.
func TestWriteTimeoutOfOlderGo(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5, 9, 10} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			inner := imitation()
			var requests atomic.Int32
			inBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var seconds int
				fmt.Sscan(r.FormValue("seconds"), &seconds)
				if strings.HasSuffix(r.URL.Path, "/allocs") {
					requests.Add(1)
				}
				if seconds >= limit {
					w.Header().Set("X-Go-Pprof", "1")
					w.WriteHeader(http.StatusBadRequest)
					fmt.Fprintln(w, "profile duration exceeds server's WriteTimeout")
					return
				}
				inner.ServeHTTP(w, r)
			}), func(t *testing.T, target string, opt Options) {
				opt.Duration, opt.NoCPU = 10*time.Second, false
				begin := time.Now()
				_, _, err := record(t, target, opt)
				want := fmt.Sprintf("-d %ds would fit", limit-1)
				if limit == 1 {
					want = "try a shorter -d"
				}
				wantKind(t, err, TooLong, "does not allow 10 s", want)
				if took := time.Since(begin); requests.Load() > 4 || took > 4*600*time.Millisecond {
					t.Errorf("%d questions in %v", requests.Load(), took)
				}
			})
		})
	}
	// Where the trace fits but the profile's extra second does not, the profile is as long as the trace, also if the
	// refusal comes only when the trace has begun.
	t.Run("profile", func(t *testing.T) {
		t.Parallel()
		inner := imitation()
		var traceStarted chan struct{} // of the bubble
		inBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/trace") {
				close(traceStarted)
			}
			if r.FormValue("seconds") == "2" {
				select {
				case <-traceStarted:
				case <-r.Context().Done():
				}
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintln(w, "profile duration exceeds server's WriteTimeout")
				return
			}
			inner.ServeHTTP(w, r)
		}), func(t *testing.T, target string, opt Options) {
			traceStarted = make(chan struct{})
			opt.NoCPU = false
			str := must.Have(Open(context.Background(), target, opt))(t)
			defer str.Close()
			must.Have(io.Copy(io.Discard, str))(t)
			if cpu, _ := str.Profiles(); len(cpu) == 0 || len(str.Result().Warnings) != 0 {
				t.Errorf("profile of %d bytes, warnings %v", len(cpu), str.Result().Warnings)
			}
		})
	})
}

func TestExplainCutNamesAPossibleDuration(t *testing.T) {
	t.Parallel()
	s := serveHandler(t, imitation())
	end, _, err := ParseEndpoint(s.URL)
	must.Do(t, err)
	c := must.Have(newClient(t.Context(), end, nil, quickOptions()))(t)
	str := &Stream{client: c, ctx: context.Background(), seconds: 10}
	for last, want := range map[time.Duration]string{
		5900 * time.Millisecond:  "-d 5s would fit",
		900 * time.Millisecond:   "raise it",
		10100 * time.Millisecond: "raise it", // cut after its time: shortening would not help
	} {
		if got := str.explainCut(last); !strings.Contains(got, want) || !strings.Contains(got, "still answers") {
			t.Errorf("last bytes after %v: %q, want %q", last, got, want)
		}
	}
	s.Close()
	if got := str.explainCut(0); !strings.Contains(got, "no longer answers") {
		t.Errorf("closed server: %q", got)
	}
	stoppedService := serveHandler(t, answer(502, "text/plain", ""))
	str.client.endpoint, _, _ = ParseEndpoint(stoppedService.URL)
	if got := str.explainCut(0); !strings.Contains(got, "stopped or was killed") {
		t.Errorf("proxy without service: %q", got)
	}
}

func TestSilentServers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sent     int
		patience time.Duration
	}{
		"from the start": {0, 2*10*time.Second + time.Second + 15*time.Second}, // connecting, a handshake, the trace, and grace
		"in the middle":  {100, time.Second + 15*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.sent > 0 {
					w.Write(cannedTrace()[:c.sent])
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			}), func(t *testing.T, target string, opt Options) {
				began := time.Now()
				data, r, err := record(t, target, opt)
				wantKind(t, err, Timeout)
				check.True(t, len(data) == c.sent && r.Partial == (c.sent > 0), "%d bytes, %+v: what came should be kept", len(data), r)
				check.Equal(t, time.Since(began).Round(100*time.Millisecond), c.patience, "gave up after")
			})
		})
	}
	t.Run("in the handshake", func(t *testing.T) {
		t.Parallel()
		mute, err := net.Listen("tcp", "127.0.0.1:0") // accepts in the kernel, never answers
		must.Do(t, err)
		defer mute.Close()
		opt := quickOptions()
		opt.ConnectTimeout = 200 * time.Millisecond
		_, _, err = record(t, "https://"+mute.Addr().String(), opt)
		wantKind(t, err, Timeout)
	})
}

// Over a slow line the trace arrives long after the end of its window. The recording continues as long
// as data arrives.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	trace := cannedTrace()
	inBubble(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const pieces = 35
		for i := range pieces {
			w.Write(trace[i*len(trace)/pieces : (i+1)*len(trace)/pieces])
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	}), func(t *testing.T, target string, opt Options) {
		opt.Grace = 2 * time.Second // with the window 3 s, less than the 3.5 s that it takes
		data, r, err := record(t, target, opt)
		check.True(t, err == nil && bytes.Equal(data, trace) && !r.Partial && len(r.Warnings) == 0,
			"%d of %d bytes, %v, %+v", len(data), len(trace), err, r)
	})
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	closed := l.Addr().String()
	l.Close()
	for _, noCPU := range []bool{false, true} {
		opt := quickOptions()
		opt.NoCPU = noCPU
		_, _, err = record(t, closed, opt)
		wantKind(t, err, Refused, "recording a trace from http://"+closed+"/debug/pprof/trace?seconds=1", "refused: no process listens there")
	}
	opt := quickOptions()
	opt.ConnectTimeout = time.Second
	_, _, err = record(t, "no-such-host.invalid:6060", opt)
	if e, ok := err.(*Error); !ok || e.Kind != DNS && e.Kind != Timeout {
		t.Errorf("a name that does not exist: %v", err)
	}
	// Name servers differ; the message does not.
	c := &client{options: opt}
	wantKind(t, c.describe(context.Background(), "x", "y", &url.Error{Op: "Get", URL: "http://u:secret@h/?k=secret", Err: &net.DNSError{Name: "h", Err: "no such host", IsNotFound: true}}),
		DNS, `the name "h" could not be resolved`, "--proxy")
	wantKind(t, c.describe(context.Background(), "x", "y", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), Timeout, "no connection within 1s", "firewall")
}

func TestCancelledBeforeItBegins(t *testing.T) {
	t.Parallel()
	s := serveHandler(t, imitation())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	opt := Options{Proxy: "none"}
	_, err := Open(ctx, s.URL, opt)
	wantKind(t, err, Interrupted)
	check.True(t, errors.Is(err, context.Canceled), "does not wrap context.Canceled")
}

// A profile that fails is a warning, and the other profile and the trace are unaffected.
func TestFailedProfileIsAWarning(t *testing.T) {
	t.Parallel()
	inner := imitation()
	for _, broken := range []string{"profile", "allocs"} {
		for failure, h := range map[string]http.Handler{
			"forbidden": answer(403, "text/plain", "no"),
			"a page":    answer(200, "text/html", "<html>login</html>"),
			"cut": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Write([]byte{0x1f, 0x8b, 8})
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}),
		} {
			t.Run(broken+" "+failure, func(t *testing.T) {
				t.Parallel()
				s := serveHandler(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if strings.HasSuffix(r.URL.Path, "/"+broken) {
						h.ServeHTTP(w, r)
						return
					}
					inner.ServeHTTP(w, r)
				}))
				str := must.Have(Open(context.Background(), s.URL, Options{Duration: time.Second, Proxy: "none"}))(t)
				defer str.Close()
				must.Have(io.Copy(io.Discard, str))(t)
				cpu, allocs := str.Profiles()
				str.Profiles() // again must not warn again
				code := WarnCPU
				if broken == "allocs" {
					code = WarnAllocs
				}
				check.True(t, (cpu == nil) == (broken == "profile") && (allocs == nil) == (broken == "allocs"),
					"profiles of %d and %d bytes", len(cpu), len(allocs))
				if r := str.Result(); len(r.Warnings) != 1 || r.Warnings[0].Code != code || r.Partial {
					t.Errorf("result %+v", r)
				}
			})
		}
	}
}

func TestAmbiguousPaths(t *testing.T) {
	t.Parallel()
	inner := imitation()
	custom := http.NewServeMux()
	custom.HandleFunc("/internal/prof/symbol", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, "num_symbols: 1\n")
	})
	custom.Handle("/internal/prof/trace", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/debug/pprof/trace"
		inner.ServeHTTP(w, r)
	}))
	s := serveHandler(t, custom)
	for _, path := range []string{"/internal/prof", "/internal/prof/", "/internal/prof/trace", "/internal/prof/trace?seconds=99"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			data, r, err := record(t, s.URL+path, quickOptions())
			check.True(t, err == nil && bytes.Equal(data, cannedTrace()) && r.URL == s.URL+"/internal/prof/trace",
				"%d bytes, %v, %+v", len(data), err, r)
		})
	}
	_, _, err := record(t, s.URL+"/elsewhere", quickOptions())
	wantKind(t, err, NotFound, "/elsewhere/debug/pprof/trace")
}

func TestProgressIsMonotonicAndEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, imitation(), func(t *testing.T, target string, opt Options) {
		var calls []Progress // no lock: the calls promise not to be concurrent, and Close to come after the last
		opt.Progress = func(p Progress) { calls = append(calls, p) }
		data, _, err := record(t, target, opt)
		must.Do(t, err)
		must.True(t, len(calls) >= 2, "%d calls", len(calls))
		for i, p := range calls {
			check.True(t, p.Total == time.Second && p.Done == (i == len(calls)-1), "call %d: %+v", i, p)
			if i > 0 && (p.Bytes < calls[i-1].Bytes || p.Elapsed < calls[i-1].Elapsed) {
				t.Errorf("call %d goes back: %+v after %+v", i, p, calls[i-1])
			}
		}
		if last := calls[len(calls)-1]; last.Bytes != int64(len(data)) || last.Elapsed < time.Second {
			t.Errorf("last call %+v of %d bytes", last, len(data))
		}
	})
}

func TestSaveCannotWrite(t *testing.T) {
	t.Parallel()
	isRequested := false
	s := serveHandler(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { isRequested = true }))
	_, err := Save(context.Background(), s.URL, quickOptions(), t.TempDir()+"/none/x.trace", "", nil)
	wantKind(t, err, Write, "none/x.trace")
	check.False(t, isRequested, "the service was asked, although the file cannot be written")
	var out bytes.Buffer
	s2 := serveHandler(t, imitation())
	if r, err := Save(context.Background(), s2.URL, quickOptions(), "", "", &out); err != nil || !bytes.Equal(out.Bytes(), cannedTrace()) || !r.HasGeneration {
		t.Errorf("without a file: %d bytes, %v, %+v", out.Len(), err, r)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	_, err = Save(context.Background(), s2.URL, quickOptions(), "/dev/full", "", nil)
	wantKind(t, err, Write, "/dev/full", "no space")
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target string
		opt    Options
		want   string
	}{
		{"h:1", Options{Duration: -1}, "is not possible"},
		{"h:1", Options{Duration: 25 * time.Hour}, "is not possible"},
		{"h:1", Options{Proxy: "ftp://x"}, "not supported"},
		{"h:1", Options{Proxy: "http://u:p%@x"}, "not a valid URL"},
		{"h:1", Options{Token: "a b"}, "the token has a space"},
		{"h:1", Options{Token: "a", Login: &Login{"u", "p"}}, "only one can be sent"},
		{"http://u:p@h:1", Options{Header: http.Header{"authorization": {"x"}}}, "only one can be sent"},
		{"h:1", Options{TLS: TLSFiles{Insecure: true}}, "write https://"},
		{"https://h:1", Options{TLS: TLSFiles{Cert: "x"}}, "needs both"},
		{"https://h:1", Options{TLS: TLSFiles{CACert: "/nonexistent"}}, "reading --cacert"},
		{"https://h:1", Options{TLS: TLSFiles{CACert: os.DevNull}}, "no certificate"},
		{"https://h:1", Options{TLS: TLSFiles{Cert: os.DevNull, Key: os.DevNull}}, "reading --cert and --key"},
	} {
		_, err := Open(context.Background(), c.target, c.opt)
		wantKind(t, err, Usage, c.want)
	}
}

// unreadPipes remain open: an interrupted call may open one by its number later, and would read what another test has opened with it.
var unreadPipes []*os.File

// TestFilesOfTLS: files of certificates and keys may be pipes. Reading them ends with the context and
// at the bound of their size.
func TestFilesOfTLS(t *testing.T) {
	t.Parallel()
	for option, files := range map[string]func(name string) TLSFiles{
		"--cacert": func(name string) TLSFiles { return TLSFiles{CACert: name} },
		"--cert":   func(name string) TLSFiles { return TLSFiles{Cert: name, Key: name} },
	} {
		r, w, err := os.Pipe() // a pipe without a writer
		must.Do(t, err)
		defer w.Close()
		unreadPipes = append(unreadPipes, r)
		pipe := fmt.Sprintf("/dev/fd/%d", r.Fd())
		if _, err := os.Stat(pipe); err != nil {
			t.Skip(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = Open(ctx, "https://h:1", Options{TLS: files(pipe)})
		wantKind(t, err, Interrupted, "interrupted")
		if _, err := files(pipe).Config(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", option, err)
		}
		if _, err := files("/dev/zero").Config(context.Background()); err == nil || !strings.Contains(err.Error(), "reading "+option) || !strings.Contains(err.Error(), "/dev/zero: ") {
			t.Errorf("%s without an end: %v", option, err)
		}
	}
}
