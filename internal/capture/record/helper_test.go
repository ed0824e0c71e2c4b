package record

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"os/exec"
	rpprof "runtime/pprof"
	rtrace "runtime/trace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	xtrace "golang.org/x/exp/trace"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// A process has one execution tracer and one CPU profiler, so each test that really records starts a separate process:
// this test program as a server.

const serviceEnv = "WHYLATE_TEST_SERVICE"

// A service configures such a process.
type service struct {
	Burn         bool          // keep one CPU busy, and allocate
	WriteTimeout time.Duration // of the http.Server
	HideWriter   bool          // wrap the ResponseWriter so that pprof cannot reach the connection's deadline
	Tracing      bool          // a trace is being taken already
	Profiling    bool          // a CPU profile is being taken already
	IndexOnly    bool          // register pprof.Index alone, as some services do
	Prefix       string        // path in front of /debug/pprof
}

func TestMain(m *testing.M) {
	if conf := os.Getenv(serviceEnv); conf != "" {
		if err := serve(conf); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if conf := os.Getenv(clientEnv); conf != "" {
		runClient(conf)
		return
	}
	flag.Parse()
	// The tests mostly wait for recordings to end; as many as there are processors would make them wait in line.
	// A fuzzer does not wait, and takes this as its number of processes.
	if flag.Lookup("test.fuzz").Value.String() == "" {
		if err := flag.Set("test.parallel", "24"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func serve(conf string) error {
	var s service
	if err := json.Unmarshal([]byte(conf), &s); err != nil {
		return err
	}
	if s.Tracing {
		if err := rtrace.Start(io.Discard); err != nil {
			return err
		}
	}
	if s.Profiling {
		if err := rpprof.StartCPUProfile(io.Discard); err != nil {
			return err
		}
	}
	mux := http.NewServeMux()
	base := s.Prefix + "/debug/pprof/"
	var log eventLog
	mux.HandleFunc(base, pprof.Index)
	if !s.IndexOnly {
		mux.HandleFunc(base+"cmdline", pprof.Cmdline)
		mux.HandleFunc(base+"symbol", pprof.Symbol)
		mux.HandleFunc(base+"profile", log.wrap("profile", pprof.Profile))
		mux.HandleFunc(base+"trace", log.wrap("trace", pprof.Trace))
		mux.HandleFunc(base+"allocs", log.wrap("allocs", pprof.Handler("allocs").ServeHTTP))
	}
	mux.HandleFunc("/log", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, log.String()) })
	var h http.Handler = mux
	if s.HideWriter {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mux.ServeHTTP(struct {
				http.ResponseWriter
				http.Flusher
			}{w, w.(http.Flusher)}, r)
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: h, WriteTimeout: s.WriteTimeout}
	go srv.Serve(l)
	if s.Burn {
		go useCPU()
	}
	fmt.Println(l.Addr())
	io.Copy(io.Discard, os.Stdin) // until the test closes it or dies
	return nil
}

// An eventLog records when handlers begin and end.
type eventLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *eventLog) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.WriteString(s + "\n")
}

func (l *eventLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *eventLog) wrap(name string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l.add("begin " + name + " " + r.FormValue("seconds"))
		defer l.add("end " + name)
		h(w, r)
	}
}

var sink atomic.Pointer[[]byte]

// useCPU keeps a CPU busy. Its allocations cause garbage collections: the allocation profile has the
// state at the last but one collection, so without them it would be empty.
func useCPU() {
	sum := sha256.Sum256(nil)
	for i := 0; ; i++ {
		sum = sha256.Sum256(sum[:])
		if i%1000 == 0 {
			b := make([]byte, 1<<20)
			sink.Store(&b)
		}
	}
}

// A process is a running service.
type process struct {
	addr string
	cmd  *exec.Cmd
}

