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
