package record

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// Tests against other processes with the real net/http/pprof.

func TestBundleOfARealService(t *testing.T) {
	t.Parallel()
	p := start(t, service{Burn: true})
	name := filepath.Join(t.TempDir(), "x.whylate")
	var tee bytes.Buffer
	r := must.Have(Save(context.Background(), p.addr, Options{Duration: 1500 * time.Millisecond, Proxy: "none"}, name, "v9", &tee))(t)
	f := must.Have(bundle.Open(name))(t)
	defer f.Close()
	tr, _, err := f.Trace()
	must.Do(t, err)
	data := must.Have(io.ReadAll(tr))(t)
	check.True(t, bytes.Equal(data, tee.Bytes()), "the tee got %d bytes, the file %d", tee.Len(), len(data))
	c := readTrace(data)
	check.True(t, c.err == nil, "the reference reader stopped after %d events: %v", c.events, c.err)
	// The busy goroutine gets some CPU in two seconds on any machine that can run this test at all.
	check.True(t, c.samples != 0, "the trace has no CPU samples")
	if d := c.duration(); d < 1900*time.Millisecond {
		t.Errorf("the trace spans %v, want two seconds: 1.5 s rounded up", d)
	}
	for _, get := range []func() ([]byte, error){f.CPUProfile, f.AllocsProfile} {
		profile, err := get()
		if err != nil {
			t.Error(err)
			continue
		}
		z, err := gzip.NewReader(bytes.NewReader(profile))
		if err != nil {
			t.Error(err)
			continue
		}
		if raw, err := io.ReadAll(z); err != nil || !bytes.Contains(raw, []byte("useCPU")) {
			t.Errorf("a profile of %d bytes does not know the busy function: %v", len(raw), err)
		}
	}
	m := f.Meta()
	if m.URL != "http://"+p.addr+"/debug/pprof/trace" || m.Tool != "v9" || m.Truncated || m.TraceVersion != "go 1.26" ||
		m.RequestedNS != 1.5e9 || m.WindowNS != 2e9 || m.ReceivedNS < 2e9 || time.Since(m.Start) > time.Hour {
		t.Errorf("metadata %+v", m)
	}
	check.True(t, len(m.Warnings) == 1 && m.Warnings[0].Code == WarnRounded, "warnings %v, want that the duration was rounded", m.Warnings)
	check.True(t, r.Bytes == int64(len(data)) && r.HasGeneration && r.CPUProfile && r.AllocsProfile,
		"result says %d bytes, the trace has %d", r.Bytes, len(data))
	// Order as the service saw it: the profile covers the trace.
	resp := must.Have(http.Get("http://" + p.addr + "/log"))(t)
	defer resp.Body.Close()
	logged, _ := io.ReadAll(resp.Body)
	log := string(logged)
	order := []string{"begin profile 3", "begin trace 2", "end trace", "end profile"}
	position := -1
	for _, event := range order {
		i := strings.Index(log, event)
		must.True(t, i > position, "the service saw\n%swant in this order %q", log, order)
		position = i
	}
}

func TestNoCPUMeansNoSamples(t *testing.T) {
	t.Parallel()
	p := start(t, service{Burn: true})
	opt := quickOptions()
	data, r, err := record(t, p.addr, opt)
	must.Do(t, err)
	if c := readTrace(data); c.err != nil || c.samples != 0 || c.events == 0 {
		t.Errorf("%d events, %d samples, error %v", c.events, c.samples, c.err)
	}
	check.True(t, len(r.Warnings) == 0 && !r.Partial, "result %+v", r)
}

// A bare trace file needs no profile: it is complete when the trace has ended, although the CPU
// profile would last a second longer.
func TestBareTraceFile(t *testing.T) {
	t.Parallel()
	p := start(t, service{Burn: true, Prefix: "/prefix"})
	name := filepath.Join(t.TempDir(), "x.trace")
	opt := Options{Duration: time.Second, Proxy: "none"}
	r := must.Have(Save(context.Background(), "http://"+p.addr+"/prefix/", opt, name, "", nil))(t)
	data := must.Have(os.ReadFile(name))(t)
	if c := readTrace(data); c.err != nil || c.samples == 0 {
		t.Errorf("%d events, %d samples, error %v", c.events, c.samples, c.err)
	}
	check.True(t, len(r.Warnings) == 0 && r.URL == "http://"+p.addr+"/prefix/debug/pprof/trace", "result %+v", r)
	if entries, _ := os.ReadDir(filepath.Dir(name)); len(entries) != 1 {
		t.Errorf("files left: %v", entries)
	}
}

func TestTracingAlreadyEnabled(t *testing.T) {
	t.Parallel()
	p := start(t, service{Tracing: true})
	name := filepath.Join(t.TempDir(), "x.trace")
	_, err := Save(context.Background(), p.addr, Options{Proxy: "none"}, name, "", nil)
	wantKind(t, err, Busy, "another program is tracing this process", "already enabled", "only one can run at a time")
	if entries, _ := os.ReadDir(filepath.Dir(name)); len(entries) != 0 {
		t.Errorf("files left after failure: %v", entries)
	}
}

func TestCPUProfileAlreadyInUse(t *testing.T) {
	t.Parallel()
	p := start(t, service{Profiling: true, Burn: true})
	opt := quickOptions()
	opt.NoCPU = false
	data, r, err := record(t, p.addr, opt)
	must.Do(t, err)
	// What the warning claims is so: the other profile's samples are in the trace.
	if c := readTrace(data); c.err != nil || c.samples == 0 {
		t.Errorf("%d samples, error %v", c.samples, c.err)
	}
	check.True(t, len(r.Warnings) == 1 && r.Warnings[0].Code == WarnCPU && strings.Contains(r.Warnings[0].Text, "another program is taking one"),
		"warnings %v", r.Warnings)
}

