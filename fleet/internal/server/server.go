// Package server receives recordings over HTTP, and serves the pages and the API that show the state of a fleet. Uploads are
// limited by rate, size, concurrency and free disk space. Readers need a token unless the server listens on loopback only.
package server

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/whylate/whylate/fleet/internal/metrics"
	"github.com/whylate/whylate/fleet/internal/raw"
	"github.com/whylate/whylate/fleet/internal/store"
	"github.com/whylate/whylate/service/flight"
)

// A Server serves one store and its files.
type Server struct {
	Store   *store.Store
	Files   raw.Store
	Log     *slog.Logger
	Metrics *metrics.Metrics
	Bounds  Bounds
	// Ingest enables uploads. Query enables pages and API.
	Ingest, Query bool
	// Loopback means that only this machine can connect. Then every user of the machine may read without a token.
	Loopback bool

	limiters     limiters
	diskSpace    diskSpace
	receiveSlots chan struct{}
	reportSlots  chan struct{}
	viewers      viewers
	draining     atomic.Bool
	slotTimeout  time.Duration // for which an upload waits for a slot
	readTimeout  time.Duration // for which a client may take to read maxWriteBytes
}

// Drain makes the server report that it is not ready, so that load balancers stop sending requests.
func (s *Server) Drain() { s.draining.Store(true) }

// Handler returns the handler of all paths. Fields must be set before.
func (s *Server) Handler() http.Handler {
	s.receiveSlots, s.reportSlots = make(chan struct{}, maxReceiving), make(chan struct{}, 2)
	s.slotTimeout, s.readTimeout = cmp.Or(s.slotTimeout, 5*time.Second), cmp.Or(s.readTimeout, 30*time.Second)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", s.serveReadiness)
	if s.Ingest {
		mux.HandleFunc("POST "+flight.UploadPath, s.serveUpload)
	}
	readerMux := http.NewServeMux()
	readerMux.Handle("GET /metrics", bufferAnswer(s.Metrics.Handler()))
	if s.Query {
		s.addPages(readerMux)
		s.addAPI(readerMux)
	}
	mux.Handle("/", s.requireReader(readerMux))
	return s.endStalled(s.guard(mux))
}

// serveReadiness answers GET /readyz: status 200 if this process accepts requests and its store answers, else 503.
func (s *Server) serveReadiness(w http.ResponseWriter, r *http.Request) {
	if s.draining.Load() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	if err := s.Store.Ping(r.Context()); err != nil {
		s.Log.Error("readiness", "error", err)
		http.Error(w, "the store does not answer", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// writeError answers with the status and text of err. An error without a status is logged, and the answer is 500 without its text.
func (s *Server) writeError(w http.ResponseWriter, err error) {
	if status, ok := errors.AsType[huma.StatusError](err); ok {
		http.Error(w, status.Error(), status.GetStatus())
		return
	}
	s.Log.Error("query", "error", err)
	http.Error(w, "the store does not answer", http.StatusInternalServerError)
}
