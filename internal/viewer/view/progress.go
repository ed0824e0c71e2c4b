package view

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// A readingState is the progress of reading a trace, which the page polls.
type readingState struct {
	mu           sync.Mutex
	state        Progress
	lastAsked    time.Time
	failureShown chan struct{} // closed when a page has received a failure
}

// Progress is the progress of reading in words and as a share, -1 if that is not known.
type Progress struct {
	Reading bool    `json:"reading"`
	Label   string  `json:"label,omitempty"`
	Text    string  `json:"text,omitempty"`
	Share   float64 `json:"share"`
	Error   string  `json:"error,omitempty"` // error with which reading failed
	Before  bool    `json:"before"`          // an earlier trace is still available
}

func (r *readingState) init() { r.state = Progress{Reading: true, Share: -1} }

// isBusy reports whether the page must show the progress instead of a trace.
func (r *readingState) isBusy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Reading || r.state.Error != "" && !r.state.Before
}

// set stores the progress of the current reading, and does nothing after its end: the label of its phase, the text of its figures, and the done
// share, -1 if unknown.
func (r *readingState) set(label, text string, share float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.Reading {
		return // progress that arrives after the end
	}
	r.state = Progress{Reading: true, Label: label, Text: text, Share: share, Before: r.state.Before}
}

// begin starts another reading.
func (r *readingState) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = Progress{Reading: true, Text: "recording", Share: -1, Before: r.state.Before}
}

// done ends the current reading: err is nil if its trace is shown now, else the failure to show.
func (r *readingState) done(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.state = Progress{Share: 1, Before: true}
		return
	}
	r.state = Progress{Label: r.state.Label, Share: -1, Error: err.Error(), Before: r.state.Before}
	r.failureShown = make(chan struct{})
}

// takeProgress returns the progress for a page, and records that a page has received it.
func (r *readingState) takeProgress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastAsked = time.Now()
	if r.failureShown != nil {
		close(r.failureShown)
		r.failureShown = nil
	}
	return r.state
}

// SetProgress reports the progress of reading a trace: the label of its phase, the text of its figures, and the done share; a
// negative share is unknown.
func (s *Server) SetProgress(label, text string, share float64) { s.reading.set(label, text, share) }

// watchTimeout is how long after its last poll a page counts as open: it polls several times a second.
const watchTimeout = 2 * time.Second

// Fail reports that reading failed. An earlier trace is shown again. The process may end afterwards, so Fail waits until an open
// page has received the failure, for watchTimeout at most; it does not wait if no page is open.
func (s *Server) Fail(err error) {
	s.reading.done(err)
	s.reading.mu.Lock()
	failureShown, open := s.reading.failureShown, time.Since(s.reading.lastAsked) < watchTimeout
	s.reading.mu.Unlock()
	if !open || failureShown == nil {
		return
	}
	select {
	case <-failureShown:
	case <-time.After(watchTimeout):
	}
}

// readAgain starts a new recording or shows another service, the only state that a request can change. Only this server's page may
// request it.
func (s *Server) readAgain(w http.ResponseWriter, r *http.Request) {
	service := r.URL.Query().Get("service")
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		sendError(w, http.StatusMethodNotAllowed, fmt.Errorf("a new recording is asked for by POST"))
	case r.Header.Get("Origin") != "http://"+r.Host:
		sendError(w, http.StatusForbidden, fmt.Errorf("this server answers to its own page"))
	case len(s.opts.Page.Services) > 0 && !slices.Contains(s.opts.Page.Services, service):
		sendError(w, http.StatusNotFound, fmt.Errorf("the file has no such service"))
	case s.reading.isBusy():
		sendError(w, http.StatusConflict, fmt.Errorf("a trace is being read"))
	default:
		s.reading.begin()
		s.opts.ReadAgain(service)
		sendJSON(w, http.StatusAccepted, struct{}{})
	}
}
