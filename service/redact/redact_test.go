package redact

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"go/build"
	"io"
	"runtime"
	"runtime/trace"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/tracebatch"
)

// record returns a trace of this process with texts of every kind. Each secret text
// contains the word "secret".
func record(t testing.TB) []byte {
	t.Helper()
	if trace.IsEnabled() {
		t.Skip("a trace is being recorded already")
	}
	var b bytes.Buffer
	must.Do(t, trace.Start(&b))
	ctx, task := trace.NewTask(context.Background(), "secret-task")
	region := trace.StartRegion(ctx, "secret-region")
	trace.Log(ctx, "secret-key", "secret-message")
	trace.Log(ctx, "chan receive", "secret-of-a-word-of-the-runtime")
	trace.Log(ctx, markBegin+"http GET /secret-route", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	trace.Log(ctx, markBegin+"http", "secret-parent")
	trace.Log(ctx, markSpan, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203332-01")
	trace.Log(ctx, markEnd+"http 2xx GET /secret-route", "")
	trace.Log(ctx, markEnd+"http 2xx", "")
	trace.Log(ctx, markEnd+"secret-word", "")
	trace.Log(ctx, hostSample, `{"kind":"sample","run_ns":1}`)
	trace.Log(ctx, hostSample, "secret-host")
	for range 3000 { // more than one batch of strings
		trace.Log(ctx, "k", "secret")
	}
	c := make(chan int)
	go func() { time.Sleep(time.Millisecond); close(c) }()
	<-c
	runtime.GC()
	region.End()
	task.End()
	trace.Stop()
	return b.Bytes()
}

func redacted(t testing.TB, data []byte, o Options, piece int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, o)
	for len(data) > 0 {
		n := min(piece, len(data))
		must.Have(w.Write(data[:n]))(t)
		data = data[n:]
	}
	must.Do(t, w.Close())
	return b.Bytes()
}

// TestWriter hides all texts that can be hidden: no secret remains, and other texts
// stay. It fails if a role is ignored or a batch is copied unchanged.
func TestWriter(t *testing.T) {
	data := record(t)
	stay := []string{"redact.record", "sleep", "chan receive", `{"kind":"sample","run_ns":1}`, "whylate.mark/1 begin http", "whylate.mark/1 end http 2xx", "runtime.GC"}
	for name, m := range map[string]Mode{"hash": Hash, "drop": Drop} {
		o := Options{Logs: m, Tasks: m, Routes: m, Parents: m, Files: m, Key: []byte("k")}
		out := redacted(t, data, o, 1<<20)
		for _, secret := range []string{"secret", "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "b7ad6b7169203332", "redact_test.go", "/home/", build.Default.GOROOT} {
			check.False(t, secret != "" && bytes.Contains(out, []byte(secret)), "%s: %q is left", name, secret)
		}
		for _, text := range stay {
			check.True(t, bytes.Contains(out, []byte(text)), "%s: %q is gone", name, text)
		}
		check.False(t, !bytes.Contains(out, []byte("runtime/proc.go")) && !bytes.Contains(out, []byte("runtime/mgc.go")),
			"%s: files of the standard library are not trimmed", name)
		check.True(t, bytes.Equal(out, redacted(t, data, o, 7)), "%s: it depends on how the trace is cut into writes", name)
	}
	check.True(t, bytes.Equal(redacted(t, data, Options{}, 100), data), "nothing is to be hidden, but the trace has changed")
	// Each option alone: the other texts stay.
	for _, c := range []struct {
		o            Options
		hidden, stay string
	}{
		{Options{Logs: Drop}, "secret-key", "secret-task"}, {Options{Logs: Drop}, "secret-message", "secret-route"},
		{Options{Tasks: Hash}, "secret-task", "secret-key"}, {Options{Tasks: Hash}, "secret-region", "secret-message"},
		{Options{Routes: Hash}, "secret-route", "secret-key"}, {Options{Parents: Hash}, "b7ad6b7169203331", "secret-route"},
		{Options{Files: Trim}, "/home/", "redact_test.go"}, {Options{Files: Hash}, "redact_test.go", "secret-key"},
	} {
		out := redacted(t, data, c.o, 1<<20)
		check.True(t, !bytes.Contains(out, []byte(c.hidden)) && bytes.Contains(out, []byte(c.stay)),
			"%+v: %q is left, or %q is gone", c.o, c.hidden, c.stay)
	}
	// Without a key, hashes differ.
	o := Options{Tasks: Hash}
	check.False(t, bytes.Equal(redacted(t, data, o, 1<<20), redacted(t, data, o, 1<<20)), "two writers have one key")
}

// TestUnknownEvent tests that a trace whose events cannot be read loses more texts,
// not fewer.
func TestUnknownEvent(t *testing.T) {
	data := record(t)
	knownTexts := eventLengths[evUserLog]
	defer func() { eventLengths[evUserLog] = knownTexts }()
	eventLengths[evUserLog] = 0
	out := redacted(t, data, Options{Logs: Drop}, 1<<20)
	for _, hidden := range []string{"secret-key", "secret-message", "secret-route", "secret-host"} {
		check.False(t, bytes.Contains(out, []byte(hidden)), "%q is left", hidden)
	}
}

func TestParent(t *testing.T) {
	o := Options{Parents: Hash, Key: []byte("k")}
	const p = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a, ok := o.redactTraceparent(p)
	b, _ := o.redactTraceparent(p[:36] + "0000000000000001-01")
	check.True(t, ok && len(a) == 55 && a[:3] == "00-" && a[3:35] == b[3:35] && a[36:52] != b[36:52] && !strings.Contains(a, "0af765"),
		"%q and %q", a, b)
	if _, ok := o.redactTraceparent(strings.Replace(p, "af", "zz", 1)); ok {
		t.Error("what is no number is an id")
	}
}

func TestCheck(t *testing.T) {
	for _, o := range []Options{{Logs: Trim}, {Files: 7}, {Routes: 9}} {
		check.Error(t, o.Check(), "%+v makes sense", o)
		if _, err := NewWriter(io.Discard, o).Write([]byte("go 1.26 trace\x00\x00\x00")); err == nil {
			t.Errorf("%+v writes", o)
		}
	}
}

// TestHeaderOnly: a trace that ends after its header keeps it.
func TestHeaderOnly(t *testing.T) {
	header := record(t)[:16]
	check.Equal(t, string(redacted(t, header, Options{Logs: Drop}, 16)), string(header), "the header becomes")
}

// TestCut tests damaged traces: an incomplete batch is left out and reported.
func TestCut(t *testing.T) {
	data := record(t)
	o := Options{Logs: Drop, Tasks: Drop}
	w := NewWriter(io.Discard, o)
	must.Have(w.Write(data[:len(data)-3]))(t)
	if err := w.Close(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %v", err)
	}
	if _, err := w.Write(nil); err == nil {
		t.Error("a closed writer writes")
	}
	for _, bad := range [][]byte{[]byte("hello, this is no trace"), append(append([]byte(nil), data[:tracebatch.HeaderLen]...), 99),
		binary.AppendUvarint(append(append([]byte(nil), data[:tracebatch.HeaderLen]...), tracebatch.Events, 1, 1, 1), tracebatch.MaxData+1)} {
		if _, err := NewWriter(io.Discard, o).Write(bad); err == nil {
			t.Errorf("%q is a trace", bad)
		}
	}
}

// FuzzWriter writes arbitrary bytes: the Writer must not panic, and texts that it should
// hide must not be in its output.
func FuzzWriter(f *testing.F) {
	data := record(f)
	f.Add(data[:min(len(data), 60<<10)])
	f.Fuzz(func(t *testing.T, data []byte) {
		var b bytes.Buffer
		w := NewWriter(&b, Options{Logs: Drop, Tasks: Drop, Routes: Drop, Parents: Drop, Files: Drop})
		if _, err := w.Write(data); err != nil {
			return
		}
		_ = w.Close() // cut
	})
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("no random numbers") }

// TestNewKey tests that a key cannot be guessed without the system's random numbers either.
func TestNewKey(t *testing.T) {
	a, b := newKey(failing{}), newKey(failing{})
	check.True(t, len(a) == 32 && !bytes.Equal(a, b) && bytes.Count(a, []byte{0}) <= 8, "keys are %x and %x", a, b)
}
