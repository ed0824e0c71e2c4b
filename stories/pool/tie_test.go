package pool

import (
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestMatchFreezes: a slow request counts if it was open during a freeze; a fast one is not slow.
func TestMatchFreezes(t *testing.T) {
	atMS := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	frozen := []freeze{{Start: atMS(100), End: atMS(150), Likely: 50 * time.Millisecond, Verdict: "own"}}
	got := matchFreezes([]timedRequest{{atMS(90), atMS(155)}, {atMS(140), atMS(151)}, {atMS(145), atMS(152)}, {atMS(151), atMS(190)}, {atMS(0), atMS(1)}}, frozen)
	for _, want := range []string{"1 freeze of up to 50.0ms, 1 of them by the quota", "of 5 requests, 3 took", "2 of these met one (1 others"} {
		check.True(t, strings.Contains(got, want), "no %q in %q", want, got)
	}
}
