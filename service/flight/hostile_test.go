//go:build go1.25

package flight

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/trace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/mark"
)

// TestSinkNeverAnswers tests that a hanging sink delays only the next recording: requests
// and seconds are judged, the recording is in the directory, GET returns snapshots, and
// Stop returns. None of that worked when the recorder's goroutine called the sink.
func TestSinkNeverAnswers(t *testing.T) {
	var sinkMayReturn chan struct{}
	opts := Options{Tail: 200 * ms, Share: 0.5, Sink: func(context.Context, string, io.Reader) error {
		<-sinkMayReturn // ignores its context
		return nil
	}}
	runScenario(t, opts, func(s *scenario) {
		sinkMayReturn = make(chan struct{})
		s.request("GET /", 0, 100*ms)
		time.Sleep(time.Until(s.origin.Add(2 * time.Second)))
		synctest.Wait()
		names, _ := filepath.Glob(filepath.Join(s.dir, "*.whylate"))
		if state := s.recorder.State(); state.Kept != 0 || len(names) != 1 {
			t.Errorf("while the sink has it there are %d files, and the state is %+v", len(names), state)
		}
		// KindMany is triggered by the recorder's goroutine.
		for range 20 {
			s.request("GET /", 3*time.Second, 3*time.Second+50*ms)
		}
		w := httptest.NewRecorder()
		s.recorder.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if state := s.recorder.State(); w.Code != 200 || state.Triggers[KindMany] == 0 {
			t.Errorf("GET gives %d, and the state is %+v", w.Code, state)
		}
		captured := make(chan error)
		go func() {
			_, err := s.recorder.Capture(context.Background(), "too late")
			captured <- err
		}()
		began := time.Now()
		s.recorder.Stop()
		if took := time.Since(began); took > sinkPatience {
			t.Errorf("Stop took %v", took)
		}
		check.Error(t, <-captured, "it was kept")
		close(sinkMayReturn)
	})
}

// TestSinkPanics tests that a sink that panics or ends its goroutine causes an error in State, and
// that the next recording is passed to the sink.
func TestSinkPanics(t *testing.T) {
	behaviour := ""
	r := start(t, Options{Dir: t.TempDir(), Sink: func(context.Context, string, io.Reader) error {
		switch behaviour {
		case "panic":
			panic("no\x1b" + strings.Repeat("!", 1000))
		case "exit":
			runtime.Goexit()
		}
		return nil
	}})
	for i, next := range []string{"panic", "exit", "panic"} {
		behaviour = next
		_, err := r.Capture(t.Context(), "x")
		if s := r.State(); err == nil || s.Failed != uint64(i+1) || s.LastError != err.Error() || !strings.Contains(s.LastError, "the sink "+behaviour) && behaviour != "exit" || len(s.LastError) > 400 {
			t.Errorf("%s: %v, the state is %+v", behaviour, err, s)
		}
	}
	behaviour = ""
	if _, err := r.Capture(t.Context(), "x"); err != nil || r.State().Kept != 1 {
		t.Errorf("after that: %v, the state is %+v", err, r.State())
	}
}

// A brokenRing panics in the methods that are set.
type brokenRing struct {
	panicInWrite, panicInStop, panicInEnabled atomic.Bool
	started                                   atomic.Bool
}

func (b *brokenRing) start(time.Duration, uint64) error { b.started.Store(true); return nil }

func (b *brokenRing) stop() {
	if b.started.Store(false); b.panicInStop.Load() {
		panic("in stop")
	}
}

func (b *brokenRing) enabled() bool {
	if b.panicInEnabled.Load() {
		panic("in enabled")
	}
	return b.started.Load()
}

func (b *brokenRing) writeTo(w io.Writer) (int64, error) {
	if b.panicInWrite.Load() {
		panic("in writeTo")
	}
	n, err := w.Write([]byte("go 1.26 trace\x00\x00\x00"))
	return int64(n), err
}

// TestBrokenRing tests that a panic of the runtime's recorder loses a recording or ends the recorder, but never the service.
func TestBrokenRing(t *testing.T) {
	ring := new(brokenRing)
	r := must.Have(startWith(Options{Dir: t.TempDir(), NoHost: true, Budget: -1}, ring))(t)
	defer r.Stop()
	must.Have(r.Capture(t.Context(), "well"))(t)
	ring.panicInWrite.Store(true)
	if _, err := r.Capture(t.Context(), "x"); err == nil || !strings.Contains(err.Error(), "panicked: in writeTo") {
		t.Errorf("a recording that panics: %v", err)
	}
	ring.panicInWrite.Store(false)
	must.Have(r.Capture(t.Context(), "well again"))(t)
	if files, _ := filepath.Glob(filepath.Join(r.opts.Dir, "*"+partInfix+"*")); len(files) > 0 {
		t.Errorf("%q are left", files)
	}
	ring.panicInStop.Store(true)
	ring.panicInEnabled.Store(true)
	// The recorder ends in this call or in its next second, and then handles no request.
	for range 2 {
		if _, err := r.Capture(t.Context(), "x"); err == nil {
			t.Error("an ended recorder keeps a recording")
		}
		waitUntil(t, "the end", func() bool { return r.ctx.Err() != nil })
	}
	r.requestEnded(mark.Ended{Name: "GET /", Took: time.Hour})
	r.Stop()
	if s := r.State(); s.Kept != 2 || s.Failed != 1 || !strings.Contains(s.LastError, "panicked") {
		t.Errorf("the state is %+v", s)
	}
}

