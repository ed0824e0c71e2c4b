//go:build go1.25

package flight

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/redact"
)

// waitUntil waits for a condition that other goroutines bring about.
func waitUntil(t *testing.T, name string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		must.False(t, time.Now().After(end), "timeout waiting for: %s", name)
	}
}

func start(t *testing.T, opts Options) *Recorder {
	t.Helper()
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	opts.Budget = -1 // other tests may keep the machine busy
	r := must.Have(Start(opts))(t)
	t.Cleanup(r.Stop)
	if s := r.State(); !s.Recording || s.Unwatched {
		t.Fatalf("it does not record: %+v", s)
	}
	return r
}

func zipEntries(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	z := must.Have(zip.NewReader(bytes.NewReader(data), int64(len(data))))(t)
	out := make(map[string][]byte)
	for _, f := range z.File {
		e, err := f.Open()
		must.Do(t, err)
		if out[f.Name], err = io.ReadAll(e); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func runJob(name string, d time.Duration) {
	_ = mark.Do(context.Background(), name, func(context.Context) error {
		time.Sleep(d)
		return nil
	})
}

// TestSlowRequest tests that a slow request leads to a recording that names it, and
// that further slow requests count as missed.
func TestSlowRequest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	r := start(t, Options{Dir: dir, Slow: 50 * time.Millisecond, Tail: 20 * time.Millisecond})
	runJob("quick", time.Millisecond)
	runJob("slow one", 80*time.Millisecond)
	for range 5 {
		runJob("of the storm", 51*time.Millisecond)
	}
	waitUntil(t, "a recording", func() bool { return r.State().Kept == 1 })
	s := r.State()
	check.True(t, s.Triggers[KindSlow] == 6 && s.Failed == 0 && s.LastError == "" && s.DiskBytes == s.LastBytes && s.LastBytes != 0,
		"the state is %+v", s)
	data := must.Have(os.ReadFile(filepath.Join(dir, s.Last)))(t)
	parts := zipEntries(t, data)
	check.True(t, bytes.HasPrefix(parts["trace"], []byte("go 1.")) && bytes.Contains(parts["trace"], []byte("whylate.mark/1 end job ok slow one")),
		"the trace does not hold the slow request's end")
	for _, text := range []string{hostStart, hostSample, `"run_delay_ns"`} {
		check.False(t, runtime.GOOS == "linux" && !bytes.Contains(parts["trace"], []byte(text)), "the trace does not hold %q", text)
	}
	var m recordingMeta
	must.Do(t, json.Unmarshal(parts["meta.json"], &m))
	// On a busy machine another request may take longer.
	named := append([]Trigger{m.Flight.Reason}, m.Flight.OtherTriggers...)
	i := slices.IndexFunc(named, func(t Trigger) bool { return t.Route == "slow one" })
	must.True(t, m.Schema == bundleSchema && i >= 0, "the metadata is %+v", m)
	if slow := named[i]; slow.Kind != KindSlow || slow.Status != "ok" || slow.TookNS < int64(80*time.Millisecond) || slow.TookNS > named[0].TookNS || !strings.Contains(slow.Text, "longer than 50ms") {
		t.Errorf("the metadata is %+v", m)
	}
	check.True(t, strings.HasPrefix(m.TraceVersion, "go 1.") && m.Go == runtime.Version() && m.Flight.Service["pid"] != "" && m.Host.PID == os.Getpid(),
		"the metadata is %+v", m)
	// The next recording reports the missed triggers.
	name, err := r.Capture(context.Background(), "to see")
	must.Do(t, err)
	data = must.Have(os.ReadFile(filepath.Join(dir, name)))(t)
	m = recordingMeta{}
	must.Do(t, json.Unmarshal(zipEntries(t, data)["meta.json"], &m))
	check.True(t, m.Flight.Reason.Text == "to see" && m.Flight.Reason.Kind == KindAsked && m.Flight.MissedCounts[KindSlow] != 0,
		"the metadata is %+v", m)
	r.Stop()
	files, err := os.ReadDir(dir)
	check.True(t, err == nil && len(files) == 2, "%d files, %v", len(files), err)
	if _, err := r.Capture(context.Background(), "late"); err == nil {
		t.Error("a stopped recorder keeps a recording")
	}
	if s := r.State(); s.Recording || s.Why != "stopped" {
		t.Errorf("the state is %+v", s)
	}
}

// TestUnusualRequest triggers by the route's latencies, without Options.Slow.
func TestUnusualRequest(t *testing.T) {
	recorded := make(chan string, 1)
	r := start(t, Options{Tail: time.Millisecond, Sink: func(_ context.Context, name string, rec io.Reader) error {
		_, err := io.Copy(io.Discard, rec)
		recorded <- name
		return err
	}})
	for range minRequests {
		r.requestEnded(mark.Ended{Name: "GET /", Took: time.Millisecond})
	}
	waitUntil(t, "what is usual", func() bool { return r.routes.getOrCreate("GET /").limit.Load() < int64(time.Hour) })
	r.requestEnded(mark.Ended{Name: "GET /", Took: 9 * time.Millisecond})
	r.requestEnded(mark.Ended{Name: "GET /other", Took: time.Hour})
	r.requestEnded(mark.Ended{Name: "GET /", Took: 30 * time.Millisecond})
	select {
	case name := <-recorded:
		check.Equal(t, kindOf(name), KindUnusual, "it is called %s", name)
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was kept")
	}
	check.Equal(t, r.State().Triggers[KindUnusual], 1, "triggers")
}

// TestHTTP takes recordings over HTTP.
func TestHTTP(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{Dir: dir})
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/debug/flight", nil))
	if parts := zipEntries(t, w.Body.Bytes()); w.Code != 200 || len(parts["trace"]) == 0 || len(parts["meta.json"]) == 0 {
		t.Errorf("GET gives %d", w.Code)
	}
	check.Equal(t, w.Header().Get("Content-Type"), "application/vnd.whylate.recording+zip", "GET")
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("GET keeps %d files", len(files))
	}
	w = httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("POST", "/debug/flight?reason=because", nil))
	name := strings.TrimSpace(w.Body.String())
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil || w.Code != 200 {
		t.Errorf("POST gives %d %q: %v", w.Code, name, err)
	}
	w = httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/debug/flight?state", nil))
	var s State
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || !s.Recording || s.Kept != 1 || s.Last != name {
		t.Errorf("the state is %+v, %v", s, err)
	}
	w = httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("DELETE", "/debug/flight", nil))
	check.Equal(t, w.Code, 405, "DELETE")
	r.Stop()
	w = httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest("GET", "/debug/flight", nil))
	check.Equal(t, w.Code, 503, "GET after Stop gives %q:", w.Body.String())
}

