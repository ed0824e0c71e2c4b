package record

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// TestCheckBounds checks the bounds of duration and size, which depend on the requested duration.
func TestCheckBounds(t *testing.T) {
	for _, c := range []struct {
		last      time.Duration
		bytes     int64
		isRefused bool
	}{
		{3 * time.Second, 1 << 20, false}, {33 * time.Second, 1 << 20, false}, {36*time.Second + 1, 1 << 20, true},
		{time.Second, 256<<20 + 3*512<<20, false}, {time.Second, 256<<20 + 3*512<<20 + 1, true},
	} {
		s := &Stream{client: &client{options: Options{Grace: 15 * time.Second}}, seconds: 3, result: Result{Window: 3 * time.Second}, lastByteTime: c.last}
		s.receivedBytes.Store(c.bytes)
		if err := s.checkBounds(); (err != nil) != c.isRefused {
			t.Errorf("%d bytes after %v: %v", c.bytes, c.last, err)
		}
	}
}

// TestEndlessServer records from a server that sends a byte now and then without end.
func TestEndlessServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes twice the second of the shortest trace and the grace")
	}
	t.Parallel()
	stop := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write([]byte("go 1.26 trace\x00\x00\x00"))
		for {
			select {
			case <-stop:
				return
			case <-r.Context().Done():
				return
			case <-time.After(50 * time.Millisecond):
				w.Write([]byte{1})
				w.(http.Flusher).Flush()
			}
		}
	}))
	defer srv.Close()
	defer close(stop)
	s, err := Open(context.Background(), srv.URL, Options{Duration: time.Second, NoCPU: true, NoAllocs: true, Grace: 2 * time.Second})
	must.Do(t, err)
	defer s.Close()
	_, err = io.Copy(io.Discard, s)
	var e *Error
	check.True(t, errors.As(err, &e) && e.Kind == Cut && errors.Is(err, io.ErrUnexpectedEOF), "the recording ended with %v", err)
	if r := s.Result(); !r.Partial || len(r.Warnings) != 1 || r.Warnings[0].Code != WarnCut {
		t.Errorf("partial %v, warnings %v", r.Partial, r.Warnings)
	}
}
