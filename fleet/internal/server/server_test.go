package server

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/report"
)

func fleet(t *testing.T) *Server {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(filepath.Join(dir, "fleet.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	if err := st.AddToken(t.Context(), "right", "shop", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := st.AddToken(t.Context(), "old", "shop", time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	return &Server{Store: st, Raw: dir, Log: slog.New(slog.DiscardHandler)}
}

func ask(s *Server, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// TestNobodyComesIn: who has no right, or sends no recording, is refused and leaves nothing in the queue.
func TestNobodyComesIn(t *testing.T) {
	s := fleet(t)
	const trace = "go 1.26 trace\x00\x00\x00"
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	copy(zeros, trace)
	for range maxFile>>20 + 1 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, body string
		header     []string
		status     int
	}{
		{"no token", trace, nil, http.StatusUnauthorized},
		{"a wrong token", trace, []string{"Authorization", "Bearer wrong"}, http.StatusUnauthorized},
		{"an expired token", trace, []string{"Authorization", "Bearer old"}, http.StatusUnauthorized},
		{"another service's token", trace, []string{"Authorization", "Bearer right", "Whylate-Service", "bank"}, http.StatusForbidden},
		{"no recording", "hello there", []string{"Authorization", "Bearer right"}, http.StatusUnsupportedMediaType},
		{"nothing", "", []string{"Authorization", "Bearer right"}, http.StatusBadRequest},
		{"a damaged zip", "PK\x03\x04....", []string{"Authorization", "Bearer right"}, http.StatusBadRequest},
		{"a bomb", bomb.String(), []string{"Authorization", "Bearer right", "Content-Encoding", "gzip"}, http.StatusRequestEntityTooLarge},
	} {
		if w := ask(s, "POST", "/v1/recordings", c.body, c.header...); w.Code != c.status {
			t.Errorf("%s: %d %s, want %d", c.what, w.Code, w.Body, c.status)
		}
	}
	if n, err := s.Store.Queued(t.Context(), "shop"); n != 0 || err != nil {
		t.Errorf("%d recordings wait, %v", n, err)
	}
	if w := ask(s, "GET", "/recordings/..%2Ffleet.db/raw", ""); w.Code != http.StatusNotFound {
		t.Errorf("a path as an id: %d", w.Code)
	}
	r := httptest.NewRequest("GET", "http://evil.example/", nil)
	w := httptest.NewRecorder()
	if s.Handler().ServeHTTP(w, r); w.Code != http.StatusForbidden {
		t.Errorf("another name for this machine: %d", w.Code)
	}
}

// TestOnce: the same bytes twice are one recording, which is claimed once, and a report that is written twice counts once.
func TestOnce(t *testing.T) {
	s := fleet(t)
	for range 2 {
		if w := ask(s, "POST", "/v1/recordings", "go 1.26 trace\x00\x00\x00", "Authorization", "Bearer right", "Whylate-Version", "v1"); w.Code != http.StatusAccepted {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	now := time.Now()
	r, err := s.Store.Claim(t.Context(), now, time.Minute)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	if again, err := s.Store.Claim(t.Context(), now, time.Minute); again != nil || err != nil {
		t.Errorf("claimed twice: %v %v", again, err)
	}
	if after, err := s.Store.Claim(t.Context(), now.Add(2*time.Minute), time.Minute); after == nil || err != nil || after.Tries != 2 {
		t.Errorf("after the lease: %+v %v", after, err)
	}
	was := int64(10e6)
	rep := &report.Report{
		Groups: []report.Group{{ID: "g1", Name: "GET /x", Count: 100, Histogram: [][2]int64{{1e6, 60}, {1e7, 40}}}},
		Findings: []report.Finding{{Group: "g1", Code: "x", Severity: report.SeverityHigh, Title: "<script>alert(1)</script>",
			Predicted: &report.Predicted{WasP50NS: &was, P50NS: report.Estimate{Est: 4e6}}}},
	}
	for range 2 {
		if err := s.Store.Finish(t.Context(), r.ID, now, rep); err != nil {
			t.Fatal(err)
		}
	}
	v, err := s.Store.Versions(t.Context(), "shop")
	if err != nil || len(v) != 1 || v[0].Requests != 100 || v[0].P50NS != 1e6 || v[0].P99NS != 1e7 || v[0].Version != "v1" {
		t.Errorf("%+v %v", v, err)
	}
	f, err := s.Store.Findings(t.Context(), "")
	if err != nil || len(f) != 1 || f[0].WinNS != 600e6 || f[0].FirstIn != "v1" {
		t.Errorf("%+v %v", f, err)
	}
	if w := ask(s, "GET", "/", ""); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "<script>") || !strings.Contains(w.Body.String(), "&lt;script&gt;") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
