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
	if status == http.StatusCreated || status == http.StatusGatewayTimeout { // what it has, although it cannot say so
		r.got[id] = data
		r.names = append(r.names, q.Header.Get("Whylate-Recording-Name"))
	}
	w.WriteHeader(status)
}

// put makes a recording in a directory.
func put(t *testing.T, dir string, n int, text string) string {
	t.Helper()
	at := time.Unix(int64(1000+n), 0)
	name := fileName(at, KindSlow, 1, n)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
		t.Fatal(err)
	}
	return name
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	files, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		out = append(out, f.name)
	}
	return out
}

// TestUpload sends recordings over TLS with an authority of its own and a token
// that changes, and goes on after a restart.
func TestUpload(t *testing.T) {
	r := &receiver{token: "new", got: make(map[string][]byte)}
	srv := httptest.NewTLSServer(r)
	defer srv.Close()
	dir, etc := t.TempDir(), t.TempDir()
	ca, token := filepath.Join(etc, "ca.pem"), filepath.Join(etc, "token")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	first, second := put(t, dir, 1, strings.Repeat("first", 1000)), put(t, dir, 2, "second")
	opts := UploadOptions{URL: srv.URL, TokenFile: token, CAFile: ca}
	up, err := NewUploader(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return up.State().Failed > 0 })
	if s := up.State(); !strings.Contains(s.LastError, "401") || s.Sent != 0 {
		t.Errorf("with the old token: %+v", s)
	}
	if err := os.WriteFile(token, []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return up.State().Sent == 2 })
	up.Stop()
	if !slices.Equal(r.names, []string{first, second}) {
		t.Errorf("sent were %q", r.names)
	}
	found := false
	for _, data := range r.got {
		found = found || bytes.Equal(data, []byte(strings.Repeat("first", 1000)))
	}
	if !found || len(r.got) != 2 {
		t.Errorf("%d recordings arrived", len(r.got))
	}
	// What was sent is not sent again by the next process; what was not, is.
	put(t, dir, 3, "third")
	attempts := r.attempts
	if up, err = NewUploader(dir, opts); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return up.State().Sent == 1 })
	up.Stop()
	if r.attempts != attempts+1 || len(r.got) != 3 {
		t.Errorf("%d requests for one recording, %d arrived in all", r.attempts-attempts, len(r.got))
	}
	for _, name := range names(t, dir) {
		if !strings.HasSuffix(name, sentMark+nameSuffix) || kindOf(name) != KindSlow {
			t.Errorf("left is %s", name)
		}
	}
}

// TestUploadAnswers goes through what a collector may answer.
func TestUploadAnswers(t *testing.T) {
	for _, c := range []struct {
		answers       []int
		sent, refused uint64
		attempts      int
	}{
		{nil, 1, 0, 1},
		{[]int{504}, 1, 0, 2}, // it had it: known again by its id
		{[]int{503, 429}, 1, 0, 3},
		{[]int{302}, 1, 0, 2}, // not followed
		{[]int{409}, 1, 0, 1},
		{[]int{413}, 0, 1, 1},
		{[]int{422}, 0, 1, 1},
	} {
		r := &receiver{answers: c.answers, got: make(map[string][]byte), token: "t"}
		srv := httptest.NewServer(r)
		dir := t.TempDir()
		token := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
			t.Fatal(err)
		}
		name := put(t, dir, 1, "x")
		up := &Uploader{dir: dir, url: srv.URL + UploadPath, opts: UploadOptions{TokenFile: token}, client: &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, ctx: t.Context()}
		for range c.attempts {
			_, _ = up.sendAll()
		}
		if s := up.State(); s.Sent != c.sent || s.Refused != c.refused || r.attempts != c.attempts {
			t.Errorf("%v: %+v after %d attempts", c.answers, s, r.attempts)
		}
		if left := names(t, dir); len(left) != 1 || left[0] == name {
			t.Errorf("%v: left is %q", c.answers, left)
		}
		srv.Close()
	}
}

func TestBackoff(t *testing.T) {
	for n, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: maxBackoff, 1000: maxBackoff} {
		if low, high := backoff(n, 0), backoff(n, 0.999999); low != most/2 || high < most*99/100 || high > most {
			t.Errorf("after %d failures: %v to %v, want half of %v to all", n, low, high, most)
		}
	}
}

func TestUploadOptions(t *testing.T) {
	for _, o := range []UploadOptions{{}, {URL: "collector:4319"}, {URL: "ftp://x"}, {URL: "http://x", CAFile: "/nowhere"}, {URL: "http://x", CAFile: os.DevNull}} {
		if _, err := NewUploader(t.TempDir(), o); err == nil {
			t.Errorf("%+v makes sense", o)
		}
	}
}

// await waits for the uploader's goroutine.
func await(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain")
		}
	}
}
