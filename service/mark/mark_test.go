//lint:file-ignore SA1019 a http.CloseNotifier must stay one

package mark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/trace"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/markname"
	"github.com/whylate/whylate/service/internal/must"
)

// TestIdle tests that a mark allocates nothing without a trace.
func TestIdle(t *testing.T) {
	if Active() {
		t.Skip("a trace is being recorded")
	}
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/", nil)
	var w http.ResponseWriter = httptest.NewRecorder()
	ctx := context.Background()
	f := func(context.Context) error { return nil }
	for name, call := range map[string]func(){
		"Handler": func() { h.ServeHTTP(w, r) },
		"Do":      func() { _ = Do(ctx, "job", f) },
		"Begin":   func() { m := Begin(GRPC, "m", ""); m.End("", OK) },
		"Span":    func() { Span([16]byte{1}, [8]byte{2}) },
	} {
		if n := testing.AllocsPerRun(100, call); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

// traced records a trace of f. Strings are in the trace as they are.
func traced(t *testing.T, f func()) string {
	t.Helper()
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	var b bytes.Buffer
	must.Do(t, trace.Start(&b))
	f()
	trace.Stop()
	return b.String()
}

// TestTexts tests the texts of requests with different outcomes.
func TestTexts(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("/any/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
	})
	mux.HandleFunc("/panics", func(http.ResponseWriter, *http.Request) { panic("no") })
	copies := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { mux.ServeHTTP(w, r.WithContext(r.Context())) })
	text := traced(t, func() {
		get := func(h http.Handler, method, path string) {
			defer func() { _ = recover() }()
			r := httptest.NewRequest(method, path, nil)
			r.Header.Set("Traceparent", parent)
			h.ServeHTTP(httptest.NewRecorder(), r)
		}
		get(Handler(mux), "GET", "/items/secret")
		get(Handler(mux), "BREW", "/any/secret")
		get(Handler(mux), "GET", "/nowhere/secret")
		get(Handler(mux), "POST", "/panics")
		get(Handler(copies), "PUT", "/any/x")
		get(Handler(copies, Mux(mux)), "DELETE", "/any/x")
		ctx := context.Background()
		for name, err := range map[string]error{"a": nil, "b": errors.New("x"), "c": fmt.Errorf("y: %w", context.Canceled), "d": context.DeadlineExceeded} {
			check.Equal(t, Do(ctx, "job "+name, func(context.Context) error { return err }), err, "Do returns")
		}
		func() {
			defer func() { _ = recover() }()
			_ = DoMessage(ctx, "one\nmessage", "nonsense", func(context.Context) error { panic("no") })
		}()
		Span([16]byte{0xab}, [8]byte{0xcd})
		m := Begin("two words", "n", parent+"-more")
		m.End("named", "two words")
		m.End("named", "again")
	})
	for _, want := range []string{
		"whylate.mark/1 begin http", "end http 2xx GET /items/{id}", "end http 4xx (other method) /any/", "end http 4xx GET (no route)",
		"end http panic POST /panics", "end http 4xx PUT (no route)", "end http 4xx DELETE /any/",
		"begin job job a", "end job ok job a", "end job error job b", "end job canceled job c", "end job timeout job d",
		"end message panic one_message", "00-ab000000000000000000000000000000-cd00000000000000-01", "end job unknown named", parent,
	} {
		check.True(t, strings.Contains(text, want), "the trace does not hold %q", want)
	}
	for _, excluded := range []string{"secret", "nonsense", parent + "-more", "again"} {
		check.False(t, strings.Contains(text, excluded), "the trace holds %q", excluded)
	}
}

// TestBounds tests that the number of names that a service makes the tracer store is
// bounded.
func TestBounds(t *testing.T) {
	var tab textTable
	last := ""
	for i := range 3 * maxNames {
		last = tab.beginText(Job, fmt.Sprintf("name %d of %s", i, strings.Repeat("é", markname.Max)))
	}
	check.True(t, len(tab.names) <= maxNames && tab.byKey.len() <= maxTexts,
		"%d names and %d texts are kept", len(tab.names), tab.byKey.len())
	check.Equal(t, last, "whylate.mark/1 begin job (others)", "the last one is written as")
	if got := tab.beginText(Job, "name 1 of "+strings.Repeat("é", markname.Max)); !strings.HasPrefix(got, "whylate.mark/1 begin job name 1 of é") || len(got) > markname.Max+40 || strings.ToValidUTF8(got, "?") != got {
		t.Errorf("a name that was there before is written as %q", got)
	}
}