// TestOtherSite tests that pages of other sites cannot make a service keep recordings.
func TestOtherSite(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{Dir: dir})
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "http://elsewhere"} {
		q := httptest.NewRequest("POST", "/debug/flight", nil)
		q.Header.Set(name, value)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		check.Equal(t, w.Code, 403, "with %s %s it answers", name, value)
	}
	check.Equal(t, r.State().Kept, 0, "are kept")
}

// A slowReader is a client that reads nothing until proceed is closed.
type slowReader struct {
	*httptest.ResponseRecorder
	writing chan<- bool
	proceed <-chan bool
}

func (s slowReader) Write(p []byte) (int, error) {
	s.writing <- true
	<-s.proceed
	return s.ResponseRecorder.Write(p)
}

// TestSlowReaders tests that the number of recordings in memory for slow clients is bounded.
func TestSlowReaders(t *testing.T) {
	r := start(t, Options{Dir: t.TempDir()})
	writing, proceed := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	for range maxFetches {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r.ServeHTTP(slowReader{httptest.NewRecorder(), writing, proceed}, httptest.NewRequest("GET", "/", nil))
		}()
	}
	for range maxFetches {
		<-writing
	}
	get := func() int {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Code
	}
	check.Equal(t, get(), 503, "one more")
	close(proceed)
	wg.Wait()
	check.Equal(t, get(), 200, "later one")
}

