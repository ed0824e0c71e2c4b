package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	hostsamples "github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// recordBundle records target into a bundle and opens it.
func recordBundle(t *testing.T, target string, opt Options) *bundle.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "x"+BundleExt)
	must.Have(Save(context.Background(), target, opt, name, "test", nil))(t)
	b := must.Have(bundle.Open(name))(t)
	t.Cleanup(func() { b.Close() })
	return b
}

func shortOptions() Options {
	return Options{Duration: time.Second, Proxy: "none", NoCPU: true, NoAllocs: true}
}

// A service in a separate process is found by the URL's port, and the samples have its number.
func TestSamplesOfTheServiceByPort(t *testing.T) {
	t.Parallel()
	p := start(t, service{})
	b := recordBundle(t, p.addr, shortOptions())
	data, err := b.HostSamples()
	must.True(t, err == nil, "%v; warnings %v", err, b.Meta().Warnings)
	s := must.Have(hostsamples.Read(strings.NewReader(string(data))))(t)
	if h := b.Meta().Host; s.PID != p.cmd.Process.Pid || h == nil || h.PID != s.PID || h.Kernel == "" || h.Go == "" || b.Meta().Go != h.Go {
		t.Errorf("samples of process %d, want %d; metadata %+v", s.PID, p.cmd.Process.Pid, b.Meta())
	}
	check.Equal(t, len(b.Meta().Warnings), 0, "warnings %v", b.Meta().Warnings)
}

// A fakeProbe records its own end.
type fakeProbe struct{ stops int }

func (f *fakeProbe) Stop() ([]byte, *bundle.Kernel, []bundle.Warning) {
	f.stops++
	return []byte("events"), &bundle.Kernel{Events: 5}, []bundle.Warning{{Code: WarnKernel, Text: "refused"}}
}

// The kernel's events of the service's process are in the file. If they cannot be recorded, that is one warning.
func TestKernelEvents(t *testing.T) {
	t.Parallel()
	p := start(t, service{})
	var probe fakeProbe
	opt := shortOptions()
	opt.Kernel = func(pid int) (KernelProbe, error) {
		check.True(t, pid == p.cmd.Process.Pid, "process %d, want %d", pid, p.cmd.Process.Pid)
		return &probe, nil
	}
	b := recordBundle(t, p.addr, opt)
	data, err := b.KernelEvents()
	if m := b.Meta(); err != nil || string(data) != "events" || probe.stops != 1 || m.Kernel == nil || m.Kernel.Events != 5 || len(m.Warnings) != 1 || m.Warnings[0].Text != "refused" {
		t.Errorf("%q, %v, %d stops, metadata %+v", data, err, probe.stops, m)
	}

	opt.Kernel = func(int) (KernelProbe, error) { return nil, errors.New("it needs CAP_BPF") }
	b = recordBundle(t, p.addr, opt)
	if _, err := b.HostSamples(); err != nil {
		t.Error(err)
	}
	_, err = b.KernelEvents()
	if m := b.Meta(); err == nil || m.Kernel != nil || len(m.Warnings) != 1 || m.Warnings[0].Code != WarnKernel || !strings.Contains(m.Warnings[0].Text, "needs CAP_BPF") {
		t.Errorf("%v, metadata %+v", err, m)
	}

	// Of a proxy they would be the proxy's.
	probe = fakeProbe{}
	opt.Kernel = func(int) (KernelProbe, error) { return &probe, nil }
	backend := must.Have(url.Parse("http://" + p.addr))(t)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(backend) }, FlushInterval: -1})
	defer proxy.Close()
	b = recordBundle(t, proxy.URL, opt)
	if _, err := b.KernelEvents(); err == nil || probe.stops != 1 || b.Meta().Kernel != nil {
		t.Errorf("events of a proxy: %v, %d stops, metadata %+v", err, probe.stops, b.Meta())
	}
	// On another machine there are none.
	opt.Proxy = proxy.URL
	if w := WatchHost(context.Background(), "http://192.0.2.1:6060", opt); w == nil || len(w.warnings) != 1 || w.warnings[0].Code != WarnKernel {
		t.Errorf("watch of another machine: %+v", w)
	}
}

func TestNoSamplesWhereNotWanted(t *testing.T) {
	t.Parallel()
	s := serveHandler(t, imitation())
	opt := shortOptions()
	opt.NoHost = true
	b := recordBundle(t, s.URL, opt)
	if _, err := b.HostSamples(); err == nil || b.Meta().Host != nil || len(b.Meta().Warnings) != 0 {
		t.Errorf("samples %v, metadata %+v", err, b.Meta())
	}
}

