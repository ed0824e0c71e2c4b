package flight

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// A receiver is a collector as docs/flight.md describes it, for reference.
type receiver struct {
	mu       sync.Mutex
	token    string
	answers  []int // statuses of the next requests; then 201
	attempts int
	got      map[string][]byte // by id
	names    []string
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attempts++
	if q.Method != http.MethodPost || q.URL.Path != UploadPath || q.Header.Get("Content-Type") != "application/vnd.whylate.recording+zip" || q.Header.Get("Content-Encoding") != "gzip" {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	if q.Header.Get("Authorization") != "Bearer "+r.token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	z, err := gzip.NewReader(q.Body)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	data, err := io.ReadAll(io.LimitReader(z, 64<<20))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	id := q.Header.Get("Whylate-Recording-Id")
	status := http.StatusCreated
	if len(r.answers) > 0 {
		status, r.answers = r.answers[0], r.answers[1:]
	} else if r.got[id] != nil {
		status = http.StatusConflict
	}
	if status == http.StatusCreated || status == http.StatusGatewayTimeout { // stored, although the proxy's answer says otherwise
		r.got[id] = data
		r.names = append(r.names, q.Header.Get("Whylate-Recording-Name"))
	}
	w.WriteHeader(status)
}

// putRecording writes a recording into a directory.
func putRecording(t *testing.T, dir string, n int, text string) string {
	t.Helper()
	end := time.Unix(int64(1000+n), 0)
	name := fileName(end, KindSlow, 1, n)
	must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	must.Do(t, os.Chtimes(filepath.Join(dir, name), end, end))
	return name
}

func recordingNames(t *testing.T, dir string) []string {
	t.Helper()
	files := must.Have(listRecordings(dir))(t)
	var out []string
	for _, f := range files {
		out = append(out, f.name)
	}
	return out
}

// TestUpload sends recordings over TLS with a private certificate authority and a
// token that changes, and continues after a restart.
func TestUpload(t *testing.T) {
	r := &receiver{token: "new", got: make(map[string][]byte)}
	srv := httptest.NewTLSServer(r)
	defer srv.Close()
	dir, etc := t.TempDir(), t.TempDir()
	ca, token := filepath.Join(etc, "ca.pem"), filepath.Join(etc, "token")
	must.Do(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	must.Do(t, os.WriteFile(token, []byte("old\n"), 0o600))
	first, second := putRecording(t, dir, 1, strings.Repeat("first", 1000)), putRecording(t, dir, 2, "second")
	opts := UploadOptions{URL: srv.URL, TokenFile: token, CAFile: ca}
	up := must.Have(startUploader(dir, opts))(t)
	waitFor(t, func() bool { return up.currentState().Failed > 0 })
	if s := up.currentState(); !strings.Contains(s.LastError, "401") || s.Sent != 0 {
		t.Errorf("with the old token: %+v", s)
	}
	must.Do(t, os.WriteFile(token, []byte("new\n"), 0o600))
	waitFor(t, func() bool { return up.currentState().Sent == 2 })
	up.stop()
	if !slices.Equal(slices.Sorted(slices.Values(r.names)), []string{first, second}) { // in either order, since one of them failed before
		t.Errorf("sent were %q", r.names)
	}
	found := false
	for _, data := range r.got {
		found = found || bytes.Equal(data, []byte(strings.Repeat("first", 1000)))
	}
	check.True(t, found && len(r.got) == 2, "%d recordings arrived", len(r.got))
	// The next process sends only the recordings that were not sent yet.
	putRecording(t, dir, 3, "third")
	attempts := r.attempts
	up = must.Have(startUploader(dir, opts))(t)
	waitFor(t, func() bool { return up.currentState().Sent == 1 })
	up.stop()
	check.True(t, r.attempts == attempts+1 && len(r.got) == 3,
		"%d requests for one recording, %d arrived in all", r.attempts-attempts, len(r.got))
	for _, name := range recordingNames(t, dir) {
		check.True(t, strings.HasSuffix(name, sentMark+nameSuffix) && kindOf(name) == KindSlow, "left is %s", name)
	}
}

// newSender returns an uploader without its goroutine, with one recording for each text.
func newSender(t *testing.T, url string, texts ...string) (up *uploader, names []string) {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(token, []byte("t"), 0o600))
	for i, text := range texts {
		names = append(names, putRecording(t, dir, i, text))
	}
	up = must.Have(newUploader(dir, UploadOptions{URL: url, TokenFile: token}))(t)
	t.Cleanup(up.client.CloseIdleConnections)
	return up, names
}

// sendAllNow calls sendAll as if all back-offs were over.
func sendAllNow(up *uploader) {
	up.queue.nextAllowed = time.Time{}
	for _, x := range up.queue.byName {
		x.retryAt = time.Time{}
	}
	up.sendAll()
}

// TestUploadAnswers tests a collector's answers with the client of startUploader: which are
// final, after which a recording is sent again, and after which it waits for another token.
func TestUploadAnswers(t *testing.T) {
	for _, c := range []struct {
		answers                []int
		sent, refused, retries uint64
		held                   int
	}{
		{nil, 1, 0, 0, 0},
		{[]int{504}, 1, 0, 1, 0}, // it was stored, and recognised by its id
		{[]int{503, 429}, 1, 0, 2, 0},
		{[]int{500, 502, 408, 501}, 1, 0, 4, 0},
		{[]int{301, 302, 307, 308}, 1, 0, 4, 0},
		{[]int{409}, 1, 0, 0, 0},
		{[]int{400}, 0, 1, 0, 0},
		{[]int{413}, 0, 1, 0, 0},
		{[]int{415}, 0, 1, 0, 0},
		{[]int{422}, 0, 1, 0, 0},
		{[]int{401}, 0, 0, 1, 1},
		{[]int{403}, 0, 0, 1, 1},
		{[]int{404}, 0, 0, 1, 1},
		{[]int{405}, 0, 0, 1, 1},
	} {
		r := &receiver{answers: c.answers, got: make(map[string][]byte), token: "t"}
		srv := httptest.NewServer(r)
		up, put := newSender(t, srv.URL, "x")
		for range 6 {
			sendAllNow(up)
		}
		s := up.currentState()
		if s.Sent != c.sent || s.Refused != c.refused || s.Failed != c.retries || s.Held != c.held || s.Waiting != c.held || (s.LastError == "") != (c.refused+c.retries == 0) {
			t.Errorf("%v: %+v", c.answers, s)
		}
		check.Equal(t, r.attempts, int(c.retries+c.sent+c.refused), "%v: requests", c.answers)
		if remaining := recordingNames(t, up.dir); len(remaining) != 1 || (remaining[0] == put[0]) != (c.held == 1) {
			t.Errorf("%v: left is %q", c.answers, remaining)
		}
		srv.Close()
	}
}

// TestUploadSkipsFailing has a collector that cannot store one of the recordings: the others
// arrive at once, and that one is retried until the collector can store it.
func TestUploadSkipsFailing(t *testing.T) {
	r := &receiver{got: make(map[string][]byte), token: "t"}
	var mu sync.Mutex
	bad := 0
	broken := true
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if broken && strings.Contains(q.Header.Get("Whylate-Recording-Name"), "-1-0.") {
			bad++
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		r.ServeHTTP(w, q)
	}))
	defer srv.Close()
	up, put := newSender(t, srv.URL, "bad", "a", "b", "c")
	go up.run()
	defer up.stop()
	waitFor(t, func() bool { return up.currentState().Sent == 3 })
	mu.Lock()
	check.True(t, bad != 0 && bad <= 2, "it was sent %d times before the others", bad)
	broken = false
	mu.Unlock()
	waitFor(t, func() bool { return up.currentState().Sent == 4 })
	check.True(t, slices.Equal(r.names, append(put[1:], put[0])), "sent were %q", r.names)
	if s := up.currentState(); s.Failed == 0 || s.Refused != 0 || !strings.Contains(s.LastError, "500") {
		t.Errorf("the state is %+v", s)
	}
}

