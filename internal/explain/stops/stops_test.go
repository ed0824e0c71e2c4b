package stops

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

const ms = int64(1e6)

// TestSuspects: silences within three seconds, and the requests right after them. It fails if a client that sends
// bursts, an idle process, or a pause by chance is a suspect.
func TestSuspects(t *testing.T) {
	silencesEvery := func(n int, length int64, after int) (all []Silence) {
		for i := range int64(n) {
			all = append(all, Silence{Start: i * 500 * ms, End: i*500*ms + length, RequestsAfter: after})
		}
		return all
	}
	for _, c := range []struct {
		name     string
		all      []Silence
		requests int
		want     int
	}{
		{"stopped four times, 100 requests a second", silencesEvery(4, 80*ms, 8), 300, 4},
		{"the same with 25 requests a second, which are too few", silencesEvery(4, 80*ms, 2), 75, 0},
		{"once for 500 ms", silencesEvery(1, 500*ms, 48), 300, 1},
		{"once for 80 ms may be chance", silencesEvery(1, 80*ms, 8), 300, 0},
		{"idle until a request arrives", silencesEvery(6, 80*ms, 1), 300, 0},
		{"a client that sends bursts of ten, and nothing between them", silencesEvery(6, 400*ms, 10), 60, 0},
		{"three at once after a pause in which thirty are missing", silencesEvery(6, 300*ms, 3), 300, 0},
		{"forty at once where eight are missing", silencesEvery(4, 80*ms, 40), 420, 0},
		{"no requests", silencesEvery(6, 80*ms, 0), 0, 0},
	} {
		check.Equal(t, len(Suspects(c.all, c.requests, 3000*ms)), c.want, "%s: are suspects", c.name)
	}
}