// TestManyNames tests that names and texts beyond the maximum need no lock and no memory. The test
// holds the lock.
func TestManyNames(t *testing.T) {
	var tab textTable
	for i := range 2 * maxNames {
		tab.beginText(Job, fmt.Sprint("name ", i))
	}
	for i := range maxTexts {
		tab.endText(Job, fmt.Sprint("name ", i%maxNames), fmt.Sprint("status-", i/maxNames))
	}
	tab.endText(Job, othersName, OK)
	must.True(t, tab.byKey.closed.Load(), "%d texts are kept, and more may come", tab.byKey.len())
	tab.byKey.mu.Lock()
	defer tab.byKey.mu.Unlock()
	done := make(chan float64)
	go func() {
		for name, want := range map[string]string{
			"name 9999": "(others)", "name 7": "name 7", "": "", "two\nlines": "(others)", strings.Repeat("x", 1000): "(others)", "(others)": "(others)",
		} {
			check.Equal(t, tab.endText(Job, name, "late"), strings.TrimSpace("whylate.mark/1 end job late "+want), "%q is written as", name)
		}
		done <- testing.AllocsPerRun(100, func() { tab.beginText(Job, "name 9999") })
	}()
	select {
	case n := <-done:
		check.True(t, n <= 2, "a name that is not kept allocates %v times", n)
	case <-time.After(30 * time.Second):
		t.Error("a name that is not kept waits for the lock")
	}
}

// TestManyRoutes is TestManyNames for a handler.
func TestManyRoutes(t *testing.T) {
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Route(func(q *http.Request) string { return q.URL.Path })).(*handler)
	q := httptest.NewRequest("GET", "/", nil)
	for i := range 2 * maxTexts {
		q.URL.Path = fmt.Sprint("/", i)
		h.endingOf(q, 2) // adds it
		if e, second := h.endingOf(q, 2), h.endingOf(q, 2); *e != *second || e.name != "GET "+q.URL.Path || e.status != "2xx" || (e == second) != (i < maxTexts) {
			t.Fatalf("route %d ends as %+v, then as %+v", i, e, second)
		}
	}
	h.endings.mu.Lock()
	defer h.endings.mu.Unlock()
	done := make(chan bool)
	go func() { h.endingOf(q, 2); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Error("a route that is not kept waits for the lock")
	}
}

// TestWriter tests that a marked handler's ResponseWriter has the methods of the server's,
// on both of net/http's servers.
func TestWriter(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	must.Do(t, trace.Start(io.Discard))
	defer trace.Stop()
	canFlush := func(w http.ResponseWriter) string {
		_, f := w.(http.Flusher)
		_, h := w.(http.Hijacker)
		_, r := w.(io.ReaderFrom)
		_, p := w.(http.Pusher)
		_, c := w.(closeNotifier)
		_, s := w.(io.StringWriter)
		return fmt.Sprint(f, h, r, p, c, s, http.NewResponseController(w).Flush())
	}
	// A flush answers the client before the handler is done: what a writer can
	// is handed over by a channel, and the client reads to the body's end.
	can := make(chan string, 1)
	note := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { can <- canFlush(w) })
	for _, http2 := range []bool{false, true} {
		mux := http.NewServeMux()
		mux.Handle("/plain", note)
		mux.Handle("/marked", Handler(note))
		mux.Handle("/hijacked", Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				conn.Close()
			}
		})))
		srv := httptest.NewUnstartedServer(mux)
		srv.EnableHTTP2 = http2
		srv.StartTLS()
		paths := []string{"/plain", "/marked"}
		writers := map[string]string{}
		if !http2 {
			paths = append(paths, "/hijacked")
		}
		for _, path := range paths {
			res := must.Have(srv.Client().Get(srv.URL + path))(t)
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Errorf("%s: %v", path, err)
			}
			res.Body.Close()
			if path != "/hijacked" {
				writers[path] = <-can
			}
			check.True(t, res.StatusCode == 200 && (res.ProtoMajor == 2) == http2, "%s: %s over HTTP/%d", path, res.Status, res.ProtoMajor)
		}
		srv.Close()
		if plain, marked := writers["/plain"], writers["/marked"]; plain != marked || !strings.HasSuffix(plain, "<nil>") {
			t.Errorf("HTTP/2 %v: a writer has %s, a marked one %s", http2, plain, marked)
		}
	}
}

