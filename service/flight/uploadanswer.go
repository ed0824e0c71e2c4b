package flight

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An outcome is what an answer means for the recording that was sent.
type outcome int

const (
	retryLater outcome = iota // it is sent again
	accepted                  // the receiver has it
	refused                   // the receiver will never take it
	barred                    // the receiver takes nothing from this sender as things are
)

// outcomeOf returns what a status means. A status that says nothing final is
// tried again: a proxy's 502, a redirect (which is never followed, because the
// token is for one host), no answer (0).
func outcomeOf(status int) outcome {
	switch status {
	case http.StatusConflict: // it has it already
		return accepted
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return refused
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return barred
	}
	if status/100 == 2 {
		return accepted
	}
	return retryLater
}

const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// maxRetryAfter bounds what Retry-After may ask for: a receiver's mistake must
	// not end sending for a day.
	maxRetryAfter = time.Hour
)

// backoff returns how long to wait after so many failures: twice as long each
// time, and between half and all of that, so that the processes of one service
// do not come back together. at is in [0, 1).
func backoff(failures int, jitter float64) time.Duration {
	if failures < 1 {
		return 0
	}
	longest := maxBackoff
	if failures < 16 {
		longest = min(firstBackoff<<(failures-1), maxBackoff)
	}
	return longest/2 + time.Duration(jitter*float64(longest/2))
}

// retryAfter returns for how long a receiver asks not to be asked, at most
// maxRetryAfter: seconds, or a date, which is compared with the receiver's own Date
// because clocks differ. now stands in for a missing Date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if strings.Trim(text, "0123456789") == "" {
		s, err := strconv.ParseInt(text, 10, 64)
		if text != "" && (err != nil || s > int64(maxRetryAfter/time.Second)) { // more digits than a number has
			return maxRetryAfter
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
	return min(max(until.Sub(now), 0), maxRetryAfter)
}
