package view

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// readingState is how far a trace is read. Who watches asks repeatedly.
type readingState struct {
	mu           sync.Mutex
	state        Progress
	lastAsked    time.Time
	failureShown chan struct{} // closed when a page has shown a failure
}

// Progress is how far reading is, in words and as a share, -1 if that is not
// known.
type Progress struct {
	Reading bool    `json:"reading"`
	Label   string  `json:"label,omitempty"`
	Text    string  `json:"text,omitempty"`
	Share   float64 `json:"share"`
	Error   string  `json:"error,omitempty"` // reading failed
	Before  bool    `json:"before"`          // a trace that was read before is still there
}

func (r *readingState) init() { r.state = Progress{Reading: true, Share: -1} }

func (r *readingState) isBusy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Reading || r.state.Error != "" && !r.state.Before
}

func (r *readingState) set(label, text string, share float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.Reading {
		return // progress that arrives after the end
	}
	r.state = Progress{Reading: true, Label: label, Text: text, Share: share, Before: r.state.Before}
}

// begin begins to read again.
func (r *readingState) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = Progress{Reading: true, Text: "recording", Share: -1, Before: r.state.Before}
}

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

// SetProgress says how far reading a trace is; a share below 0 is not known.
func (s *Server) SetProgress(label, text string, share float64) { s.reading.set(label, text, share) }

// watchTimeout is how long after its last question a page counts as open: it asks
// several times a second.
const watchTimeout = 2 * time.Second

// Fail says that reading failed. A trace that was shown before is shown again.
// It returns when a page that watches has been told, at once if there is none.
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

// recordAgain asks for a new recording: the one thing that can be changed. Only this
// server's own page may.
func (s *Server) recordAgain(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		sendError(w, http.StatusMethodNotAllowed, fmt.Errorf("a new recording is asked for by POST"))
	case r.Header.Get("Origin") != "http://"+r.Host:
		sendError(w, http.StatusForbidden, fmt.Errorf("this server answers to its own page"))
	case s.reading.isBusy():
		sendError(w, http.StatusConflict, fmt.Errorf("a trace is being read"))
	default:
		s.reading.begin()
		s.opts.RecordAgain()
		sendJSON(w, http.StatusAccepted, struct{}{})
	}
}