// TestWatch tests that one watcher is called for each request, traced or not.
func TestWatch(t *testing.T) {
	var ended []Ended
	stop, ok := Watch(func(e Ended) { ended = append(ended, e) })
	must.True(t, ok, "somebody else watches")
	if _, ok := Watch(func(Ended) {}); ok {
		t.Error("two watch")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /x", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) })
	Handler(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/x", nil))
	stop()
	_ = Do(context.Background(), "unseen", func(context.Context) error { return nil })
	if len(ended) != 1 || ended[0].Name != "GET /x" || ended[0].Status != "5xx" || ended[0].Kind != HTTP || ended[0].Took <= 0 || ended[0].Began.IsZero() {
		t.Errorf("seen %+v", ended)
	}
}

func BenchmarkIdle(b *testing.B) {
	h := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}

func BenchmarkTraced(b *testing.B) {
	must.Do(b, trace.Start(io.Discard))
	defer trace.Stop()
	// As a mux does.
	h := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.Pattern = "GET /items/{id}" }))
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		r.Pattern = ""
		h.ServeHTTP(w, r)
	}
}

// BenchmarkTracedLogs measures the runtime's cost of a mark's two events, the lower bound of
// a mark's cost.
func BenchmarkTracedLogs(b *testing.B) {
	must.Do(b, trace.Start(io.Discard))
	defer trace.Stop()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		trace.Log(ctx, "whylate.mark/1 begin http", "")
		trace.Log(ctx, "whylate.mark/1 end http 2xx GET /items/{id}", "")
	}
}

func BenchmarkTracedDo(b *testing.B) {
	must.Do(b, trace.Start(io.Discard))
	defer trace.Stop()
	ctx := context.Background()
	f := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		_ = Do(ctx, "job", f)
	}
}

// BenchmarkTracedBeside compares marks with the runtime's two logs alone, which are written from
// an equally deep stack. They alternate, and it reports medians by the thread's CPU clock, so
// that other work on the machine matters little.
func BenchmarkTracedBeside(b *testing.B) {
	must.Do(b, trace.Start(io.Discard))
	defer trace.Stop()
	ctx := context.Background()
	r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
	deep := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		func() {
			trace.Log(ctx, "whylate.mark/1 begin http", "")
			trace.Log(ctx, "whylate.mark/1 end http 2xx GET /items/{id}", "")
		}()
	})
	marked := Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { r.Pattern = "GET /items/{id}" }))
	f := func(context.Context) error { return nil }
	handle := func() { r.Pattern = ""; marked.ServeHTTP(w, r) }
	ways := []struct {
		name    string
		watched bool
		f       func()
	}{
		{"logs", false, func() { deep.ServeHTTP(w, r) }},
		{"handler", false, handle},
		{"do", false, func() { _ = Do(ctx, "job", f) }},
		{"watched", true, handle},
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const turn = 2000
	took := make([][]float64, len(ways))
	ratios := make([][]float64, len(ways))
	for b.Loop() {
		for i, way := range ways {
			stop := func() {}
			if way.watched {
				stop, _ = Watch(func(Ended) {})
			}
			before, ok := cputime.Thread()
			for range turn {
				way.f()
			}
			after, _ := cputime.Thread()
			stop()
			if !ok {
				b.Skip("the CPU time of a thread is not known here")
			}
			took[i] = append(took[i], float64(after-before)/turn)
			ratios[i] = append(ratios[i], took[i][len(took[i])-1]/took[0][len(took[0])-1])
		}
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	b.ReportMetric(0, "ns/op")
	for i, way := range ways {
		b.ReportMetric(median(took[i]), way.name+"-ns")
		if i > 0 {
			b.ReportMetric(median(ratios[i]), way.name+"/logs")
		}
	}
}

// BenchmarkManyNames measures marks of a service with more than maxNames names, with a known and
// a new name, on several goroutines.
func BenchmarkManyNames(b *testing.B) {
	must.Do(b, trace.Start(io.Discard))
	defer trace.Stop()
	names := make([]string, 10*maxNames)
	for i := range names {
		names[i] = fmt.Sprintf("job number %d", i)
		m := Begin(Job, names[i], "")
		m.End("", OK)
	}
	handled := Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), Route(func(q *http.Request) string { return q.URL.Path }))
	for _, c := range []struct {
		name  string
		names []string
	}{{"known", names[:maxNames/2]}, {"unknown", names[2*maxNames:]}} {
		for _, nameCount := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/%d", c.name, nameCount), func(b *testing.B) {
				b.SetParallelism(nameCount)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						m := Begin(Job, c.names[i%len(c.names)], "")
						m.End("", OK)
					}
				})
			})
			b.Run(fmt.Sprintf("handler/%s/%d", c.name, nameCount), func(b *testing.B) {
				b.SetParallelism(nameCount)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					w, q := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
					for i := 0; pb.Next(); i++ {
						q.URL.Path = c.names[i%len(c.names)]
						handled.ServeHTTP(w, q)
					}
				})
			})
		}
	}
}
