package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testprog"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/report"
)

// TestReadFromPipe: a trace from a pipe is read the second time from memory and has the same report as one from a file.
// It fails if the report depends on the source, or if the buffer loses or repeats bytes.
func TestReadFromPipe(t *testing.T) {
	data := testprog.Service(t, "load-inside").Trace
	text := func(r io.Reader, reopen func() (io.ReadCloser, error)) (*report.Report, string) {
		rep := must.Have(Explain(context.Background(), r, Options{Reopen: reopen}))(t)
		b := must.Have(json.Marshal(rep))(t)
		return rep, string(b)
	}
	joined := func(rep *report.Report) bool {
		return slices.ContainsFunc(rep.Groups, func(g report.Group) bool { return g.Peer.Followed() })
	}
	rep, want := text(bytes.NewReader(data), nil)
	must.True(t, joined(rep), "no path goes on in the process's own server")
	if _, got := text(struct{ io.Reader }{bytes.NewReader(data)}, nil); got != want {
		t.Error("from a pipe, it tells something else")
	}
	rep, _ = text(bytes.NewReader(data), func() (io.ReadCloser, error) { return nil, errors.New("it is gone") })
	if joined(rep) || !slices.ContainsFunc(rep.Input.Warnings, func(w report.Warning) bool { return w.Code == "peer" }) {
		t.Errorf("that it could not be read again is not said: %v", rep.Input.Warnings)
	}
}

// TestWrongRereadGuess: a reading before another one leaves sums out. If the guess was wrong, the report must equal
// that of a complete reading. It fails if findings, predictions or slow requests are lost, or if nothing is ever
// guessed.
func TestWrongRereadGuess(t *testing.T) {
	data := testprog.Service(t, "load-inside").Trace
	r := must.Have(readTrace(context.Background(), bytes.NewReader(data), Options{Slowest: 3, Modules: modules.New(modules.Options{})}, nil, rereadMaybe))(t)
	check.True(t, r.pass.HasDroppedOptionalSums() && r.findSelfWaits() != nil,
		"guess that requests wait for this process: %v; they do: %v", r.pass.HasDroppedOptionalSums(), r.findSelfWaits() != nil)
	text := func(isForced bool) string {
		rep := must.Have(Explain(context.Background(), bytes.NewReader(data), Options{isRereadForced: isForced}))(t)
		b := must.Have(json.Marshal(rep))(t)
		return string(b)
	}
	data = testprog.Service(t, "lock-chain").Trace
	check.Equal(t, text(true), text(false), "after a wrong guess, the report tells something else")
}

// An endlessReader returns bytes without end.
type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) { return len(p), nil }

// TestBufferIsBounded: the buffer of a trace that can be read only once has a bound. It fails if memory grows with the
// trace.
func TestBufferIsBounded(t *testing.T) {
	for _, tc := range []struct {
		n      int64
		isKept bool
	}{{maxBuffered, true}, {maxBuffered + 1, false}} {
		reader, reopen, _ := reopenable(io.LimitReader(endlessReader{}, tc.n))
		if n, err := io.Copy(io.Discard, struct{ io.Reader }{reader}); n != tc.n || err != nil {
			t.Fatal(n, err)
		}
		r2, err := reopen()
		check.Equal(t, tc.isKept, err == nil, "of %d bytes: %v", tc.n, err)
		if err == nil {
			if n, err := io.Copy(io.Discard, r2); n != tc.n || err != nil {
				t.Errorf("%d bytes come again, %v", n, err)
			}
		} else if k := reader.(*bufferingReader); k.buf != nil {
			t.Errorf("%d bytes are still held", len(k.buf))
		}
	}
}

// TestPeersOfPart: which groups wait for which is decided by the whole trace. It fails if a report on a short interval
// ends paths at the socket because the interval has too few requests to find the server.
func TestPeersOfPart(t *testing.T) {
	data := testprog.Service(t, "load-inside").Trace
	rep := must.Have(Explain(context.Background(), bytes.NewReader(data), Options{Selection: pass.Selection{To: 60 * time.Millisecond}}))(t)
	for i := range rep.Groups {
		if g := &rep.Groups[i]; g.Count >= 20 {
			t.Fatalf("%s has %d requests: enough to know by themselves", g.Name, g.Count)
		}
	}
	check.True(t, slices.ContainsFunc(rep.Groups, func(g report.Group) bool { return g.Peer.Followed() }), "no path goes on in the process's own server")
}