// Go 1.23 and later extend the server's deadline by the length of the recording.
func TestWriteTimeoutOfCurrentGo(t *testing.T) {
	t.Parallel()
	p := start(t, service{WriteTimeout: time.Second})
	opt := quickOptions()
	opt.Duration = 2 * time.Second
	data, r, err := record(t, p.addr, opt)
	must.True(t, err == nil && !r.Partial, "%v, %+v", err, r)
	if c := readTrace(data); c.err != nil {
		t.Error(c.err)
	}
}

// Middleware that hides the connection prevents pprof from extending the deadline: the answer is cut.
func TestWriteTimeoutCutsTheBody(t *testing.T) {
	testfull.Need(t, "a trace that comes before a deadline")
	t.Parallel()
	p := start(t, service{WriteTimeout: 1700 * time.Millisecond, HideWriter: true, Burn: true})
	name := filepath.Join(t.TempDir(), "x.whylate")
	r, err := Save(context.Background(), p.addr, Options{Duration: 4 * time.Second, Proxy: "none", NoCPU: true}, name, "", nil)
	if err != nil && r == nil && strings.Contains(err.Error(), "without") {
		t.Skip("nothing arrived before the deadline: machine too busy")
	}
	wantKind(t, err, Cut, "the trace was cut after", "of 4s", "the service still answers", "WriteTimeout")
	check.True(t, errors.Is(err, io.ErrUnexpectedEOF), "does not wrap io.ErrUnexpectedEOF")
	check.True(t, r.Partial && hasWarning(*r, WarnCut) && hasWarning(*r, WarnAllocs), "result %+v", r)
	f, err := bundle.Open(name)
	must.Do(t, err, "what arrived was not kept")
	defer f.Close()
	check.True(t, f.Meta().Truncated, "metadata %+v", f.Meta())
}

func TestServiceKilled(t *testing.T) {
	t.Parallel()
	p := start(t, service{Burn: true})
	opt := quickOptions()
	opt.Duration = 30 * time.Second
	s, err := Open(context.Background(), p.addr, opt)
	must.Do(t, err)
	defer s.Close()
	must.Have(io.ReadFull(s, make([]byte, 1000)))(t)
	p.cmd.Process.Kill()
	_, err = io.Copy(io.Discard, s)
	wantKind(t, err, Cut, "the trace was cut", "no longer answers")
	if r := s.Result(); !r.Partial || r.Bytes < 1000 {
		t.Errorf("result %+v", r)
	}
}

func TestInterruptedKeepsReceivedTrace(t *testing.T) {
	t.Parallel()
	p := start(t, service{Burn: true})
	name := filepath.Join(t.TempDir(), "x.whylate")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Interrupt once two generations' worth of bytes has come, whenever that is.
	opt := Options{Duration: time.Minute, Proxy: "none"}
	opt.Progress = func(p Progress) {
		if p.Elapsed > 2500*time.Millisecond && p.Bytes > headerLen {
			cancel()
		}
	}
	began := time.Now()
	r, err := Save(ctx, p.addr, opt, name, "", nil)
	wantKind(t, err, Interrupted, "interrupted after", "of 1m0s")
	check.True(t, errors.Is(err, context.Canceled), "does not wrap context.Canceled")
	check.True(t, time.Since(began) <= 50*time.Second, "interruption waited for the recording's end")
	must.True(t, r != nil && r.Partial && r.Bytes > headerLen, "result %+v", r)
	check.True(t, r.HasGeneration, "more than two seconds of trace, and no whole generation in it")
	check.True(t, len(r.Warnings) == 1 && r.Warnings[0].Code == WarnStopped, "warnings %v", r.Warnings)
	f, err := bundle.Open(name)
	must.Do(t, err, "what arrived was not kept")
	defer f.Close()
	tr, n, err := f.Trace()
	must.True(t, err == nil && n == r.Bytes && f.Meta().Truncated, "%d bytes, %v, %+v", n, err, f.Meta())
	data, _ := io.ReadAll(tr)
	// At least one whole generation can be read, as promised.
	if c := readTrace(data); c.events == 0 {
		t.Errorf("no event can be read of %d bytes: %v", len(data), c.err)
	}
}

func TestIndexWithoutTheTraceHandler(t *testing.T) {
	t.Parallel()
	p := start(t, service{IndexOnly: true})
	_, _, err := record(t, p.addr, quickOptions())
	wantKind(t, err, NotFound, "404", `mux.HandleFunc("/debug/pprof/trace", pprof.Trace)`)
}

func TestSaveAll(t *testing.T) {
	t.Parallel()
	a, b := start(t, service{}), start(t, service{})
	dir := t.TempDir()
	targets := []string{a.addr, "http://" + b.addr, "127.0.0.1:1"}
	names := must.Have(FileNames(filepath.Join(dir, "x.trace"), targets))(t)
	jobs := make([]Job, len(targets))
	for i := range targets {
		jobs[i] = Job{Target: targets[i], Name: names[i], Options: quickOptions()}
	}
	out := SaveAll(context.Background(), jobs, "")
	for i := range 2 {
		if out[i].Err != nil {
			t.Fatal(out[i].Err)
		}
		data := must.Have(os.ReadFile(names[i]))(t)
		if c := readTrace(data); c.err != nil {
			t.Error(c.err)
		}
	}
	wantKind(t, out[2].Err, Refused, "127.0.0.1:1", "no process listens there")
	if d := out[0].Start.Sub(out[1].Start).Abs(); d > time.Second {
		t.Errorf("they began %v apart, so one after the other", d)
	}
}