func start(t testing.TB, s service) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("records a service for seconds")
	}
	conf := must.Have(json.Marshal(s))(t)
	exe := must.Have(os.Executable())(t)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serviceEnv+"="+string(conf))
	cmd.Stderr = t.Output()
	stdin := must.Have(cmd.StdinPipe())(t)
	stdout := must.Have(cmd.StdoutPipe())(t)
	must.Do(t, cmd.Start())
	p := &process{cmd: cmd}
	t.Cleanup(func() {
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	unstarted := time.AfterFunc(time.Minute, func() {
		if cmd.Process.Signal(syscall.SIGQUIT) != nil { // prints its stacks, where the system has that signal
			_ = cmd.Process.Kill()
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	unstarted.Stop()
	if err != nil {
		_ = cmd.Wait() // its last output is part of the test's
		t.Fatal("the service did not start:", err, cmd.ProcessState)
	}
	p.addr = strings.TrimSpace(line)
	return p
}

// A traceSummary is the content of a trace by the reference reader.
type traceSummary struct {
	events, samples int
	first, last     xtrace.Time
	err             error // nil: read to its end
}

func readTrace(data []byte) traceSummary {
	var c traceSummary
	r, err := xtrace.NewReader(bytes.NewReader(data))
	if err != nil {
		c.err = err
		return c
	}
	for {
		ev, err := r.ReadEvent()
		if err == io.EOF {
			return c
		}
		if err != nil {
			c.err = err
			return c
		}
		if c.events == 0 {
			c.first = ev.Time()
		}
		c.last = ev.Time()
		c.events++
		if ev.Kind() == xtrace.EventStackSample {
			c.samples++
		}
	}
}

func (c traceSummary) duration() time.Duration { return c.last.Sub(c.first) }

// cannedTrace returns a real trace of this process, for servers that imitate pprof.
var cannedTrace = sync.OnceValue(func() []byte {
	var buf bytes.Buffer
	if err := rtrace.Start(&buf); err != nil {
		panic(err)
	}
	time.Sleep(time.Millisecond)
	rtrace.Stop()
	return buf.Bytes()
})

// imitation answers like pprof with the canned trace after the requested duration. Profiles are gzip
// headers.
func imitation() http.Handler {
	mux := http.NewServeMux()
	wait := func(r *http.Request) {
		seconds := 1
		fmt.Sscan(r.FormValue("seconds"), &seconds)
		select {
		case <-time.After(time.Duration(seconds) * time.Second):
		case <-r.Context().Done():
		}
	}
	mux.HandleFunc("/debug/pprof/trace", func(w http.ResponseWriter, r *http.Request) {
		trace := cannedTrace()
		w.Write(trace[:len(trace)/2])
		w.(http.Flusher).Flush()
		wait(r)
		w.Write(trace[len(trace)/2:])
	})
	profile := func(w http.ResponseWriter, r *http.Request) {
		wait(r)
		w.Write([]byte{0x1f, 0x8b, 8, 0})
	}
	mux.HandleFunc("/debug/pprof/profile", profile)
	mux.HandleFunc("/debug/pprof/allocs", profile)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	return mux
}

// quickOptions returns options for one second and short timeouts.
func quickOptions() Options {
	return Options{Duration: time.Second, NoCPU: true, NoAllocs: true, Proxy: "none"}
}

// record records a whole trace and returns it.
func record(t testing.TB, target string, opt Options) ([]byte, Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	s, err := Open(ctx, target, opt)
	if err != nil {
		return nil, Result{}, err
	}
	defer s.Close()
	data, err := io.ReadAll(s)
	return data, s.Result(), err
}

// wantKind fails unless err is an *Error of that kind whose message has all the texts.
func wantKind(t testing.TB, err error, kind Kind, texts ...string) {
	t.Helper()
	e, ok := err.(*Error)
	must.True(t, ok, "error %v (%T), want one of kind %s", err, err, kind)
	check.True(t, e.Kind == kind, "kind %s, want %s: %v", e.Kind, kind, e)
	for _, text := range texts {
		check.True(t, strings.Contains(e.Error(), text), "message %q\nlacks %q", e.Error(), text)
	}
}

func hasWarning(r Result, code string) bool {
	return slices.ContainsFunc(r.Warnings, func(w bundle.Warning) bool { return w.Code == code })
}
