// Package view serves the page of a report over HTTP, and an API for data that a report has no space for: each
// request, the timelines of goroutines and Ps, and which of them were in a function (see package inspect).
//
// It is intended for use on the same machine, and is read-only: GET and HEAD. It only answers requests that name
// an address or localhost as their host, so that a page of another site cannot reach it through a domain name that
// resolves to this machine (DNS rebinding), and none from pages of other origins. All texts of a trace are sent as
// JSON and inserted into the page as text.
package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// Options configure a Server.
type Options struct {
	// Page configures the page.
	Page html.Options
	// Remote allows requests from other machines: they may name any address as their host, but still no name
	// except localhost.
	Remote bool
	// ReadAgain, if not nil, starts a new recording, or reads that of one of the page's services. It is called when the page requests it.
	ReadAgain func(service string)
}

// A Server answers requests about one trace, and reports the progress while the trace is read. Many goroutines may
// use it concurrently.
type Server struct {
	opts    Options
	waiting []byte // page shown while a trace is read
	routes  map[string]func(*http.Request) (any, error)
	reading readingState

	mu    sync.RWMutex // read-locked by requests about the trace
	trace *inspect.Trace
	page  []byte
	// recording is the number of the recording that is shown, 0 if the trace cannot be recorded again.
	recording int
}

// New returns a Server without a trace, which reports the progress of reading.
func New(opts Options) (*Server, error) {
	opts.Page.Live = true
	var waiting bytes.Buffer
	if err := html.Waiting(&waiting); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, waiting: waiting.Bytes()}
	s.reading.init()
	s.routes = map[string]func(*http.Request) (any, error){
		"/api/facts":       s.facts,
		"/api/requests":    s.requests,
		"/api/request":     s.request,
		"/api/goroutines":  s.goroutines,
		"/api/functions":   s.functions,
		"/api/byfunction":  s.byFunction,
		"/api/area":        s.area,
		"/api/areastacks":  s.areaStacks,
		"/api/annotations": s.annotations,
		"/api/strips":      s.strips,
		"/api/moment":      s.moment,
	}
	return s, nil
}

// Show serves a trace and its report from now on. When it returns, no request uses the previous trace.
func (s *Server) Show(t *inspect.Trace, rep *report.Report) error {
	var page bytes.Buffer
	opts := s.opts.Page
	if s.opts.ReadAgain != nil {
		opts.Recording = s.recording + 1
	}
	if err := html.Write(&page, rep, opts); err != nil {
		return err
	}
	s.mu.Lock()
	s.trace, s.page, s.recording = t, page.Bytes(), opts.Recording
	s.mu.Unlock()
	s.reading.done(nil)
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// The page also has another policy, with the hashes of its script and style.
	h.Set("Content-Security-Policy", "frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if err := s.checkAllowed(r); err != nil {
		sendError(w, http.StatusForbidden, err)
		return
	}
	if r.URL.Path == "/api/again" && s.opts.ReadAgain != nil {
		s.readAgain(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		sendError(w, http.StatusMethodNotAllowed, fmt.Errorf("nothing can be changed here: only GET and HEAD"))
		return
	}
	switch r.URL.Path {
	case "/favicon.ico": // browsers request it automatically
		w.WriteHeader(http.StatusNoContent)
		return
	case "/api/reading":
		sendJSON(w, http.StatusOK, s.reading.takeProgress())
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r.URL.Path == "/" {
		page := s.page
		if s.reading.isBusy() {
			page = s.waiting
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", fmt.Sprint(len(page)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(page)
		}
		return
	}
	answer, ok := s.routes[r.URL.Path]
	switch {
	case !ok:
		sendError(w, http.StatusNotFound, fmt.Errorf("there is nothing here"))
		return
	case s.recording > 0 && r.URL.Query().Get("recording") != fmt.Sprint(s.recording):
		sendError(w, http.StatusGone, fmt.Errorf("a newer recording is shown now: load this page again"))
		return
	case s.trace == nil:
		h.Set("Retry-After", "1")
		sendError(w, http.StatusServiceUnavailable, fmt.Errorf("the trace is still being read"))
		return
	}
	v, err := answer(r)
	var wrong *parameterError
	switch {
	case r.Context().Err() != nil:
		return // the client has left
	case errors.As(err, &wrong):
		sendError(w, http.StatusBadRequest, err)
	case err != nil:
		sendError(w, http.StatusInternalServerError, err)
	default:
		sendJSON(w, http.StatusOK, v)
	}
}

// sendJSON answers with a status and v as JSON.
func sendJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// sendError answers with a status and the text of an error as JSON.
func sendError(w http.ResponseWriter, status int, err error) {
	sendJSON(w, status, map[string]string{"error": err.Error()})
}
