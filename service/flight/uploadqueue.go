package flight

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// How a sender treats a receiver's answers: which answer is final, which
// recording is sent next, and when. Nothing here reads a clock, a file or the
// network. docs/flight.md has it as a table.

// An outcome is what an answer means for the recording that was sent.
type outcome int

const (
	later   outcome = iota // it is sent again
	taken                  // the receiver has it
	refused                // the receiver will never take it
	barred                 // the receiver takes nothing from this sender as things are
)

// outcomeOf returns what a status means. A status that says nothing final is
// tried again: a proxy's 502, a redirect (which is never followed, because the
// token is for one host), no answer (0).
func outcomeOf(status int) outcome {
	switch status {
	case http.StatusConflict: // it has it already
		return taken
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return refused
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return barred
	}
	if status/100 == 2 {
		return taken
	}
	return later
}

const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// mostAsked bounds what Retry-After may ask for: a receiver's mistake must
	// not end sending for a day.
	mostAsked = time.Hour
)

// backoff returns how long to wait after so many failures: twice as long each
// time, and between half and all of that, so that the processes of one service
// do not come back together. at is in [0, 1).
func backoff(failures int, at float64) time.Duration {
	if failures < 1 {
		return 0
	}
	d := maxBackoff
	if failures < 16 {
		d = min(firstBackoff<<(failures-1), maxBackoff)
	}
	return d/2 + time.Duration(at*float64(d/2))
}

// retryAfter returns for how long a receiver asks not to be asked, at most
// mostAsked: seconds, or a date, which is compared with the receiver's own Date
// because clocks differ. now stands in for a missing Date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if strings.Trim(text, "0123456789") == "" {
		s, err := strconv.ParseInt(text, 10, 64)
		if text != "" && (err != nil || s > int64(mostAsked/time.Second)) { // more digits than a number has
			return mostAsked
		}
		return time.Duration(s) * time.Second
	}
	until, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(until.Sub(now), 0), mostAsked)
}

// Turns decide which of the recordings that wait is sent next.
//
// Each recording that failed has a back-off of its own, so that one that the
// receiver cannot take delays the others by a second at most. The receiver has
// one as well, by how many different recordings have failed since it took one:
// if it is down, requests become rare however many recordings wait.
//
// A recording that was barred is not sent again until the credentials change or
// the receiver has taken another one; if it is barred again with the same
// credentials after that, the receiver does not want this recording, and it is
// refused.
type turns struct {
	of      map[string]*turn
	failing int       // different recordings that failed since one was taken
	taken   int       // recordings
	free    time.Time // when the receiver may be asked again
}

// A turn is of a recording that was tried.
type turn struct {
	failures int
	due      time.Time
	counted  bool // in failing
	barred   bool
	key      string  // the credentials with which it was barred
	taken    int     // how many the receiver had taken then
	result   outcome // taken or refused: it is not sent any more
}

// next returns the recording to send now, "" if there is none: the one with
// the fewest failures, the first of these. waiting has all without a result, the
// oldest first.
func (t *turns) next(waiting []string, key string, now time.Time) string {
	if now.Before(t.free) {
		return ""
	}
	best, least := "", 0
	for _, name := range waiting {
		failures := 0
		if x := t.of[name]; x != nil {
			if now.Before(x.due) || t.holds(x, key) {
				continue
			}
			failures = x.failures
		}
		if best == "" || failures < least {
			best, least = name, failures
		}
	}
	return best
}

// result returns what was decided of a recording: taken, refused, or later.
func (t *turns) result(name string) outcome {
	if x := t.of[name]; x != nil {
		return x.result
	}
	return later
}

// holds reports whether a recording that was barred stays so.
func (t *turns) holds(x *turn, key string) bool {
	return x.barred && x.key == key && x.taken == t.taken
}

// held returns how many of those that wait are barred.
func (t *turns) held(waiting []string, key string) (n int) {
	for _, name := range waiting {
		if x := t.of[name]; x != nil && t.holds(x, key) {
			n++
		}
	}
	return n
}

// done takes in an answer and returns what it means. asked is its Retry-After,
// at a number in [0, 1).
func (t *turns) done(name, key string, o outcome, asked time.Duration, now time.Time, at float64) outcome {
	if t.of == nil {
		t.of = make(map[string]*turn)
	}
	x := t.of[name]
	if x == nil {
		x = new(turn)
		t.of[name] = x
	}
	if o == barred {
		if x.barred && x.key == key {
			o = refused // it was barred, and the receiver takes others
		} else {
			x.barred, x.key, x.taken = true, key, t.taken
		}
	}
	switch o {
	case taken:
		t.taken++
		t.failing = 0
		for _, other := range t.of {
			other.counted = false
		}
		x.result = taken
	case refused:
		x.result = refused
	default:
		x.failures++
		t.failing += btoi(!x.counted)
		x.counted = true
		x.due = now.Add(backoff(x.failures, at))
		t.free = now.Add(backoff(t.failing, at))
	}
	if until := now.Add(asked); until.After(t.free) {
		t.free = until
	}
	return o
}

// forget drops what is known of recordings that are no more.
func (t *turns) forget(waiting []string) {
	if len(t.of) <= len(waiting) {
		return
	}
	of := make(map[string]*turn)
	t.failing = 0
	for _, name := range waiting {
		if x := t.of[name]; x != nil {
			of[name] = x
			t.failing += btoi(x.counted)
		}
	}
	t.of = of
}
