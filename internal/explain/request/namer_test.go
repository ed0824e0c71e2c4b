package request

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/timeline/timelinetest"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// libraryStack returns the stack of a library's functions as in a trace, innermost first. Their file names contain the path and
// version of the library's module.
func libraryStack(fns ...string) []string {
	out := make([]string, len(fns))
	for i, f := range fns {
		parts := strings.Split(f, "/")
		out[i] = f + "@/go/pkg/mod/" + strings.Join(parts[:len(parts)-1], "/") + "@v1.2.3/file.go:7"
	}
	return out
}

func joinFrames(parts ...any) []string {
	var out []string
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			out = append(out, p)
		case []string:
			out = append(out, p...)
		}
	}
	return out
}

var namedStacks = []struct {
	name  string
	stack []string
	want  string // the frame that names the group, "" for none
}{
	{"a handler under a mux", joinFrames("time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", "net/http.(*ServeMux).ServeHTTP"), "main.slow"},
	{"a helper of the handler", joinFrames("time.Sleep", "main.query", "main.slow", "net/http.HandlerFunc.ServeHTTP"), "main.slow"},
	{"under own middleware", joinFrames("time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", "main.logging.func1", "net/http.HandlerFunc.ServeHTTP", "main.auth.ServeHTTP"), "main.slow"},
	{"in own middleware", joinFrames("time.Sleep", "main.auth.ServeHTTP"), "main.auth.ServeHTTP"},
	{"chi", joinFrames("time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", libraryStack("github.com/go-chi/chi/v5.(*Mux).routeHTTP"), "net/http.HandlerFunc.ServeHTTP", libraryStack("github.com/go-chi/chi/v5/middleware.Logger.func1"), "net/http.HandlerFunc.ServeHTTP", libraryStack("github.com/go-chi/chi/v5.(*Mux).ServeHTTP")), "main.slow"},
	{"gorilla", joinFrames("time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", libraryStack("github.com/gorilla/mux.(*Router).ServeHTTP")), "main.slow"},
	{"gin", joinFrames("time.Sleep", "main.slow", libraryStack("github.com/gin-gonic/gin.(*Context).Next", "github.com/gin-gonic/gin.LoggerWithConfig.func1", "github.com/gin-gonic/gin.(*Context).Next", "github.com/gin-gonic/gin.(*Engine).handleHTTPRequest", "github.com/gin-gonic/gin.(*Engine).ServeHTTP")), "main.slow"},
	{"gin under own middleware", joinFrames("time.Sleep", "main.slow", libraryStack("github.com/gin-gonic/gin.(*Context).Next"), "main.auth", libraryStack("github.com/gin-gonic/gin.(*Context).Next", "github.com/gin-gonic/gin.(*Engine).handleHTTPRequest", "github.com/gin-gonic/gin.(*Engine).ServeHTTP")), "main.slow"},
	{"echo", joinFrames("time.Sleep", "main.slow", libraryStack("github.com/labstack/echo/v4.(*Echo).add.func1", "github.com/labstack/echo/v4/middleware.RecoverWithConfig.func1.1", "github.com/labstack/echo/v4.(*Echo).ServeHTTP")), "main.slow"},
	{"the handler's function in a singleflight group", joinFrames("time.Sleep", "main.(*cache).load", libraryStack("golang.org/x/sync/singleflight.(*Group).doCall", "golang.org/x/sync/singleflight.(*Group).Do"), "main.(*cache).get", "net/http.HandlerFunc.ServeHTTP"), "main.(*cache).get"},
	{"the handler's function in a retry loop", joinFrames("time.Sleep", "main.(*client).call", libraryStack("github.com/cenkalti/backoff/v4.Retry"), "main.(*server).order", "net/http.HandlerFunc.ServeHTTP", libraryStack("github.com/go-chi/chi/v5.(*Mux).ServeHTTP")), "main.(*server).order"},
	{"a library's handler", joinFrames("time.Sleep", libraryStack("github.com/prometheus/client_golang/prometheus/promhttp.HandlerForTransactional.func1"), "net/http.HandlerFunc.ServeHTTP"), "github.com/prometheus/client_golang/prometheus/promhttp.HandlerForTransactional.func1"},
	{"a vendored router", joinFrames("time.Sleep", "main.slow", "net/http.HandlerFunc.ServeHTTP", "github.com/gorilla/mux.(*Router).ServeHTTP@/home/u/shop/vendor/github.com/gorilla/mux/mux.go:212"), "main.slow"},
	{"only the standard library", joinFrames("internal/poll.(*FD).Read", "net/http/httputil.(*ReverseProxy).ServeHTTP"), "net/http/httputil.(*ReverseProxy).ServeHTTP"},
	{"a handler of the standard library's", joinFrames("fmt.Fprintln", "net/http.NotFound", "net/http.HandlerFunc.ServeHTTP", "net/http.(*ServeMux).ServeHTTP"), "net/http.NotFound"},
	{"connect", joinFrames("time.Sleep", "shop/api.(*Cart).Add", libraryStack("connectrpc.com/connect.NewUnaryHandler[...].func1", "connectrpc.com/connect.(*Handler).ServeHTTP"), "shop/pb/pbconnect.NewCartHandler.func1@/home/u/shop/pb/pbconnect/cart.connect.go:140", "net/http.HandlerFunc.ServeHTTP", "net/http.(*ServeMux).ServeHTTP"), "shop/api.(*Cart).Add"},
	{"twirp", joinFrames("time.Sleep", "main.(*offers).Best", "shop/pb.(*offersServer).serveBestJSON@/home/u/shop/pb/offers.twirp.go:140", "shop/pb.(*offersServer).ServeHTTP@/home/u/shop/pb/offers.twirp.go:99", "net/http.(*ServeMux).ServeHTTP"), "main.(*offers).Best"},
	{"only what is generated", joinFrames("internal/poll.(*FD).Read", libraryStack("connectrpc.com/connect.(*Handler).ServeHTTP"), "shop/pb/pbconnect.NewCartHandler.func1@/home/u/shop/pb/pbconnect/cart.connect.go:140", "net/http.HandlerFunc.ServeHTTP", "net/http.(*ServeMux).ServeHTTP"), "shop/pb/pbconnect.NewCartHandler.func1"},
	{"no handler yet", nil, ""},
	{"the mux looks for the handler", joinFrames("net/http.(*routingNode).match", "net/http.(*ServeMux).findHandler", "net/http.(*ServeMux).ServeHTTP"), ""},
}

