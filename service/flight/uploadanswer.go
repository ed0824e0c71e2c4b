package flight

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An outcome is the consequence of an answer for the recording that was sent.
type outcome int

const (
	retryLater    outcome = iota // send it again
	accepted                     // the receiver has stored it
	refused                      // the receiver will never store it
	senderRefused                // the receiver accepts nothing from this sender at present
)

// outcomeOf returns the outcome of an HTTP status: accepted, refused (this recording never), senderRefused (nothing with this token), or
// retryLater for a status that is not final: a proxy's 502, a redirect (never followed, because the token is for one host), no answer (0).
func outcomeOf(status int) outcome {
	switch status {
	case http.StatusConflict: // the receiver has this recording already
		return accepted
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return refused
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return senderRefused
	}
	if status/100 == 2 {
		return accepted
	}
	return retryLater
}

const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// maxRetryAfter bounds Retry-After: a receiver's mistake must not stop uploads
	// for a day.
	maxRetryAfter = time.Hour
)

// backoff returns how long to wait after so many failures in succession, 0 after none. The longest wait doubles with each failure; jitter in [0, 1)
// chooses between half of it and all of it, so that the processes of one service do not return at the same time.
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

// retryAfter returns the wait that a Retry-After header demands, at most maxRetryAfter; 0 without one. A date is compared with
// the header Date, because clocks differ, or with now if there is no Date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if strings.Trim(text, "0123456789") == "" {
		s, err := strconv.ParseInt(text, 10, 64)
		if text != "" && (err != nil || s > int64(maxRetryAfter/time.Second)) { // also if the number overflows
			return maxRetryAfter
		}
		return time.Duration(s) * time.Second
	}
	retryTime, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(retryTime.Sub(now), 0), maxRetryAfter)
}
