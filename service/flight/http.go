package flight

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/whylate/whylate/service/internal/origin"
)

const (
	postsPerMinute = 10
	// maxFetches bounds memory: a client that reads slowly keeps its whole recording in memory.
	maxFetches = 4
)

// ServeHTTP answers GET with a recording of the last seconds, and GET with the query
// parameter "state" with the State as JSON. POST keeps a recording as Capture does, with
// the form value "reason", at most ten times a minute.
//
// The recorder registers itself on no mux. A recording reveals much about a service:
// serve it only where you would serve net/http/pprof.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	switch {
	case r == nil:
		http.Error(w, "flight: "+r.State().Why, http.StatusServiceUnavailable)
	case q.Method == http.MethodGet && q.URL.Query().Has("state"):
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.State()) // the client is gone
	case q.Method == http.MethodGet:
		r.serveGet(w, q)
	case q.Method == http.MethodPost:
		r.servePost(w, q)
	default:
		w.Header().Set("Allow", "GET, POST")
		http.Error(w, "GET or POST", http.StatusMethodNotAllowed)
	}
}

// serveGet sends a recording of the last seconds, which is not kept.
func (r *Recorder) serveGet(w http.ResponseWriter, q *http.Request) {
	if r.activeFetches.Add(1) > maxFetches {
		r.activeFetches.Add(-1)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "several requests already fetch one", http.StatusServiceUnavailable)
		return
	}
	defer r.activeFetches.Add(-1)
	var recording bytes.Buffer
	req := &captureRequest{trigger: Trigger{Kind: KindAsked, Text: "requested over HTTP", At: time.Now()}, dst: &recording, done: make(chan struct{})}
	name, err := r.requestCapture(q.Context(), req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/vnd.whylate.recording+zip")
	w.Header().Set("Content-Length", strconv.Itoa(recording.Len()))
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_, _ = w.Write(recording.Bytes()) // the client is gone
}

// servePost keeps a recording and sends its name.
func (r *Recorder) servePost(w http.ResponseWriter, q *http.Request) {
	if origin.IsCrossSite(q) {
		http.Error(w, "keeping a recording from another site's page is not allowed", http.StatusForbidden)
		return
	}
	if wait := r.takePostToken(time.Now()); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		http.Error(w, "too many recordings were requested", http.StatusTooManyRequests)
		return
	}
	q.Body = http.MaxBytesReader(w, q.Body, 4<<10)
	name, err := r.Capture(q.Context(), cmp.Or(clip(q.FormValue("reason")), "requested over HTTP"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, name)
}

// takePostToken takes one of postsPerMinute tokens and returns 0, or returns how long to wait for one.
func (r *Recorder) takePostToken(now time.Time) (wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.postBucket.checkToken(now, true) {
		return r.postBucket.timeToToken()
	}
	r.postBucket.takeToken()
	return 0
}