// If a proxy on this host listens on the port, the samples would be the proxy's: there must be none.
func TestNoSamplesOfAProxy(t *testing.T) {
	t.Parallel()
	p := start(t, service{})
	backend := must.Have(url.Parse("http://" + p.addr))(t)
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(backend) }, FlushInterval: -1})
	defer proxy.Close()
	b := recordBundle(t, proxy.URL, shortOptions())
	if _, err := b.HostSamples(); err == nil {
		t.Error("there are samples, of the proxy")
	}
	if w := b.Meta().Warnings; len(w) != 1 || w[0].Code != hostsamples.WarnHost || !strings.Contains(w[0].Text, "not the one that answers") || !strings.Contains(w[0].Text, "--pid") {
		t.Errorf("warnings %v", w)
	}
	// Named, it is believed.
	opt := shortOptions()
	opt.PID = p.cmd.Process.Pid
	if b := recordBundle(t, proxy.URL, opt); b.Meta().Host == nil || b.Meta().Host.PID != p.cmd.Process.Pid {
		t.Errorf("metadata %+v", b.Meta())
	}
}

// Without a process of the given number, the trace is recorded all the same.
func TestRecordingSurvivesMissingSamples(t *testing.T) {
	t.Parallel()
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Skip(err)
	}
	s := serveHandler(t, imitation())
	opt := shortOptions()
	opt.PID = ended.Process.Pid
	b := recordBundle(t, s.URL, opt)
	if w := b.Meta().Warnings; len(w) != 1 || w[0].Code != hostsamples.WarnHost || !strings.Contains(w[0].Text, fmt.Sprint("no process ", ended.Process.Pid)) {
		t.Errorf("warnings %v", w)
	}
}

// If the service ends during the recording, the file has the samples until then.
func TestServiceEndsWhileSampled(t *testing.T) {
	t.Parallel()
	p := start(t, service{Burn: true})
	name := filepath.Join(t.TempDir(), "x"+BundleExt)
	opt := shortOptions()
	opt.Duration = 20 * time.Second
	// On a busy machine the first bytes may take seconds; without any there is no file.
	var kill sync.Once
	opt.Progress = func(got Progress) {
		if got.Bytes >= headerLen {
			kill.Do(func() { time.AfterFunc(500*time.Millisecond, func() { p.cmd.Process.Kill() }) })
		}
	}
	if _, err := Save(context.Background(), p.addr, opt, name, "test", nil); err == nil {
		t.Error("the recording is whole")
	}
	b := must.Have(bundle.Open(name))(t)
	defer b.Close()
	data := must.Have(b.HostSamples())(t)
	if _, err := hostsamples.Read(strings.NewReader(string(data))); err != nil {
		t.Error(err)
	}
	isWarned := false
	for _, w := range b.Meta().Warnings {
		isWarned = isWarned || w.Code == hostsamples.WarnEnded
	}
	check.True(t, isWarned, "warnings %v", b.Meta().Warnings)
}

// If two processes share a port, the one that has accepted the trace's connection is sampled. Here the
// other one inherits the listener and never accepts.
func TestSamplesOfTheAcceptor(t *testing.T) {
	t.Parallel()
	s := serveHandler(t, imitation())
	raw, err := s.Listener.(*net.TCPListener).SyscallConn()
	must.Do(t, err)
	fd := -1
	if err := raw.Control(func(l uintptr) { fd, err = syscall.Dup(int(l)) }); err != nil || fd < 0 {
		t.Fatal(err)
	}
	// Not by the listener's File, which would make it block.
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	idleListener := exec.Command("/bin/cat") // holds the listener, and waits for its input
	idleListener.ExtraFiles = []*os.File{f}
	in, err := idleListener.StdinPipe()
	must.Do(t, err)
	if err := idleListener.Start(); err != nil {
		t.Skip(err)
	}
	defer func() {
		in.Close()
		idleListener.Wait()
	}()
	b := recordBundle(t, s.URL, shortOptions())
	if h := b.Meta().Host; h == nil || h.PID != os.Getpid() {
		t.Errorf("samples of %+v, want process %d; warnings %v", h, os.Getpid(), b.Meta().Warnings)
	}
}

// Data returns the samples for a live explanation.
func TestWatchData(t *testing.T) {
	t.Parallel()
	s := serveHandler(t, http.NotFoundHandler())
	w := WatchHost(t.Context(), s.URL, Options{Proxy: "none"})
	if _, err := hostsamples.Read(bytes.NewReader(w.Data())); err != nil {
		t.Error(err)
	}
	check.True(t, WatchHost(t.Context(), "http://192.0.2.1:6060", Options{}) == nil, "a watch of another machine")
	var noWatch *HostWatch
	noWatch.AttachStream(nil)
	if rec, warnings := noWatch.Finish(); rec != nil || warnings != nil {
		t.Error("nothing gave something")
	}
}
