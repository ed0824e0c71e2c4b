package rewrite

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/service/redact"
)

// TestHidden: in the entries other than the trace, names and addresses are removed and numbers stay.
func TestHidden(t *testing.T) {
	h := &hider{redact.Options{Routes: redact.Drop, Files: redact.Drop, Key: []byte("k")}}
	m := bundle.Meta{URL: "http://secret/", Host: &bundle.Host{PID: 7, CPUs: 8, QuotaFile: "/secret", MemoryFile: "/secret", Group: "/secret", Kernel: "6"}, Warnings: []bundle.Warning{{Code: "short", Text: "secret"}},
		Flight: &bundle.Flight{Reason: bundle.Trigger{Kind: "slow", Text: "secret", Route: "secret", DurationNS: 5}, OtherTriggers: []bundle.Trigger{{Kind: "gc", Text: "secret", Route: "secret"}}, Service: map[string]string{"module": "m", "pid": "secret"}}}
	h.meta(&m)
	want := bundle.Meta{Host: &bundle.Host{CPUs: 8, Kernel: "6"}, Warnings: []bundle.Warning{{Code: "short", Text: "(left out: short)"}},
		Flight: &bundle.Flight{Reason: bundle.Trigger{Kind: "slow", DurationNS: 5}, OtherTriggers: []bundle.Trigger{{Kind: "gc"}}, Service: map[string]string{"module": "m"}}}
	check.True(t, reflect.DeepEqual(m, want), "%+v, %+v", m, m.Flight)
	bare := bundle.Meta{Flight: &bundle.Flight{Service: map[string]string{"pid": "secret"}}}
	h.meta(&bare)
	check.True(t, len(bare.Flight.Service) == 0 && bare.Host == nil, "%+v", bare)
	l := host.Line{PID: 7, Text: "secret", Sample: host.Sample{MonoNS: 5, Levels: []host.Level{{Depth: 2, GroupPath: "secret", Periods: 3}}}, Facts: &bundle.Host{Group: "secret"}, Warnings: []bundle.Warning{{Code: "c", Text: "secret"}}, Sockets: []host.Socket{{Local: "10.0.0.1:80", Remote: "10.0.0.2:81", Retransmitted: 4}, {Local: "secret"}}, ListenAddrs: []string{"10.0.0.1:80", "secret"}}
	h.hostLine(&l)
	if l.PID != 0 || l.Text != "" || l.MonoNS != 5 || l.Facts.Group != "" || l.Warnings[0].Text != "(left out: c)" || l.Levels[0] != (host.Level{Depth: 2, GroupPath: "level 2", Periods: 3}) || l.Sockets[0].Retransmitted != 4 || strings.Contains(l.Sockets[0].Local+l.Sockets[0].Remote, "10.0") || l.Sockets[1].Local != "" || l.ListenAddrs[0] != l.Sockets[0].Local || l.ListenAddrs[1] != "" {
		t.Errorf("%+v", l)
	}
	for in, stays := range map[string]bool{"127.0.0.1:80": true, "[::1]:80": true, "0.0.0.0:80": true, "[::]:80": true, "10.0.0.1:80": false, "[2001:db8::1]:80": false} {
		got := h.address(in)
		if (got == in) != stays || !stays && (!strings.HasPrefix(got, "[2001:db8:") || !strings.HasSuffix(got, "]:80")) {
			t.Errorf("%s becomes %s", in, got)
		}
	}
	if h.address("[::ffff:10.0.0.1]:5") != strings.Replace(h.address("10.0.0.1:80"), "]:80", "]:5", 1) || h.address("10.0.0.1:80") == h.address("10.0.0.2:80") || h.address("") != "" || h.address("x") != "" {
		t.Error("equal addresses are not equal, or others are")
	}
}

// TestHiddenKernelTables: names, process numbers and addresses of the kernel's tables are replaced, equal ones stay equal.
func TestHiddenKernelTables(t *testing.T) {
	h := &hider{redact.Options{Key: []byte("k")}}
	tables := kernelevents.Tables{PID: 9227, NSPID: 7, Threads: []kernelevents.Thread{
		{TID: 9227, NSTID: 1, PID: 9227, Comm: "secret", Process: "secret", Own: true}, {TID: 50, PID: 50, Comm: "hidden", Process: "hidden", Cgroup: 5}, {TID: 51, PID: 50, Comm: "other", Process: "hidden"}},
		Cgroups: []kernelevents.Cgroup{{ID: 5, Path: "/secret", Container: "secret", QuotaNS: 4}}, Sockets: []kernelevents.Socket{{ID: 1, Local: "10.0.0.1:80", Remote: "127.0.0.1:5"}}}
	h.kernelTables(&tables)
	want := kernelevents.Tables{PID: 1, Threads: []kernelevents.Thread{
		{TID: 9227, NSTID: 1, PID: 1, Comm: "process 1", Process: "process 1", Own: true}, {TID: 50, PID: 2, Comm: "process 2", Process: "process 2", Cgroup: 5}, {TID: 51, PID: 2, Comm: "process 3", Process: "process 2"}},
		Cgroups: []kernelevents.Cgroup{{ID: 5, Path: "group 1", QuotaNS: 4}}, Sockets: []kernelevents.Socket{{ID: 1, Local: h.address("10.0.0.1:80"), Remote: "127.0.0.1:5"}}}
	check.True(t, reflect.DeepEqual(tables, want), "%+v\nwant\n%+v", tables, want)
}