// TestUploadHeld has a collector that accepts nothing from this sender: each recording is sent
// once, and again when the token has changed or the collector has accepted another one. If
// it is not accepted then, it counts as refused.
func TestUploadHeld(t *testing.T) {
	forbidden := map[string]bool{"-1-0.": true, "-1-1.": true}
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests++
		for part, isForbidden := range forbidden {
			if isForbidden && strings.Contains(q.Header.Get("Whylate-Recording-Name"), part) {
				w.WriteHeader(http.StatusForbidden)
				return
			}
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer srv.Close()
	up, _ := newSender(t, srv.URL, "a", "b")
	expect := func(name string, want UploadState, n int) {
		t.Helper()
		for range 4 {
			sendAllNow(up)
		}
		s := up.currentState()
		s.LastError = ""
		check.True(t, s == want && requests == n, "%s: %+v after %d requests, want %+v after %d", name, s, requests, want, n)
	}
	expect("all forbidden", UploadState{Failed: 2, Waiting: 2, Held: 2}, 2)
	must.Do(t, os.WriteFile(up.opts.TokenFile, []byte("other"), 0o600))
	expect("another token", UploadState{Failed: 4, Waiting: 2, Held: 2}, 4)
	forbidden["-1-1."] = false
	putRecording(t, up.dir, 2, "c")
	expect("it takes others", UploadState{Sent: 2, Refused: 1, Failed: 4}, 7)
}

// TestRedirectsAreNotFollowed tests that a recording and its token go to the collector's host
// alone, whatever that answers.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := 0
	otherServer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	defer otherServer.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		srv := httptest.NewServer(http.RedirectHandler(otherServer.URL, status))
		up, _ := newSender(t, srv.URL, "x")
		sendAllNow(up)
		if s := up.currentState(); elsewhere != 0 || s.Failed != 1 || s.Waiting != 1 || !strings.Contains(s.LastError, otherServer.URL) {
			t.Errorf("%d: %d requests elsewhere, the state is %+v", status, elsewhere, s)
		}
		srv.Close()
	}
}