func TestNamesOfHTTPHandlers(t *testing.T) {
	builder := tracetext.New(26)
	thread := builder.Thread(1)
	clock := int64(100)
	for _, c := range namedStacks {
		thread.Syscall(clock, joinFrames(c.stack, "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve")...)
		thread.SyscallEnd(clock + 50)
		clock += 100
	}
	thread.Block(clock, "forever", "main.end")
	for i, h := range handlersOf(t, builder, len(namedStacks)) {
		if c := namedStacks[i]; h != c.want {
			t.Errorf("%s: named %q, want %q", c.name, h, c.want)
		}
	}
}

// handlersOf names the stacks of the first n system calls of goroutine 1.
func handlersOf(t *testing.T, builder *tracetext.Builder, n int) []string {
	t.Helper()
	data := must.Have(builder.Bytes())(t)
	win, syms := timelinetest.DecodeWindow(t, data)
	namer := NewNamer(syms)
	var out []string
	for _, s := range win.Spans(1, 0, 1<<62, nil) {
		if s.State != timeline.Syscall {
			continue
		}
		if h := namer.HandlerOf(s.Stack); h.Frame != 0 {
			out = append(out, syms.String(syms.Frame(h.Frame).Func))
		} else {
			out = append(out, "")
		}
	}
	must.Equal(t, len(out), n, "system calls")
	return out
}

// TestObservers: a request for a profile or a flight recording observes the service; other handlers of those packages
// do not.
func TestObservers(t *testing.T) {
	const flight = "github.com/whylate/whylate/service/flight."
	builder := tracetext.New(26)
	thread := builder.Thread(1)
	stacks := []struct {
		fn   string
		want bool
	}{{"net/http/pprof.Trace", true}, {flight + "(*Recorder).ServeHTTP", true}, {"main.flight.ServeHTTP", false}, {flight + "(*Recorder).Capture", false}}
	for i, s := range stacks {
		thread.Syscall(int64(100*i+100), "os.(*File).Write", s.fn, "net/http.(*ServeMux).ServeHTTP", "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve")
		thread.SyscallEnd(int64(100*i + 150))
	}
	thread.Block(1000, "forever", "main.end")
	data := must.Have(builder.Bytes())(t)
	win, syms := timelinetest.DecodeWindow(t, data)
	namer := NewNamer(syms)
	n := 0
	for _, s := range win.Spans(1, 0, 1<<62, nil) {
		if s.State != timeline.Syscall {
			continue
		}
		if h := namer.HandlerOf(s.Stack); h.IsObserver != stacks[n].want {
			t.Errorf("%s: an observer %v", stacks[n].fn, h.IsObserver)
		}
		n++
	}
	check.Equal(t, n, len(stacks), "system calls")
}

