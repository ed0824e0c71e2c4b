// Package view serves the page of a report over HTTP, and beside it answers
// about what a report has no room for: every request, timelines of goroutines
// and Ps, who was in which function (see package inspect).
//
// It is meant for the machine that it runs on, and reads only: GET and HEAD.
// Answers go to those who name this server as their host, so that a page of
// another site cannot reach it by a name of its own that leads here (DNS
// rebinding), and not to pages of other origins. All text of a trace goes out
// as JSON and is put into the page as text.
package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/whylate/whylate/internal/viewer/inspect"
	"github.com/whylate/whylate/report"
	"github.com/whylate/whylate/report/html"
)

// Options say how a trace is served.
type Options struct {
	// Page says how the page is written.
	Page html.Options
	// Remote lets others than this machine in: requests may then name any
	// address as their host, but still no name other than localhost.
	Remote bool
	// RecordAgain, if not nil, is called when the page asks for a new recording.
	RecordAgain func()
}

// A Server answers about one trace, and before that how far reading it is.
// Many goroutines may use it at once.
type Server struct {
	opts    Options
	waiting []byte // the page while a trace is read
	routes  map[string]func(*http.Request) (any, error)
	reading readingState

	mu    sync.RWMutex // held for reading by who answers about the trace
	trace *inspect.Trace
	page  []byte
	// recording is the number of the recording that is shown, 0 if there is no other.
	recording int
}

// New returns a Server that has no trace yet: it says how far reading is.
func New(opts Options) (*Server, error) {
	opts.Page.Live = true
	var waiting bytes.Buffer
	if err := html.Waiting(&waiting); err != nil {
		return nil, err
	}
	s := &Server{opts: opts, waiting: waiting.Bytes()}
	s.reading.init()
	s.routes = map[string]func(*http.Request) (any, error){
		"/api/facts":      s.facts,
		"/api/requests":   s.requests,
		"/api/request":    s.request,
		"/api/goroutines": s.goroutines,
		"/api/functions":  s.functions,
		"/api/byfunction": s.byFunction,
		"/api/area":       s.area,
		"/api/strips":     s.strips,
		"/api/moment":     s.moment,
	}
	return s, nil
}

// Show serves a trace and the report about it from now on. When it returns,
// nobody uses the trace that was shown before.
func (s *Server) Show(t *inspect.Trace, rep *report.Report) error {
	var page bytes.Buffer
	opts := s.opts.Page
	if s.opts.RecordAgain != nil {
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

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	// The page has a policy of its own beside this one, with the hashes of its
	// script and style.
	h.Set("Content-Security-Policy", "frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	if err := s.checkAllowed(r); err != nil {
		sendError(w, http.StatusForbidden, err)
		return
	}
	if r.URL.Path == "/api/again" && s.opts.RecordAgain != nil {
		s.recordAgain(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		sendError(w, http.StatusMethodNotAllowed, fmt.Errorf("nothing can be changed here: only GET and HEAD"))
		return
	}
	switch r.URL.Path {
	case "/favicon.ico": // browsers ask for it by themselves
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
		return // nobody waits for it any more
	case errors.As(err, &wrong):
		sendError(w, http.StatusBadRequest, err)
	case err != nil:
		sendError(w, http.StatusInternalServerError, err)
	default:
		sendJSON(w, http.StatusOK, v)
	}
}

// checkAllowed reports why a request is not answered, whatever it asks for.
func (s *Server) checkAllowed(r *http.Request) error {
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if addr, err := netip.ParseAddr(name); err == nil {
		if !addr.IsLoopback() && !s.opts.Remote {
			return fmt.Errorf("this server answers to loopback addresses and localhost")
		}
	} else if !strings.EqualFold(name, "localhost") {
		// A name that leads here may belong to anybody.
		return fmt.Errorf("this server answers to addresses and localhost, not to other names")
	}
	// A link from elsewhere may lead to the page; nothing else is for others.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		if r.URL.Path != "/" || r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			return fmt.Errorf("this server answers to its own page")
		}
	}
	return nil
}

// sendJSON writes an answer as JSON.
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

// sendError answers with an error.
func sendError(w http.ResponseWriter, status int, err error) {
	sendJSON(w, status, map[string]string{"error": err.Error()})
}
