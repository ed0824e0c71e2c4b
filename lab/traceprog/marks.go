package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
	"github.com/whylate/whylate/service/mark"
)

func markScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "marked", Run: marked, Doc: "requests and jobs marked by service/mark, with the server's own log; other libraries' tasks and regions beside"},
	}
}

// serverLog is what the server itself measures of each request: a fact "ns ROUTE STATUS N" for each, in order of the end.
type serverLog struct {
	mu      sync.Mutex
	on      bool
	entries []logEntry
}

type logEntry struct {
	route, status string
	took          time.Duration
}

// add takes little time, because it is a part of what the mark measures.
func (l *serverLog) add(route, status string, took time.Duration) {
	l.mu.Lock()
	if l.on {
		l.entries = append(l.entries, logEntry{route, status, took})
	}
	l.mu.Unlock()
}

func (l *serverLog) write(e *rig.Env) {
	for i, x := range l.entries {
		e.Count(fmt.Sprintf("ns %s %s %d", x.route, x.status, i), int64(x.took))
	}
}

var statusClasses = [...]string{"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"}

// status is a response's, for a log.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(code int) {
	w.status = code
	w.ResponseWriter.WriteHeader(code)
}

func (l *serverLog) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w, status: 200}
		began := time.Now()
		ok := false
		defer func() {
			took := time.Since(began)
			status := statusClasses[sw.status/100]
			if !ok {
				status = "panic"
			}
			route := r.Pattern
			if route == "" {
				route = r.Method + " (no route)"
			}
			l.add(route, status, took)
		}()
		next.ServeHTTP(sw, r)
		ok = true
	})
}

func marked(e *rig.Env) error {
	l := &serverLog{entries: make([]logEntry, 0, 1<<16)}
	mux := routes()
	mux.HandleFunc("GET /tasked", func(w http.ResponseWriter, r *http.Request) {
		// As OpenTelemetry's SDK does for each span.
		ctx, task := trace.NewTask(r.Context(), "span of a tracer")
		defer task.End()
		trace.WithRegion(ctx, "region", func() { time.Sleep(200 * time.Microsecond) })
		io.WriteString(w, "tasked\n")
	})
	mux.HandleFunc("GET /fails", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) })
	mux.HandleFunc("GET /panics", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	srv := httptest.NewUnstartedServer(mark.Handler(l.handler(mux)))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	defer srv.Close()
	c := keepAliveClient(nil)
	defer c.CloseIdleConnections()
	if err := get(c, srv.URL+"/fast"); err != nil { // its connection exists before the trace
		return err
	}
	l.mu.Lock()
	l.on = true
	l.mu.Unlock()
	paths := []string{"/fast", "/fast", "/fast", "/sleepy", "/over", "/locked", "/tasked", "/fails", "/nowhere", "/panics"}
	var n atomic.Int64
	defer l.write(e)
	return e.Record(func(ctx context.Context) error {
		return errors.Join(
			rig.Crew(4, func(int) error {
				return rig.Pace(ctx, 500*time.Microsecond, func() error {
					i := n.Add(1)
					req, err := http.NewRequest("GET", srv.URL+paths[int(i)%len(paths)], nil)
					if err != nil {
						return err
					}
					if i%4 == 0 {
						req.Header.Set("traceparent", fmt.Sprintf("00-%032x-%016x-01", i, 0xabc000+i))
					}
					res, err := c.Do(req)
					if err != nil {
						if paths[int(i)%len(paths)] == "/panics" {
							return nil
						}
						return err
					}
					_, err = io.Copy(io.Discard, res.Body)
					res.Body.Close()
					return err
				})
			}),
			rig.Crew(1, func(int) error {
				for i := range 20 {
					status := mark.OK
					err := mark.Do(ctx, "nightly job", func(context.Context) error {
						began := time.Now()
						time.Sleep(time.Millisecond)
						if i%5 == 4 {
							status = mark.Error
						}
						l.add("nightly job", status, time.Since(began))
						if status == mark.Error {
							return errors.New("it failed")
						}
						return nil
					})
					if (err != nil) != (status == mark.Error) {
						return fmt.Errorf("the job's error is %v", err)
					}
				}
				return nil
			}),
		)
	})
}
