package flight

import "time"

// Which recording is sent next, and when. uploadanswer.go says what an answer means. Nothing in both reads a clock, a file or the
// network. docs/flight.md has it as a table.

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
type sendQueue struct {
	byName            map[string]*sendState
	failingRecordings int       // different recordings that failed since one was taken
	acceptedCount     int       // recordings
	nextAllowed       time.Time // when the receiver may be asked again
}

// A turn is of a recording that was tried.
type sendState struct {
	failures           int
	retryAt            time.Time
	countedAsFailing   bool // in failing
	barred             bool
	barredToken        string  // the credentials with which it was barred
	acceptedWhenBarred int     // how many the receiver had taken then
	result             outcome // taken or refused: it is not sent any more
}

// nextRecording returns the recording to send now, "" if there is none: the one with
// the fewest failures, the first of these. waiting has all without a result, the
// oldest first.
func (q *sendQueue) nextRecording(waiting []string, token string, now time.Time) string {
	if now.Before(q.nextAllowed) {
		return ""
	}
	best, fewestFailures := "", 0
	for _, name := range waiting {
		failures := 0
		if state := q.byName[name]; state != nil {
			if now.Before(state.retryAt) || q.isHeld(state, token) {
				continue
			}
			failures = state.failures
		}
		if best == "" || failures < fewestFailures {
			best, fewestFailures = name, failures
		}
	}
	return best
}

// result returns what was decided of a recording: taken, refused, or later.
func (q *sendQueue) result(name string) outcome {
	if state := q.byName[name]; state != nil {
		return state.result
	}
	return retryLater
}

// isHeld reports whether a recording that was barred stays so.
func (q *sendQueue) isHeld(state *sendState, token string) bool {
	return state.barred && state.barredToken == token && state.acceptedWhenBarred == q.acceptedCount
}

// countHeld returns how many of those that wait are barred.
func (q *sendQueue) countHeld(waiting []string, token string) (n int) {
	for _, name := range waiting {
		if state := q.byName[name]; state != nil && q.isHeld(state, token) {
			n++
		}
	}
	return n
}

// handleAnswer takes in an answer and returns what it means. asked is its Retry-After,
// at a number in [0, 1).
func (q *sendQueue) handleAnswer(name, token string, o outcome, retryAfter time.Duration, now time.Time, jitter float64) outcome {
	if q.byName == nil {
		q.byName = make(map[string]*sendState)
	}
	state := q.byName[name]
	if state == nil {
		state = new(sendState)
		q.byName[name] = state
	}
	if o == barred {
		if state.barred && state.barredToken == token {
			o = refused // it was barred, and the receiver takes others
		} else {
			state.barred, state.barredToken, state.acceptedWhenBarred = true, token, q.acceptedCount
		}
	}
	switch o {
	case accepted:
		q.acceptedCount++
		q.failingRecordings = 0
		for _, other := range q.byName {
			other.countedAsFailing = false
		}
		state.result = accepted
	case refused:
		state.result = refused
	default:
		state.failures++
		q.failingRecordings += btoi(!state.countedAsFailing)
		state.countedAsFailing = true
		state.retryAt = now.Add(backoff(state.failures, jitter))
		q.nextAllowed = now.Add(backoff(q.failingRecordings, jitter))
	}
	if pausedUntil := now.Add(retryAfter); pausedUntil.After(q.nextAllowed) {
		q.nextAllowed = pausedUntil
	}
	return o
}

// retain drops what is known of recordings that are no more.
func (q *sendQueue) retain(waiting []string) {
	if len(q.byName) <= len(waiting) {
		return
	}
	byName := make(map[string]*sendState)
	q.failingRecordings = 0
	for _, name := range waiting {
		if state := q.byName[name]; state != nil {
			byName[name] = state
			q.failingRecordings += btoi(state.countedAsFailing)
		}
	}
	q.byName = byName
}