// TestRedacted tests that hidden texts are neither in a recording's trace nor in its
// metadata.
func TestRedacted(t *testing.T) {
	dir := t.TempDir()
	r := start(t, Options{Dir: dir, Slow: 10 * time.Millisecond, Tail: time.Millisecond, Redact: redact.Options{
		Logs: redact.Hash, Tasks: redact.Hash, Routes: redact.Hash, Parents: redact.Hash, Files: redact.Hash,
	}})
	_ = mark.DoMessage(context.Background(), "secret job", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", func(ctx context.Context) error {
		trace.Log(ctx, "secret key", "secret message")
		trace.Log(ctx, hostStart, `{"kind":"start","pid":4242,"facts":{"pid":4242,"cpus":77,"quota_from":"/sys/fs/cgroup/secret-pod/cpu.max","memory_from":"secret","group":"secret"}}`)
		trace.WithRegion(ctx, "secret region", func() { time.Sleep(20 * time.Millisecond) })
		return nil
	})
	waitUntil(t, "a recording", func() bool { return r.State().Kept == 1 })
	data := must.Have(os.ReadFile(filepath.Join(dir, r.State().Last)))(t)
	for _, secret := range []string{"secret", "0af7651916cd43dd", "b7ad6b7169203331", "recorder_test.go"} {
		check.False(t, bytes.Contains(data, []byte(secret)), "%q is left", secret)
	}
	parts := zipEntries(t, data)
	var m recordingMeta
	must.Do(t, json.Unmarshal(parts["meta.json"], &m))
	for name, text := range parts {
		for _, id := range []string{"4242", strconv.Itoa(os.Getpid())} {
			if bytes.Contains(text, []byte(`"pid":`+id)) || bytes.Contains(text, []byte(`"pid": `+id)) || bytes.Contains(text, []byte(`"pid": "`+id)) {
				t.Errorf("the process id %s is left in %s", id, name)
			}
		}
		check.False(t, bytes.Contains(text, []byte("/sys/fs/cgroup")), "a control group is left in %s", name)
	}
	if h := m.Host; h.PID != 0 || h.CPUs == 0 || h.QuotaFrom+h.MemoryFrom+h.Group != "" || !bytes.Contains(parts["trace"], []byte(`"cpus":77`)) {
		t.Errorf("the host is %+v", h)
	}
	// The metadata has the same route as the trace.
	if name := m.Flight.Reason.Route; !strings.HasPrefix(name, "#") || !strings.Contains(m.Flight.Reason.Text, name) || !bytes.Contains(parts["trace"], []byte("whylate.mark/1 end message ok "+name)) {
		t.Errorf("it was kept because of %+v", m.Flight.Reason)
	}
	if _, err := Start(Options{Dir: dir, Redact: redact.Options{Logs: redact.Trim}}); err == nil {
		t.Error("logs can be trimmed")
	}
}

// TestSecondRecorder tests that a second recorder reports the first and starts to record
// when the first has stopped.
func TestSecondRecorder(t *testing.T) {
	first := start(t, Options{Dir: t.TempDir()})
	second := must.Have(Start(Options{Dir: t.TempDir(), Budget: -1}))(t)
	defer second.Stop()
	if s := second.State(); s.Recording || !s.Unwatched || !strings.Contains(s.Why, "already") {
		t.Errorf("the second's state is %+v", s)
	}
	if _, err := second.Capture(context.Background(), "x"); err == nil {
		t.Error("the second keeps a recording")
	}
	first.Stop()
	waitUntil(t, "the second one records", func() bool { return second.State().Recording })
	var b bytes.Buffer
	if err := trace.Start(&b); err != nil {
		t.Errorf("a trace at the same time: %v", err)
	} else {
		trace.Stop()
	}
	if _, err := second.Capture(context.Background(), "x"); err != nil {
		t.Error(err)
	}
}

// TestUnwritableDirectory tests that State reports a directory that cannot be written and a
// sink that fails.
func TestUnwritableDirectory(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(blocked, nil, 0o600))
	r := start(t, Options{Dir: blocked})
	if _, err := r.Capture(context.Background(), "x"); err == nil {
		t.Error("kept although the directory is a file")
	}
	if s := r.State(); s.Failed != 1 || s.LastError == "" || s.Kept != 0 {
		t.Errorf("the state is %+v", s)
	}
	r.Stop()
	no := errors.New("no")
	dir := t.TempDir()
	r = start(t, Options{Dir: dir, Sink: func(context.Context, string, io.Reader) error { return no }})
	if _, err := r.Capture(context.Background(), "x"); !errors.Is(err, no) {
		t.Errorf("the sink's error is %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%d files are kept", len(files))
	}
	for _, bad := range []Options{{Slow: -1}, {Share: 2}, {GC: -1}, {Tail: -1}} {
		if _, err := Start(bad); err == nil {
			t.Errorf("%+v makes sense", bad)
		}
	}
}

