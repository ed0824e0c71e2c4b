package flight

import "time"

// A sendQueue decides which waiting recording is sent next, and when. It reads no
// clock, file or network. docs/flight.md has its rules as a table.
//
// Each recording that failed has a separate back-off, so that a recording that the
// receiver cannot store delays the others by at most a second. The receiver has a
// back-off too, which grows with the number of different recordings that have
// failed since the receiver accepted one: if it is down, requests become rare
// however many recordings wait.
//
// If the receiver refuses the sender, a recording is not sent again until the token
// changes or the receiver has accepted another one. If the sender is then refused
// again with the same token, the receiver does not want this recording: it is refused.
type sendQueue struct {
	byName            map[string]*sendState
	failingRecordings int // different recordings that failed since one was accepted
	acceptedCount     int
	nextAllowed       time.Time // when the next request may be sent
}

// A sendState is the state of a recording that was sent at least once.
type sendState struct {
	failures            int
	retryAt             time.Time
	countedAsFailing    bool // in failingRecordings
	isSenderRefused     bool
	refusedToken        string  // the token with which the sender was refused
	acceptedWhenRefused int     // acceptedCount at that time
	result              outcome // accepted or refused if it is not sent any more
}

// nextRecording returns the recording to send now, or "" if there is none: the first of those with the fewest failures. waiting has the recordings
// without a result, the oldest first; token is the one to send with.
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

// result returns accepted or refused if the recording is not sent any more, else retryLater.
func (q *sendQueue) result(name string) outcome {
	if state := q.byName[name]; state != nil {
		return state.result
	}
	return retryLater
}

// isHeld reports whether a recording must still wait because its sender was refused.
func (q *sendQueue) isHeld(state *sendState, token string) bool {
	return state.isSenderRefused && state.refusedToken == token && state.acceptedWhenRefused == q.acceptedCount
}

// countHeld returns how many of the waiting recordings are held back because their sender was refused with this token.
func (q *sendQueue) countHeld(waiting []string, token string) (n int) {
	for _, name := range waiting {
		if state := q.byName[name]; state != nil && q.isHeld(state, token) {
			n++
		}
	}
	return n
}

// handleAnswer updates the queue by the outcome o of sending the recording name with this token, and returns the outcome that counts, which
// is refused for a recording whose sender was refused twice. retryAfter is the wait that the answer demands, 0 for none, and jitter, in [0,
// 1), spreads the times of the next attempts.
func (q *sendQueue) handleAnswer(name, token string, o outcome, retryAfter time.Duration, now time.Time, jitter float64) outcome {
	if q.byName == nil {
		q.byName = make(map[string]*sendState)
	}
	state := q.byName[name]
	if state == nil {
		state = new(sendState)
		q.byName[name] = state
	}
	if o == senderRefused {
		if state.isSenderRefused && state.refusedToken == token {
			o = refused // the sender was refused before, and the receiver has accepted another one since
		} else {
			state.isSenderRefused, state.refusedToken, state.acceptedWhenRefused = true, token, q.acceptedCount
		}
	}
	switch o {
	case accepted:
		q.acceptedCount++
		q.failingRecordings = 0
		for _, otherState := range q.byName {
			otherState.countedAsFailing = false
		}
		state.result = accepted
	case refused:
		state.result = refused
	default:
		state.failures++
		q.failingRecordings += boolToInt(!state.countedAsFailing)
		state.countedAsFailing = true
		state.retryAt = now.Add(backoff(state.failures, jitter))
		q.nextAllowed = now.Add(backoff(q.failingRecordings, jitter))
	}
	if pausedUntil := now.Add(retryAfter); pausedUntil.After(q.nextAllowed) {
		q.nextAllowed = pausedUntil
	}
	return o
}

// retain drops the state of recordings that are not waiting any more.
func (q *sendQueue) retain(waiting []string) {
	if len(q.byName) <= len(waiting) {
		return
	}
	byName := make(map[string]*sendState)
	q.failingRecordings = 0
	for _, name := range waiting {
		if state := q.byName[name]; state != nil {
			byName[name] = state
			q.failingRecordings += boolToInt(state.countedAsFailing)
		}
	}
	q.byName = byName
}