// TestHiddenProfile: functions and numbers of a profile stay; files, labels and comments are removed.
func TestHiddenProfile(t *testing.T) {
	fn := &profile.Function{ID: 1, Name: "main.f", Filename: "/secret/x.go"}
	mapping := &profile.Mapping{ID: 1, File: "/secret", BuildID: "secret", KernelRelocationSymbol: "secret"}
	loc := &profile.Location{ID: 1, Mapping: mapping, Line: []profile.Line{{Function: fn, Line: 7}}}
	p := &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "ns"}}, Function: []*profile.Function{fn}, Mapping: []*profile.Mapping{mapping}, Location: []*profile.Location{loc}, Comments: []string{"secret"}, DocURL: "http://secret", DropFrames: "secret", KeepFrames: "secret",
		Sample: []*profile.Sample{{Location: []*profile.Location{loc}, Value: []int64{5}, Label: map[string][]string{"secret": {"secret"}}, NumLabel: map[string][]int64{"secret": {1}}, NumUnit: map[string][]string{"secret": {"x"}}}}}
	var b bytes.Buffer
	must.Do(t, p.Write(&b))
	h := &hider{redact.Options{Files: redact.Drop, Key: []byte("k")}}
	out := must.Have(profile.ParseData(must.Have(h.profile(b.Bytes()))(t)))(t)
	if text := out.String(); strings.Contains(text, "secret") || len(out.Sample) != 1 || out.Sample[0].Value[0] != 5 || out.Function[0].Name != "main.f" || out.Function[0].Filename == "" || out.DocURL+out.DropFrames+out.KeepFrames+out.Mapping[0].File+out.Mapping[0].BuildID+out.Mapping[0].KernelRelocationSymbol != "" || len(out.Sample[0].Label)+len(out.Sample[0].NumLabel)+len(out.Comments) > 0 {
		t.Errorf("%s", text)
	}
	if got, err := h.profile(nil); got != nil || err != nil {
		t.Errorf("of no profile: %v, %v", got, err)
	}
	if _, err := h.profile([]byte("x")); err == nil {
		t.Error("what is no profile was hidden")
	}
}

// TestHostLines: unreadable and unwanted lines are dropped.
func TestHostLines(t *testing.T) {
	out := must.Have(filterHostLines([]byte(`{"kind":"a"}`+"\n"+`broken`+"\n\n"+`{"kind":"b"}`+"\n"+`{"kind":"c"}`), func(l *host.Line) bool { l.MonoNS = 5; return l.Kind != "b" }))(t)
	if got := string(out); strings.Count(got, "\n") != 2 || !strings.Contains(got, `{"kind":"a","mono_ns":5`) || !strings.Contains(got, `"c"`) {
		t.Errorf("%s", got)
	}
}

type failingWriter struct{ after int }

func (f *failingWriter) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errors.New("full")
	}
	return len(p), nil
}

// TestWriteFails: a full disk is an error at any byte, for a bundle and for a trace.
func TestWriteFails(t *testing.T) {
	e := &bundleEntries{host: []byte("host"), cpu: []byte("cpu"), allocs: []byte("allocs")}
	var b bytes.Buffer
	write := func(w *failingWriter) error {
		b.Reset()
		return e.writeBundle(w, func(w2 io.Writer) error { _, err := w2.Write([]byte("trace")); return err }, func() error { return nil })
	}
	must.Do(t, write(&failingWriter{1 << 20}))
	for after := 0; after < 300; after += 7 {
		must.Error(t, write(&failingWriter{after}), "a disk that is full after %d bytes holds a recording", after)
	}
	no := errors.New("no")
	for i, err := range []error{e.writeBundle(&b, func(io.Writer) error { return no }, func() error { return nil }), e.writeBundle(&b, func(io.Writer) error { return nil }, func() error { return no })} {
		check.True(t, errors.Is(err, no), "step %d: %v", i, err)
	}
}
