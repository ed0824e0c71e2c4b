package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/internal/testing/check"
)

// TestIsLoopback: a server on loopback answers under the names of this machine only, and not under an address of its network.
func TestIsLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:4319": true, "127.0.0.1": true, "127.0.0.2:80": true, "::1": true, "[::1]:4319": true,
		"": false, "evil.example": false, "localhost.evil.example:4319": false, "10.1.2.3": false, "192.168.0.7:4319": false, "[fe80::1]:4319": false,
	} {
		check.Equal(t, isLoopback(host), want, "%q", host)
	}
}

// TestReaders: if the server is not on loopback, reading needs a token.
func TestReaders(t *testing.T) {
	s, _ := newTestServer(t)
	s.Loopback = false
	h := s.Handler()
	for _, path := range []string{"/", "/metrics", "/v1/findings", "/openapi.json", "/recordings/" + strings.Repeat("a", 32) + "/raw"} {
		for _, token := range []string{"", "Bearer wrong", "Bearer right", "Basic eDp3cm9uZw=="} {
			check.Equal(t, request(h, "GET", path, "", "Authorization", token).Code, http.StatusUnauthorized, "%s with %q", path, token)
		}
		for _, token := range []string{"Bearer reader", "Basic eDpyZWFkZXI="} {
			if w := request(h, "GET", path, "", "Authorization", token); w.Code == http.StatusUnauthorized {
				t.Errorf("%s with %q: %d", path, token, w.Code)
			}
		}
	}
	check.Equal(t, request(h, "GET", "/healthz", "").Code, http.StatusOK, "health")
	if n, err := s.Store.RevokeTokens(t.Context(), store.ReadScope, "ann"); n != 1 || err != nil {
		t.Error(n, err)
	}
	check.Equal(t, request(h, "GET", "/", "", "Authorization", "Bearer reader").Code, http.StatusUnauthorized, "a revoked token")
}

// TestHeaders: what browsers may do with each kind of answer.
func TestHeaders(t *testing.T) {
	s, h := newTestServer(t)
	id := addExplained(t, s, h, bareTrace+"1", "v1", hostileReport(1e6))
	const own, ofReports = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'", "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
	for path, want := range map[string][4]string{
		"/":                                      {"text/html; charset=utf-8", own},
		"/recordings/" + id + "/report":          {"text/html; charset=utf-8", ofReports},
		"/compare?service=shop&old=v1&new=v1":    {"text/html; charset=utf-8", ofReports},
		"/recordings/" + id + "/raw":             {"application/octet-stream", own, `attachment; filename="` + id[:12] + `.whylate"`},
		"/v1/findings":                           {"application/json", own},
		"/recordings/" + strings.Repeat("a", 32): {"text/plain; charset=utf-8", own},
	} {
		g := request(h, "GET", path, "").Header()
		got := [4]string{g.Get("Content-Type"), g.Get("Content-Security-Policy"), g.Get("Content-Disposition")}
		check.Equal(t, got, want, "%s", path)
		check.True(t, g.Get("X-Content-Type-Options") == "nosniff" && g.Get("Referrer-Policy") == "no-referrer" && g.Get("Cache-Control") == "no-store", "%s: %v", path, g)
	}
	w := send(h, bareTrace+"2")
	check.True(t, w.Code == http.StatusAccepted && w.Header().Get("Content-Type") == "application/json" && strings.HasPrefix(w.Body.String(), `{"id":"`), "%d %v %s", w.Code, w.Header(), w.Body)
	for _, path := range []string{"/v1/series", "/v1/pods"} {
		w := request(h, "GET", path, "")
		check.True(t, w.Code == http.StatusUnprocessableEntity && strings.Contains(w.Body.String(), "name a service"), "%s: %d %s", path, w.Code, w.Body)
	}
	check.True(t, strings.Contains(request(h, "GET", "/openapi.json", "").Body.String(), `"required":true},"responses":{"202":`), "an upload needs no body")
}
