package server

import (
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/whylate/whylate/fleet/internal/store"
)

// guard sets the headers of every answer. On loopback it refuses other host names: by DNS rebinding, a web page whose host name
// resolves to this machine could read the answers.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Loopback && !isLoopback(r.Host) {
			s.Metrics.DeniedRequests.WithLabelValues("host").Inc()
			http.Error(w, "this fleet answers on loopback only: ask for localhost or 127.0.0.1", http.StatusForbidden)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store") // pages must not stay in a cache after the token has expired
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a host, with or without a port, is localhost or a loopback address.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// requireReader requires a reader's token unless the server is on loopback. A browser sends the token as the password.
func (s *Server) requireReader(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.Loopback {
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok {
				_, token, _ = r.BasicAuth()
			}
			name, err := "", error(nil)
			if token != "" {
				name, err = s.Store.TokenName(r.Context(), token, store.ReadScope, time.Now())
			}
			if err != nil {
				s.writeError(w, err)
				return
			}
			if name == "" {
				s.Metrics.DeniedRequests.WithLabelValues("token").Inc()
				w.Header().Set("WWW-Authenticate", `Basic realm="whylate fleet: the password is a reader's token"`)
				http.Error(w, "no valid token: make one with whylate-fleet reader NAME", http.StatusUnauthorized)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// serviceOf returns the service that the token of a request belongs to. Without a valid token the error has status 401.
func (s *Server) serviceOf(r *http.Request, now time.Time) (service string, err error) {
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		if service, err = s.Store.TokenName(r.Context(), token, store.SendScope, now); err != nil {
			return "", err
		}
	}
	if service == "" {
		return "", refuse(http.StatusUnauthorized, "token", "no valid token: make one with whylate-fleet token SERVICE")
	}
	return service, nil
}