func TestNamesOfGRPCMethods(t *testing.T) {
	grpc := func(fns ...string) []string { return libraryStack(fns...) }
	server := grpc("google.golang.org/grpc.(*Server).processUnaryRPC", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).serveStreams.func2.1")
	newer := grpc("google.golang.org/grpc.(*Server).register.(*Server).wrapUnaryHandler.func1", "google.golang.org/grpc.(*Server).processRPC", "google.golang.org/grpc.(*Server).handleStream", "google.golang.org/grpc.(*Server).serveStreams.func2.1")
	cases := []struct {
		name  string
		stack []string
		want  string
	}{
		{"generated", joinFrames("time.Sleep", "main.(*shop).Order", "example.com/pb._Shop_Order_Handler", server), "main.(*shop).Order"},
		{"generated, under an interceptor", joinFrames("time.Sleep", "main.(*shop).Order", "example.com/pb._Shop_Order_Handler.func1", "main.logged", "example.com/pb._Shop_Order_Handler", server), "main.(*shop).Order"},
		{"in the interceptor", joinFrames("time.Sleep", "main.logged", "example.com/pb._Shop_Order_Handler", server), "example.com/pb._Shop_Order_Handler"},
		{"a helper of the method", joinFrames("time.Sleep", "main.query", "main.(*shop).Order", "example.com/pb._Shop_Order_Handler", newer), "main.(*shop).Order"},
		{"described by hand", joinFrames("time.Sleep", "main.(*shop).Order", "main.unary.func1", newer), "main.(*shop).Order"},
		{"described by hand, under an interceptor", joinFrames("time.Sleep", "main.(*shop).Order", "main.unary.func1.1", "main.logged", "main.unary.func1", server), "main.(*shop).Order"},
		{"in the adapter", joinFrames("time.Sleep", "main.unary.func1", newer), "main.unary.func1"},
	}
	builder := tracetext.New(26)
	thread := builder.Thread(1)
	clock := int64(100)
	for _, c := range cases {
		thread.Syscall(clock, c.stack...)
		thread.SyscallEnd(clock + 50)
		clock += 100
	}
	thread.Block(clock, "forever", "main.end")
	for i, h := range handlersOf(t, builder, len(cases)) {
		if c := cases[i]; h != c.want {
			t.Errorf("%s: named %q, want %q", c.name, h, c.want)
		}
	}
}

// TestNamesAfterMainModule: the code of a service that was built as a versioned module is in the directory of its main
// function. It fails if a stack that was named before the main function appeared keeps a library's name.
func TestNamesAfterMainModule(t *testing.T) {
	clock := func(fn string) string { return fn + "@/go/pkg/mod/example.com/svc@v1.2.3/file.go:7" }
	builder := tracetext.New(26)
	thread := builder.Thread(1)
	thread.Syscall(100, "os.read", clock("example.com/svc/api.list"), clock("example.com/svc/api.(*Server).ServeHTTP"), "net/http.serverHandler.ServeHTTP", "net/http.(*conn).serve")
	thread.SyscallEnd(150)
	thread.Block(200, "forever", "main.main@/go/pkg/mod/example.com/svc@v1.2.3/main.go:3")
	data := must.Have(builder.Bytes())(t)
	win, syms := timelinetest.DecodeWindow(t, data)
	namer := NewNamer(syms)
	var stack tracefmt.StackID
	for _, s := range win.Spans(1, 0, 1<<62, nil) {
		if s.State == timeline.Syscall {
			stack = s.Stack
		}
	}
	before := namer.HandlerOf(stack).Rank
	namer.FindMainModule()
	h := namer.HandlerOf(stack)
	if name := syms.String(syms.Frame(h.Frame).Func); name != "example.com/svc/api.(*Server).ServeHTTP" || h.Rank <= before {
		t.Errorf("named %q with rank %d, %d before main was known", name, h.Rank, before)
	}
}

// TestTasksInstead: a task replaces the request if it covers at least half of it, or if its name does so for most. Its
// time after the request does not count, and the task has the bounds of the request.
func TestTasksInstead(t *testing.T) {
	type bounds struct{ start, end int64 } // of the task in a request from 0 to 100, one after the other
	for _, c := range []struct {
		tasks []bounds
		want  Kind
	}{
		{[]bounds{{20, 100}}, Task}, {[]bounds{{80, 100}}, HTTP1}, {[]bounds{{80, 1000}}, HTTP1}, {[]bounds{{50, 1000}}, Task},
		{[]bounds{{20, 100}, {10, 90}, {80, 100}}, Task}, {[]bounds{{80, 100}, {70, 90}, {20, 100}}, HTTP1},
	} {
		tasks := &taskSource{ended: make(map[uint64]*[]endedTask), represents: make(map[tracefmt.StringID]bool)}
		requests := new(collector)
		for i, b := range c.tasks {
			start, id := int64(2000*i), uint64(i)
			begin := openAt(start)
			tasks.ended[id] = &[]endedTask{{openRequest: openAt(start + b.start), request: Request{Kind: Task, G: id, Name: 1, End: start + b.end}}}
			must.True(t, tasks.emitInstead(nil, &begin, Request{Kind: HTTP1, G: id, End: start + 100}),
				"the request around the task %+v is not deferred", b)
		}
		tasks.finishGeneration(requests, nil)
		for _, r := range requests.emitted {
			check.True(t, r.Kind == c.want && r.Start%2000 == 0 && r.End == r.Start+100,
				"tasks %+v in requests of 100 give the request %+v", c.tasks, r)
		}
		check.True(t, len(requests.emitted) == len(c.tasks), "%d requests for %d", len(requests.emitted), len(c.tasks))
	}
}
