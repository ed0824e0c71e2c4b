//go:build go1.25

package service

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime/trace"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/debugz"
	"github.com/whylate/whylate/service/flight"
	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/pool"
	"github.com/whylate/whylate/service/probe"
	"github.com/whylate/whylate/service/redact"
	"github.com/whylate/whylate/service/tune"
)

// child runs the calling test in a separate process, which a panic in any goroutine would end. It returns true in that process.
func child(t *testing.T) bool {
	t.Helper()
	const variable = "WHYLATE_TEST_HOSTILE"
	if os.Getenv(variable) != "" {
		return true
	}
	self := must.Have(os.Executable())(t)
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	return false
}

// eventually waits until done reports true. The test's own time limit ends it otherwise.
func eventually(done func() bool) {
	for !done() {
		time.Sleep(time.Millisecond)
	}
}

// panicking is a logger's handler, a transport and a source of random numbers, with which a service may replace the default ones.
type panicking struct{ calls *atomic.Int64 }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (p panicking) Handle(context.Context, slog.Record) error {
	p.calls.Add(1)
	panic("in the logger")
}
func (p panicking) WithAttrs([]slog.Attr) slog.Handler { return p }
func (p panicking) WithGroup(string) slog.Handler      { return p }

func (panicking) RoundTrip(*http.Request) (*http.Response, error) {
	panic("in the default transport")
}
func (panicking) Write([]byte) (int, error) { panic("in the log") }

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no random numbers") }

// armedFS is a cgroup hierarchy that panics once it is armed.
type armedFS struct {
	fstest.MapFS
	armed  atomic.Bool
	panics atomic.Int64
}

func (f *armedFS) Open(name string) (fs.File, error) {
	if f.armed.Load() {
		f.panics.Add(1)
		panic("in Open")
	}
	return f.MapFS.Open(name)
}

func (f *armedFS) ReadFile(name string) ([]byte, error) {
	if f.armed.Load() {
		f.panics.Add(1)
		panic("in ReadFile")
	}
	return f.MapFS.ReadFile(name)
}

func newArmedFS() *armedFS {
	return &armedFS{MapFS: fstest.MapFS{
		"proc/self/cgroup":           {Data: []byte("0::/app\n")},
		"proc/self/mountinfo":        {Data: []byte("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n")},
		"sys/fs/cgroup/cgroup.procs": {},
		"sys/fs/cgroup/app/cpu.max":  {Data: []byte("250000 100000\n")},
		"sys/fs/cgroup/app/cpu.stat": {Data: []byte("usage_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 7000\n")},
	}}
}

// TestHostileGlobals starts all components in a service that has replaced the standard library's variables: they must work
// normally, send a recording, and stop.
func TestHostileGlobals(t *testing.T) {
	if !child(t) {
		return
	}
	var sent atomic.Int64
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		if _, err := io.Copy(io.Discard, q.Body); err == nil {
			sent.Add(1)
		}
	}))
	defer collector.Close()
	dir := t.TempDir()

	p := panicking{new(atomic.Int64)}
	out, errs, args, flags := os.Stdout, os.Stderr, os.Args, flag.CommandLine
	http.DefaultTransport, http.DefaultClient, http.DefaultServeMux = p, nil, nil
	rand.Reader = failing{}
	time.Local = time.FixedZone("far", 100*3600) // for which JSON has no form
	slog.SetDefault(slog.New(p))
	log.SetOutput(p)
	os.Stdin, os.Stdout, os.Stderr, os.Args, flag.CommandLine = nil, nil, nil, nil, nil
	os.Clearenv()
	for _, name := range []string{"GOMAXPROCS", "GOMEMLIMIT", "GOGC", "WHYLATE_GOMAXPROCS", "WHYLATE_GOMEMLIMIT", "WHYLATE_GOGC", "WHYLATE_LOG", "OTEL_RESOURCE_ATTRIBUTES", "TMPDIR"} {
		must.Do(t, os.Setenv(name, "=,\xff,service.name=\xff"))
	}
	defer func() { os.Stdout, os.Stderr, os.Args, flag.CommandLine = out, errs, args, flags }()

	hide := redact.Options{Logs: redact.Hash, Tasks: redact.Hash, Routes: redact.Hash, Parents: redact.Hash, Files: redact.Trim}
	s := Start(Options{Flight: &flight.Options{Dir: dir, Slow: time.Nanosecond, Tail: time.Millisecond, Redact: hide, Upload: &flight.UploadOptions{URL: collector.URL}}})
	must.True(t, s.Flight() != nil, "no recorder was started")
	limiter := must.Have(pool.Follow(pool.Options{Interval: time.Millisecond}))(t)
	h := mark.Handler(http.NotFoundHandler())
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	eventually(func() bool { return s.State().Flight.Upload.Sent > 0 && sent.Load() > 0 })
	level := new(slog.LevelVar)
	page := s.Handler(debugz.Options{Level: level})
	for _, path := range []string{"/?format=json", "/flight?state"} {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		check.True(t, json.Valid(w.Body.Bytes()), "%s is no JSON: %q", path, w.Body)
	}
	page.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/?level=error", nil))
	check.Equal(t, level.Level(), slog.LevelError, "the level")
	if st := s.State().Flight; st.LastError != "" || st.Upload.LastError != "" {
		t.Errorf("the recorder's state is %+v", st)
	}
	must.Do(t, limiter.Close())
	s.Stop()
	check.True(t, p.calls.Load() != 0, "the logger was not called")
}