// TestPosts tests that POSTs are limited per minute and that the answer has a Retry-After. Calls of
// Capture and GETs are not limited.
func TestPosts(t *testing.T) {
	runScenario(t, Options{}, func(s *scenario) {
		send := func(method string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			s.recorder.ServeHTTP(w, httptest.NewRequest(method, "/debug/flight", nil))
			return w
		}
		storm := func() (accepted int) {
			for range 100 {
				switch w := send("POST"); w.Code {
				case 200:
					accepted++
				case 429:
					if after := w.Header().Get("Retry-After"); after != "6" {
						t.Errorf("after %d it asks for %q seconds", accepted, after)
					}
				default:
					t.Errorf("it answers %d", w.Code)
				}
			}
			return accepted
		}
		check.Equal(t, storm(), postsPerMinute, "are kept at once")
		check.Equal(t, send("GET").Code, 200, "GET")
		if _, err := s.recorder.Capture(s.t.Context(), "x"); err != nil {
			t.Error(err)
		}
		time.Sleep(6 * time.Second)
		check.Equal(t, storm(), 1, "are kept six seconds later")
		time.Sleep(time.Hour)
		check.Equal(t, storm(), postsPerMinute, "are kept at once an hour later")
	})
}

// TestDirectoryRemoved tests that the next recording creates a directory that was removed while
// the recorder runs.
func TestDirectoryRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "flight")
	r := start(t, Options{Dir: dir})
	for range 2 {
		must.Do(t, os.RemoveAll(dir))
		name := must.Have(r.Capture(context.Background(), "x"))(t)
		data, err := os.ReadFile(filepath.Join(dir, name))
		check.True(t, err == nil && len(zipEntries(t, data)) == 2, "%s: %v", name, err)
	}
}

// TestHostileNames tests a service whose clients choose ten thousand route names: the number
// of routes in memory is bounded, meta.json has the same names as the trace, and neither
// has control characters.
func TestHostileNames(t *testing.T) {
	const childVariable = "WHYLATE_TEST_FLIGHT_NAMES"
	if os.Getenv(childVariable) == "" { // the names last as long as the process, so a child process uses them
		self := must.Have(os.Executable())(t)
		cmd := exec.Command(self, "-test.run=^TestHostileNames$")
		cmd.Env = append(os.Environ(), childVariable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	dir := t.TempDir()
	r := start(t, Options{Dir: dir, Slow: time.Second, Tail: time.Millisecond})
	h := mark.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
	}), mark.Route(func(q *http.Request) string { return q.URL.Path }))
	names := func(i int) string {
		return fmt.Sprintf("/%d/\x1b[31m\u009b2J\x00\r\n\"%s", i, strings.Repeat("x", i%300))
	}
	var all sync.WaitGroup
	for k := range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			q := httptest.NewRequest("GET", "/", nil)
			for i := k; i < 10_000; i += 4 {
				q.Pattern, q.URL.Path = "", names(i)
				h.ServeHTTP(discardWriter{}, q)
			}
		}()
	}
	all.Wait()
	_ = mark.Do(context.Background(), "last "+names(1), func(context.Context) error {
		time.Sleep(1001 * time.Millisecond)
		return nil
	})
	waitUntil(t, "a recording", func() bool { return r.State().Kept > 0 })
	routes := 0
	r.routes.visit(func(*route) { routes++ })
	check.True(t, routes <= maxRoutes, "%d routes are followed", routes)
	data := must.Have(os.ReadFile(filepath.Join(dir, r.State().Last)))(t)
	parts := zipEntries(t, data)
	var m recordingMeta
	must.Do(t, json.Unmarshal(parts["meta.json"], &m))
	for _, bad := range []string{"\x1b[31m", "\u009b", `\u001b`, `\u009b`, `\u0000`} {
		if bytes.Contains(parts["meta.json"], []byte(bad)) || bad != "\x1b[31m" && bytes.Contains(parts["trace"], []byte("/"+bad)) {
			t.Errorf("%q is in it", bad)
		}
	}
	named := append([]Trigger{m.Flight.Reason}, m.Flight.OtherTriggers...)
	i := slices.IndexFunc(named, func(t Trigger) bool { return strings.HasPrefix(t.Route, "last ") })
	check.True(t, i >= 0 && named[i].Route == "last /1/_[31m_2J___\"x", "it was kept because of %+v", named)
}

