package pool

import (
	"strings"
	"testing"
	"time"
)

// TestTie: a slow request that was open during a freeze is tied to it, one that was not is not, and a quick one is no slow one.
func TestTie(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	frozen := []freeze{{Start: at(100), End: at(150), Likely: 50 * time.Millisecond, Verdict: "own"}}
	got := tie([]seen{{at(90), at(155)}, {at(140), at(151)}, {at(145), at(152)}, {at(151), at(190)}, {at(0), at(1)}}, frozen)
	for _, want := range []string{"1 freeze of up to 50.0ms, 1 of them by the quota", "of 5 requests, 3 took", "2 of these met one (1 others"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}
