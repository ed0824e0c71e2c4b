package view

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// reading is how far a trace is read. Who watches asks repeatedly.
type reading struct {
	mu    sync.Mutex
	state Progress
	asked time.Time
	told  chan struct{} // closed when a page has shown a failure
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

func (r *reading) init() { r.state = Progress{Reading: true, Share: -1} }

func (r *reading) now() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.Reading || r.state.Error != "" && !r.state.Before
}

func (r *reading) set(label, text string, share float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.Reading {
		return // progress that arrives after the end
	}
	r.state = Progress{Reading: true, Label: label, Text: text, Share: share, Before: r.state.Before}
}

// begin begins to read again.
func (r *reading) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = Progress{Reading: true, Text: "recording", Share: -1, Before: r.state.Before}
}

func (r *reading) done(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.state = Progress{Share: 1, Before: true}
		return
	}
	r.state = Progress{Label: r.state.Label, Share: -1, Error: err.Error(), Before: r.state.Before}
	r.told = make(chan struct{})
}

func (r *reading) answer() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = time.Now()
	if r.told != nil {
		close(r.told)
		r.told = nil
	}
	return r.state
}

// Reading says how far reading a trace is; a share below 0 is not known.
func (s *Server) Reading(label, text string, share float64) { s.reading.set(label, text, share) }

// watched is how long after its last question a page counts as open: it asks
// several times a second.
const watched = 2 * time.Second

// Fail says that reading failed. A trace that was shown before is shown again.
// It returns when a page that watches has been told, at once if there is none.
func (s *Server) Fail(err error) {
	s.reading.done(err)
	s.reading.mu.Lock()
	told, open := s.reading.told, time.Since(s.reading.asked) < watched
	s.reading.mu.Unlock()
	if !open || told == nil {
		return
	}
	select {
	case <-told:
	case <-time.After(watched):
	}
}

// again asks for a new recording: the one thing that can be changed. Only this
// server's own page may.
func (s *Server) again(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		fail(w, http.StatusMethodNotAllowed, fmt.Errorf("a new recording is asked for by POST"))
	case r.Header.Get("Origin") != "http://"+r.Host:
		fail(w, http.StatusForbidden, fmt.Errorf("this server answers to its own page"))
	case s.reading.now():
		fail(w, http.StatusConflict, fmt.Errorf("a trace is being read"))
	default:
		s.reading.begin()
		s.opts.Again()
		send(w, http.StatusAccepted, struct{}{})
	}
}
