package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func httpScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "http1", Doc: "HTTP/1.1 keep-alive: handlers that answer at once, sleep, wait for a goroutine, queue for a lock", Run: http1},
		{Name: "http1-close", Doc: "HTTP/1.1, one request a connection", Run: http1Close},
		{Name: "http1-tls", Doc: "HTTP/1.1 over TLS, with new handshakes now and then", Run: http1TLS},
		{Name: "http1-pipelined", Doc: "HTTP/1.1, three requests in one write: no background read between them", Run: http1Pipelined},
		{Name: "http1-body", Doc: "HTTP/1.1 with request bodies: small, chunked, large, unread, after 100-continue", Run: http1Body},
		{Name: "http1-middleware", Doc: "HTTP/1.1, routes of a ServeMux under two layers of middleware, a TimeoutHandler, and a second listener", Run: http1Middleware},
		{Name: "http1-hijack", Doc: "HTTP/1.1 upgrades that take the connection over, server-sent events, a handler that panics", Run: http1Hijack},
	}
}

func fast(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }

func sleepy(w http.ResponseWriter, _ *http.Request) {
	time.Sleep(500 * time.Microsecond)
	io.WriteString(w, "slept\n")
}

func handsOver(w http.ResponseWriter, _ *http.Request) {
	done := make(chan string)
	go func() {
		time.Sleep(300 * time.Microsecond)
		done <- "handed over\n"
	}()
	io.WriteString(w, <-done)
}

type lockedCounter struct {
	mu sync.Mutex
	n  int
}

func (c *lockedCounter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	c.n++
	n := c.n
	rig.Burn(50 * time.Microsecond)
	c.mu.Unlock()
	fmt.Fprintf(w, "%d\n", n)
}

func routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /fast", fast)
	mux.HandleFunc("GET /sleepy", sleepy)
	mux.HandleFunc("GET /over", handsOver)
	mux.Handle("GET /locked", new(lockedCounter))
	return mux
}

var routePaths = [...]string{"/fast", "/sleepy", "/over", "/locked"}

// get fetches url and reads the body to its end, so that the connection is
// free again.
func get(c *http.Client, url string) error {
	res, err := c.Get(url)
	if err != nil {
		return err
	}
	return drain(res, http.StatusOK)
}

func drain(res *http.Response, want int) error {
	_, err := io.Copy(io.Discard, res.Body)
	res.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the body of %s: %w", res.Request.URL, err)
	}
	if res.StatusCode != want {
		return fmt.Errorf("%s answered %s", res.Request.URL, res.Status)
	}
	return nil
}

func keepAliveClient(tlsConfig *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, TLSClientConfig: tlsConfig}, Timeout: 30 * time.Second}
}

// getRoutes is the client side of several scenarios.
func getRoutes(e *rig.Env, ctx context.Context, c *http.Client, base string, conns int, rest time.Duration) error {
	return rig.Crew(conns, func(i int) error {
		return rig.Pace(ctx, rest, func() error {
			p := routePaths[i%len(routePaths)]
			i++
			if err := get(c, base+p); err != nil {
				return err
			}
			e.Count("requests", 1)
			e.Count("requests "+p, 1)
			return nil
		})
	})
}

func http1(e *rig.Env) error {
	srv := httptest.NewServer(routes())
	defer srv.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	// Two connections exist before the trace begins, the others are born in it.
	if err := rig.Crew(2, func(int) error { return get(c, srv.URL+"/sleepy") }); err != nil {
		return err
	}
	return e.Record(func(ctx context.Context) error { return getRoutes(e, ctx, c, srv.URL, 6, time.Millisecond) })
}

func http1Close(e *rig.Env) error {
	srv := httptest.NewServer(routes())
	defer srv.Close()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	return e.Record(func(ctx context.Context) error { return getRoutes(e, ctx, c, srv.URL, 3, 2*time.Millisecond) })
}

func http1TLS(e *rig.Env) error {
	srv := httptest.NewTLSServer(routes())
	defer srv.Close()
	tlsConfig := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	c := keepAliveClient(tlsConfig)
	defer c.CloseIdleConnections()
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(i int) error {
			if i == 0 {
				return getRoutes(e, ctx, c, srv.URL, 4, time.Millisecond)
			}
			return rig.Pace(ctx, 20*time.Millisecond, func() error {
				oneShot := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: tlsConfig}, Timeout: 30 * time.Second}
				e.Count("handshakes", 1)
				e.Count("requests", 1)
				return get(oneShot, srv.URL+"/fast")
			})
		})
	})
}