// TestHostileCallbacks passes panicking functions as all callbacks. Each is called, none ends the process, and the other
// components continue.
func TestHostileCallbacks(t *testing.T) {
	if !child(t) {
		return
	}
	p := panicking{new(atomic.Int64)}
	logger := slog.New(p)
	var events, allows, sizes, routes atomic.Int64
	ofProbe, ofTuner := newArmedFS(), newArmedFS()
	hide := redact.Options{Routes: redact.Hash, Logs: redact.Hash, Allow: func(string) bool { allows.Add(1); panic("in Allow") }}
	s := Start(Options{
		Logger: logger,
		Tune:   &tune.Options{Interval: 10 * time.Millisecond, Cgroup: cgroup.Options{FS: ofTuner}, OnEvent: func(tune.Event) { events.Add(1); panic("in OnEvent") }},
		Probe:  probe.Options{Cgroup: cgroup.Options{FS: ofProbe}},
		Flight: &flight.Options{Dir: t.TempDir(), Slow: time.Nanosecond, Tail: time.Millisecond, Redact: hide},
	})
	limiter := must.Have(pool.Follow(pool.Options{Interval: time.Millisecond, Read: func() (pool.Limit, error) {
		return pool.Limit{CPUs: float64(sizes.Load() + 1)}, nil
	}, Size: func(pool.Limit) int64 {
		if sizes.Add(1) > 1 {
			panic("in Size")
		}
		return 1
	}}))(t)
	ofProbe.armed.Store(true)
	ofTuner.armed.Store(true)
	h := mark.Handler(http.NotFoundHandler(), mark.Route(func(*http.Request) string { routes.Add(1); panic("in Route") }))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		check.Equal(t, w.Code, http.StatusNotFound, "a request ends with")
	}
	eventually(func() bool {
		st := s.State()
		return events.Load() > 0 && allows.Load() > 0 && sizes.Load() > 3 && routes.Load() == 3 && st.Flight.Failed > 0 && p.calls.Load() > 0 &&
			ofProbe.panics.Load() > 0 && ofTuner.panics.Load() > 1
	})
	if st := s.State().Flight; !st.Recording || !strings.Contains(st.LastError, "Allow panicked: in Allow") {
		t.Errorf("the recorder's state is %+v", st)
	}
	if _, err := s.Flight().Capture(t.Context(), "asked"); err == nil || !strings.Contains(err.Error(), "in Allow") {
		t.Errorf("a recording that Allow could not be asked for: %v", err)
	}
	check.True(t, trace.IsEnabled(), "the recorder ended")
	must.Do(t, limiter.Close())
	s.Stop()
}

// TestNoRecorder tests what a service may do with the nil recorder that Start returned with an error.
func TestNoRecorder(t *testing.T) {
	s := Start(Options{Logger: slog.New(slog.DiscardHandler), Flight: &flight.Options{Share: 2}})
	defer s.Stop()
	r := s.Flight()
	must.True(t, r == nil, "a recorder was started with options that make no sense")
	r.OnFreeze(probe.Freeze{Likely: time.Hour})
	if _, err := r.Capture(t.Context(), "x"); err == nil || r.State().Recording || r.State().Why == "" {
		t.Errorf("Capture: %v, the state is %+v", err, r.State())
	}
	for _, path := range []string{"/", "/?state"} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		check.Equal(t, w.Code, http.StatusServiceUnavailable, "GET %s", path)
	}
	r.Stop()
}
