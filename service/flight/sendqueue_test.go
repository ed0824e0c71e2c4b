package flight

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

func TestBackoff(t *testing.T) {
	for n, longest := range map[int]time.Duration{0: 0, 1: time.Second, 2: 2 * time.Second, 9: 256 * time.Second, 10: maxBackoff, 1000: maxBackoff} {
		if low, high := backoff(n, 0), backoff(n, 0.999999); low != longest/2 || high < longest*99/100 || high > longest {
			t.Errorf("after %d failures: %v to %v, want half of %v to all", n, low, high, longest)
		}
	}
}

// TestRetryAfter reads the Retry-After headers of a collector.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	date := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{"", "", 0}, {"0", "", 0}, {"7", "", 7 * time.Second}, {" 120 ", "", 2 * time.Minute}, {"3600", "", time.Hour},
		{"3601", "", time.Hour}, {"99999999999999999999999", "", time.Hour}, // bounded
		{"-5", "", 0}, {"1.5", "", 0}, {"soon", "", 0},
		{date(time.Minute), "", time.Minute}, {date(-time.Minute), "", 0}, {date(100 * time.Hour), "", time.Hour},
		{date(25 * time.Hour), date(24 * time.Hour), time.Hour}, // the collector's clock is a day ahead of ours
		{date(24*time.Hour + 30*time.Second), date(24 * time.Hour), 30 * time.Second},
		{date(30*time.Second - time.Hour), date(-time.Hour), 30 * time.Second},
		{date(time.Minute), "nonsense", time.Minute},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Date", c.date)
		check.Equal(t, retryAfter(h, now), c.want, "%q at %q asks for", c.after, c.date)
	}
	check.Equal(t, retryAfter(nil, now), 0, "no answer asks for")
}

// A simulatedSpool sends recordings to a simulated receiver.
type simulatedSpool struct {
	sendQueue
	now      time.Time
	waiting  []string
	requests []time.Time
}

// run lets time d pass, in the uploader's steps of a second. answer returns the receiver's
// outcome for a recording.
func (s *simulatedSpool) run(d time.Duration, answer func(name string) outcome) {
	for end := s.now.Add(d); s.now.Before(end); s.now = s.now.Add(pollInterval) {
		for name := s.nextRecording(s.waiting, "", s.now); name != ""; name = s.nextRecording(s.waiting, "", s.now) {
			s.requests = append(s.requests, s.now)
			o := s.handleAnswer(name, "", answer(name), 0, s.now, 0.5)
			if o == accepted || o == refused {
				s.waiting = slices.DeleteFunc(s.waiting, func(w string) bool { return w == name })
			}
			s.retain(s.waiting)
		}
	}
}

// TestSendQueueOverADay simulates a day: a receiver that is down gets few requests however many
// recordings wait, all of them arrive soon after it is up, and recordings that it cannot
// store delay new ones little.
func TestSendQueueOverADay(t *testing.T) {
	for _, n := range []int{1, 2, 5, 30, 300} {
		s := &simulatedSpool{now: time.Unix(1000, 0)}
		for i := range n {
			s.waiting = append(s.waiting, fmt.Sprintf("%03d", i))
		}
		s.run(24*time.Hour, func(string) outcome { return retryLater })
		// At most two a minute; for a single recording one in five minutes.
		if got := len(s.requests); got > 24*60*2 || n == 1 && got > 24*20 || got < 24*12 {
			t.Errorf("%d recordings: a receiver that is down is asked %d times in a day", n, got)
		}
		s.run(maxBackoff+time.Minute, func(string) outcome { return accepted })
		check.True(t, len(s.waiting) == 0,
			"of %d recordings %d have not arrived five minutes after the receiver came up", n, len(s.waiting))
	}
	for bad := range 4 {
		s := &simulatedSpool{now: time.Unix(1000, 0)}
		for i := range bad {
			s.waiting = append(s.waiting, fmt.Sprintf("bad %d", i))
		}
		answer := func(name string) outcome {
			if name[0] == 'b' {
				return retryLater
			}
			return accepted
		}
		s.run(time.Hour, answer)
		for i := range 100 {
			s.waiting = append(s.waiting, fmt.Sprintf("good %d", i))
			for d := 0; len(s.waiting) > bad; d++ {
				s.run(time.Second, answer)
				must.True(t, d <= 5, "with %d recordings that the receiver cannot store another one waits for more than 5 s", bad)
			}
			s.run(7*time.Minute, answer)
		}
	}
}

// TestSendQueueRotates tests that failing recordings are sent equally often.
func TestSendQueueRotates(t *testing.T) {
	s := &simulatedSpool{now: time.Unix(1000, 0), waiting: []string{"a", "b", "c"}}
	sent := map[string]int{}
	s.run(6*time.Hour, func(name string) outcome { sent[name]++; return retryLater })
	check.True(t, sent["a"]-sent["c"] <= 1 && sent["a"] >= 30, "asked were %v", sent)
}