func http1Pipelined(e *rig.Env) error {
	srv := httptest.NewServer(routes())
	defer srv.Close()
	addr := srv.Listener.Addr().String()
	var three strings.Builder
	for _, p := range []string{"/sleepy", "/fast", "/over"} {
		fmt.Fprintf(&three, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", p, addr)
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(int) error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return err
			}
			defer conn.Close()
			r := bufio.NewReader(conn)
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				if _, err := io.WriteString(conn, three.String()); err != nil {
					return err
				}
				for range 3 {
					res, err := http.ReadResponse(r, nil)
					if err != nil {
						return fmt.Errorf("reading a pipelined answer: %w", err)
					}
					if _, err := io.Copy(io.Discard, res.Body); err != nil {
						return err
					}
					res.Body.Close()
					e.Count("requests", 1)
				}
				return nil
			})
		})
	})
}

func readsBody(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	fmt.Fprintf(w, "%d bytes\n", n)
}

func ignoresBody(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "not read\n") }

func http1Body(e *rig.Env) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /read", readsBody)
	mux.HandleFunc("POST /ignore", ignoresBody)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c := keepAliveClient(nil)
	c.Transport.(*http.Transport).ExpectContinueTimeout = time.Second
	defer c.CloseIdleConnections()
	small, large := bytes.Repeat([]byte("s"), 200), bytes.Repeat([]byte("L"), 300<<10)
	send := func(path string, body io.Reader, expect bool) error {
		req, err := http.NewRequest("POST", srv.URL+path, body)
		if err != nil {
			return err
		}
		if expect {
			req.Header.Set("Expect", "100-continue")
		}
		res, err := c.Do(req)
		if err != nil {
			return err
		}
		e.Count("requests", 1)
		e.Count("requests "+path, 1)
		return drain(res, http.StatusOK)
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			return rig.Pace(ctx, 3*time.Millisecond, func() error {
				i++
				switch i % 6 {
				case 0:
					return send("/read", bytes.NewReader(small), false)
				case 1: // no length: chunked, and it comes in pieces
					pr, pw := io.Pipe()
					go func() {
						for range 3 {
							pw.Write(small)
							time.Sleep(200 * time.Microsecond)
						}
						pw.Close()
					}()
					return send("/read", pr, false)
				case 2:
					return send("/read", bytes.NewReader(large), false)
				case 3:
					return send("/read", bytes.NewReader(small), true)
				case 4:
					return send("/ignore", bytes.NewReader(small), false)
				default:
					return send("/read", http.NoBody, false)
				}
			})
		})
	})
}

func logging(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
	})
}

type authorizer struct{ next http.Handler }

func (a authorizer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") == "" {
		time.Sleep(50 * time.Microsecond)
	}
	a.next.ServeHTTP(w, r)
}

func http1Middleware(e *rig.Env) error {
	mux := routes()
	mux.Handle("GET /limited/", http.TimeoutHandler(http.StripPrefix("/limited", routes()), time.Second, "late"))
	public := httptest.NewServer(logging(authorizer{mux}))
	defer public.Close()
	private := httptest.NewServer(logging(routes()))
	defer private.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			base := [...]string{public.URL, public.URL + "/limited", private.URL}[i]
			return getRoutes(e, ctx, c, base, 2, time.Millisecond)
		})
	})
}

func takesOver(w http.ResponseWriter, _ *http.Request) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	io.WriteString(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	buf.Flush()
	for {
		line, err := buf.ReadString('\n')
		if err != nil {
			return
		}
		buf.WriteString(line)
		if buf.Flush() != nil {
			return
		}
	}
}

func sendsEvents(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	rc := http.NewResponseController(w)
	for i := range 5 {
		fmt.Fprintf(w, "data: %d\n\n", i)
		rc.Flush()
		time.Sleep(2 * time.Millisecond)
	}
}

func panics(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func http1Hijack(e *rig.Env) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /echo", takesOver)
	mux.HandleFunc("GET /events", sendsEvents)
	mux.HandleFunc("GET /panic", panics)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	upgrade := func(ctx context.Context) error {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		io.WriteString(conn, "GET /echo HTTP/1.1\r\nHost: lab\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		r := bufio.NewReader(conn)
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return fmt.Errorf("reading the upgrade's answer: %w", err)
			}
			if strings.TrimSpace(line) == "" {
				break
			}
		}
		e.Count("upgrades", 1)
		return rig.Pace(ctx, time.Millisecond, func() error {
			if _, err := io.WriteString(conn, "hello\n"); err != nil {
				return err
			}
			_, err := r.ReadString('\n')
			e.Count("echoes", 1)
			return err
		})
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			switch i {
			case 0:
				return upgrade(ctx)
			case 1:
				return rig.Pace(ctx, time.Millisecond, func() error {
					e.Count("streams", 1)
					return get(c, srv.URL+"/events")
				})
			default:
				return rig.Pace(ctx, 10*time.Millisecond, func() error {
					if err := get(c, srv.URL+"/panic"); err == nil {
						return fmt.Errorf("a handler that panicked was answered")
					}
					e.Count("panics", 1)
					return nil
				})
			}
		})
	})
}