// TestRestart starts a recorder in the directory of a killed one: part files are removed,
// complete recordings stay, and those of the last hour count against PerHour; otherwise a
// service that restarts repeatedly would keep six each time.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	put := func(kind Kind, n int, ago time.Duration, suffix string) string {
		name := fileName(now.Add(-ago), kind, 1, n) + suffix
		p := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(p, make([]byte, 1000), 0o600))
		must.Do(t, os.Chtimes(p, now, now.Add(-ago)))
		return name
	}
	old := put(KindSlow, 1, 10*time.Minute, "")
	onlyFreeze := put(KindFreeze, 2, 12*time.Hour, "")
	for i := range 5 {
		put(KindAsked, 3+i, time.Minute, "")
	}
	partFile := put(KindSlow, 9, time.Second, partInfix+"1")
	for i := range 3 {
		opts := Options{Dir: dir, Slow: time.Millisecond, Tail: time.Millisecond, Gap: time.Millisecond, PerHour: 2}
		r := start(t, opts)
		if _, err := os.Stat(filepath.Join(dir, partFile)); err == nil {
			t.Error("a part file remains")
		}
		for _, name := range []string{old, onlyFreeze} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		// PerHour is two, and one recording is ten minutes old: the first process may keep one, the next ones none.
		r.requestEnded(mark.Ended{Name: "GET /", Took: time.Second})
		wantKept, wantMissed := uint64(1), uint64(0)
		if i > 0 {
			wantKept, wantMissed = 0, 1
		}
		waitUntil(t, "a recording or a missed trigger", func() bool { s := r.State(); return s.Kept == wantKept && s.Missed[KindSlow] == wantMissed })
		r.Stop()
	}
}

// TestChildInheritsNothing tests that a child process of the service inherits none of the
// recorder's files, even while the sink reads a recording.
func TestChildInheritsNothing(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("asks /proc")
	}
	ls := "/bin/ls"
	if _, err := os.Stat(ls); err != nil {
		t.Skip(err)
	}
	child := func() (files []string) {
		p, w, err := os.Pipe()
		if err != nil {
			t.Error(err)
			return nil
		}
		defer p.Close()
		process, err := os.StartProcess(ls, []string{ls, "-l", "/proc/self/fd"}, &os.ProcAttr{Files: []*os.File{nil, w, w}})
		w.Close()
		if err != nil {
			t.Error(err)
			return nil
		}
		text, err := io.ReadAll(p)
		if _, waited := process.Wait(); err != nil || waited != nil {
			t.Error(err, waited)
		}
		for line := range strings.Lines(string(text)) {
			_, file, ok := strings.Cut(strings.TrimSpace(line), " -> ")
			if ok && !strings.HasSuffix(file, "/fd") && !strings.HasPrefix(file, "pipe:") { // files of ls
				files = append(files, file)
			}
		}
		return files
	}
	before, during := child(), []string(nil) // this process may have inherited some
	r := start(t, Options{Dir: t.TempDir(), Sink: func(context.Context, string, io.Reader) error {
		during = child()
		return nil
	}})
	must.Have(r.Capture(context.Background(), "x"))(t)
	check.True(t, slices.Equal(before, during), "with a recorder a child has %q, else %q", during, before)
}

// TestWithTraceEndpoint takes a trace as net/http/pprof does, and recordings at the same time:
// both have the same marks.
func TestWithTraceEndpoint(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{Dir: dir})
	var b bytes.Buffer
	must.Do(t, trace.Start(&b)) // as pprof.Trace does
	runJob("in both", time.Millisecond)
	first, err := r.Capture(context.Background(), "during a trace")
	if err != nil {
		t.Error(err)
	}
	trace.Stop()
	runJob("in the second", time.Millisecond)
	second, err := r.Capture(context.Background(), "after it")
	if err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		name string
		data func() []byte
		jobs []string
	}{
		{"the trace", b.Bytes, []string{"in both"}},
		{"the first recording", func() []byte { data, _ := os.ReadFile(filepath.Join(dir, first)); return data }, []string{"in both"}},
		{"the second recording", func() []byte { data, _ := os.ReadFile(filepath.Join(dir, second)); return data }, []string{"in both", "in the second"}},
	} {
		for _, name := range c.jobs {
			check.True(t, bytes.Contains(c.data(), []byte("whylate.mark/1 end job ok "+name)), "%s does not hold %q", c.name, name)
		}
	}
	if s := r.State(); !s.Recording || s.Failed != 0 {
		t.Errorf("the state is %+v", s)
	}
}