// TestStorm has slow requests on many goroutines: one recording is kept, the other triggers
// count as missed, and a missed trigger does not allocate.
func TestStorm(t *testing.T) {
	r := start(t, Options{Dir: t.TempDir(), Slow: time.Millisecond, Tail: 10 * time.Millisecond})
	slow := mark.Ended{Name: "GET /", Status: "2xx", Took: time.Second}
	const requestsEach = 5000
	var wg sync.WaitGroup
	for range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range requestsEach {
				r.requestEnded(slow)
			}
		}()
	}
	// A GET at the same time reads the counts of missed triggers.
	for range 3 {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		check.Equal(t, w.Code, 200, "GET")
	}
	wg.Wait()
	waitUntil(t, "a recording", func() bool { return r.State().Kept > 0 })
	if n := testing.AllocsPerRun(100, func() { r.requestEnded(slow) }); n > 0 {
		t.Errorf("a trigger too many allocates %v times", n)
	}
	s := r.State()
	data := must.Have(os.ReadFile(filepath.Join(r.opts.Dir, s.Last)))(t)
	var m recordingMeta
	must.Do(t, json.Unmarshal(zipEntries(t, data)["meta.json"], &m))
	held := m.Flight.HeldCounts[KindSlow]
	if s.Kept != 1 || s.Triggers[KindSlow] != 20*requestsEach+101 || held == 0 || s.Missed[KindSlow] != 20*requestsEach+101-held || s.Missed[KindSlow] < 100 {
		t.Errorf("of %d triggers it kept %d, which holds %d, and missed %d", s.Triggers[KindSlow], s.Kept, held, s.Missed[KindSlow])
	}
}

// TestStopReleasesAll tests that Stop ends all goroutines, and that no file stays open and no
// part file remains.
func TestStopReleasesAll(t *testing.T) {
	openFiles := func() int {
		files, _ := os.ReadDir("/proc/self/fd") // none on systems without /proc
		return len(files)
	}
	// The first recorder opens files that stay open, such as the network poller's.
	start(t, Options{Dir: t.TempDir(), Signals: []os.Signal{os.Interrupt}}).Stop()
	before, files := runtime.NumGoroutine(), openFiles()
	for range 5 {
		dir := t.TempDir()
		r := start(t, Options{Dir: dir, Signals: []os.Signal{os.Interrupt}, Upload: &UploadOptions{URL: "http://127.0.0.1:1"}})
		go r.Capture(context.Background(), "while it is stopped")
		runtime.Gosched()
		r.Stop()
		r.Stop()
		if parts, _ := filepath.Glob(filepath.Join(dir, "*"+partInfix+"*")); len(parts) > 0 {
			t.Errorf("part files remain: %v", parts)
		}
	}
	waitUntil(t, "goroutines end", func() bool { return runtime.NumGoroutine() <= before })
	waitUntil(t, "files are closed", func() bool { return openFiles() <= files })
}

// TestWithOtherProfilers tests a recorder together with another flight recorder, a CPU
// profile, and a child process.
func TestWithOtherProfilers(t *testing.T) {
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	runtimeRecorder := trace.NewFlightRecorder(trace.FlightRecorderConfig{})
	must.Do(t, runtimeRecorder.Start())
	r, err := Start(Options{Dir: t.TempDir(), Budget: -1})
	if err != nil {
		runtimeRecorder.Stop()
		t.Fatal(err)
	}
	defer r.Stop()
	s := r.State()
	r.requestEnded(mark.Ended{Name: "GET /", Took: time.Hour}) // while nothing is recorded
	runtimeRecorder.Stop()
	check.True(t, !s.Recording && strings.Contains(s.Why, "already"), "with another flight recorder the state is %+v", s)
	waitUntil(t, "it records", func() bool { return r.State().Recording })
	must.Do(t, pprof.StartCPUProfile(io.Discard))
	defer pprof.StopCPUProfile()
	if exe, err := exec.LookPath("true"); err == nil {
		if err := exec.Command(exe).Run(); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Capture(context.Background(), "with profilers"); err != nil {
		t.Error(err)
	}
}