// TestRetryAfterIsHonoured tests that no recording is sent before a collector's Retry-After
// has passed.
func TestRetryAfterIsHonoured(t *testing.T) {
	requests := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests++
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer srv.Close()
	up, _ := newSender(t, srv.URL, "a", "b", "c")
	up.sendAll()
	up.sendAll()
	if wait := time.Until(up.queue.nextAllowed); requests != 1 || wait < time.Minute || wait > 2*time.Minute {
		t.Errorf("%d requests, the next one in %v", requests, wait)
	}
}

// TestHugeAnswer tests that a collector's answer cannot fill the service's memory.
func TestHugeAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 100<<10))
	}))
	defer srv.Close()
	up, _ := newSender(t, srv.URL, "x")
	sendAllNow(up)
	check.True(t, up.currentState().Sent == 0 && up.currentState().Failed == 1, "the state is %+v", up.currentState())
}

func TestUploadOptions(t *testing.T) {
	for _, o := range []UploadOptions{{}, {URL: "collector:4319"}, {URL: "ftp://x"}, {URL: "http://x", CAFile: "/nowhere"}, {URL: "http://x", CAFile: os.DevNull}} {
		if _, err := startUploader(t.TempDir(), o); err == nil {
			t.Errorf("%+v makes sense", o)
		}
	}
}

// TestConnectionsEnd: a collector that stops answering costs a service no connection that stays.
func TestConnectionsEnd(t *testing.T) {
	tr := newTransport()
	for name, bound := range map[string]time.Duration{"an unused connection": tr.IdleConnTimeout, "a handshake": tr.TLSHandshakeTimeout, "a refusal of a body": tr.ExpectContinueTimeout} {
		check.True(t, bound >= time.Second && bound <= 5*time.Minute, "%s ends after %v", name, bound)
	}
}

// waitFor waits for a condition that the uploader's goroutine brings about.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		must.False(t, time.Now().After(end), "timeout")
	}
}
