package server

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
)

// stuckWriter is a client that does not read until end is closed.
type stuckWriter struct {
	*httptest.ResponseRecorder
	started, end chan struct{}
	startOnce    sync.Once
}

func (s *stuckWriter) Write(b []byte) (int, error) {
	s.startOnce.Do(func() { close(s.started) })
	<-s.end
	return len(b), nil
}

// TestSlowReaders: clients that do not read their answers do not block others.
func TestSlowReaders(t *testing.T) {
	s, h := newTestServer(t)
	id := addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	addExplained(t, s, h, bareTrace+"2", "v2", hostileReport(2e6))
	var slow sync.WaitGroup
	end := make(chan struct{})
	defer slow.Wait()
	defer close(end)
	paths := []string{"/recordings/" + id + "/report", "/compare?service=shop&old=v1&new=v2", "/v1/report?service=shop&version=v1", "/metrics", "/", "/recordings/" + id + "/raw"}
	for _, path := range paths {
		for range 2 * cap(s.reportSlots) {
			w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), started: make(chan struct{}), end: end}
			slow.Go(func() { h.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1"+path, nil)) })
			select {
			case <-w.started:
			case <-time.After(time.Minute):
				t.Fatalf("%s is not answered while others do not read it", path)
			}
		}
	}
	for _, path := range paths {
		if w := request(h, "GET", path, ""); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// deadlineWriter records deadlines and the bytes written under each.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	written   []int
}

func (d *deadlineWriter) SetWriteDeadline(deadline time.Time) error {
	d.deadlines, d.written = append(d.deadlines, deadline), append(d.written, 0)
	return nil
}

func (d *deadlineWriter) Write(b []byte) (int, error) {
	if len(d.deadlines) > 0 {
		d.written[len(d.written)-1] += len(b)
	}
	return d.ResponseRecorder.Write(b)
}

// TestDeadlines: each part of an answer has its own deadline, and so has an answer without a body.
func TestDeadlines(t *testing.T) {
	s, h := newTestServer(t)
	large := addExplained(t, s, h, bareTrace+strings.Repeat("x", 10*maxWriteBytes), "v1", hostileReport(1e6))
	for path, minDeadlines := range map[string]int{"/": 3, "/healthz": 3, "/recordings/" + large + "/raw": 12, "/nothing": 3} {
		w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		begin := time.Now()
		h.ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1"+path, nil))
		check.True(t, len(w.deadlines) >= minDeadlines, "%s has %d deadlines, want %d", path, len(w.deadlines), minDeadlines)
		for i, deadline := range w.deadlines {
			if deadline.Before(begin.Add(s.readTimeout)) || w.written[i] > maxWriteBytes {
				t.Errorf("%s: %d bytes within %v", path, w.written[i], deadline.Sub(begin))
			}
		}
	}
}

// TestUnreadAnswer: the server ends an answer that the client does not read.
func TestUnreadAnswer(t *testing.T) {
	s, h := newTestServer(t)
	id := addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	if err := os.Truncate(filepath.Join(string(s.Files.(raw.Dir)), id), 64<<20); err != nil { // more than the buffers of a connection
		t.Fatal(err)
	}
	s.readTimeout = 50 * time.Millisecond
	h = s.Handler()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	c := must.Have(net.Dial("tcp", server.Listener.Addr().String()))(t)
	defer c.Close()
	must.Have(io.WriteString(c, "GET /recordings/"+id+"/raw HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"))(t)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the server waits for a client that does not read")
	}
}

// TestDeadlineOfEarlierAnswer: on a connection whose previous deadline has passed, the next answer is still complete.
func TestDeadlineOfEarlierAnswer(t *testing.T) {
	s, _ := newTestServer(t)
	s.readTimeout = time.Second
	h := s.Handler()
	var passed bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if passed { // as after the deadline of the first answer
			_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
		}
		passed = true
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	for range 2 {
		for _, path := range []string{"/healthz", "/"} {
			res, err := server.Client().Get(server.URL + path)
			must.Do(t, err)
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			check.True(t, err == nil && res.StatusCode == http.StatusOK && len(body) != 0, "%s: %d %q %v", path, res.StatusCode, body, err)
		}
	}
}
