package probe

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/must"
)

// The sum over all threads lies between two sums made with the ordinary file
// functions, before and after.
func TestRunDelayAgreesWithProc(t *testing.T) {
	sum := func() time.Duration {
		dirs, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skip("no /proc/self/task: ", err)
		}
		var total time.Duration
		for _, d := range dirs {
			b, err := os.ReadFile("/proc/self/task/" + d.Name() + "/schedstat")
			if err != nil {
				t.Skip("no schedstat: ", err)
			}
			n := must.Have(strconv.ParseInt(strings.Fields(string(b))[1], 10, 64))(t)
			total += time.Duration(n)
		}
		return total
	}
	threads := newThreads()
	defer threads.close()
	before := sum()
	got, n, ok := threads.runDelay()
	after := sum()
	if !ok || n < 1 || got < before || got > after {
		t.Errorf("%v of %d threads, ok %v, not between %v and %v", got, n, ok, before, after)
	}
}

func TestSteal(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"cpu  11159 0 5105 451162 522 0 265 30 0 0\ncpu0 1 2 3 4 5 6 7 8": 300 * time.Millisecond,
		"cpu  1 2 3 4 5 6 7 0 0 0\n":                                      0,
		"cpu  1 2 3 4 5 6 7\n":                                            -1,
		"cpu0 1 2 3 4 5 6 7 8\n":                                          -1,
		"":                                                                -1,
		"cpu  1 2 3 4 5 6 7 99999999999999999999999\n": -1,
		"cpu  1 2 3 4 5 6 7 9223372036854775807\n":     -1,
	} {
		got, ok := parseSteal([]byte(text))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestSecondField: whatever a file holds, cut at any byte too, is a number or none.
func TestSecondField(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"12 34 5\n": 34, "12 34": 34, "0 0 0\n": 0, "1 9": 9, "12": -1, "": -1, " ": -1, "12 ": -1, "12 x": -1, "x 7": 7, "1 576460752303423488 1": 576460752303423488,
		"1 99999999999999999999999": -1,
	} {
		got, ok := secondField([]byte(text))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
		for i := range text {
			secondField([]byte(text)[:i])
		}
	}
}

func FuzzProcText(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7 8"))
	f.Add([]byte("12 34 5\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := parseSteal(b); ok && d < 0 {
			t.Errorf("steal %v", d)
		}
		if d, ok := secondField(b); ok && d < 0 {
			t.Errorf("field %v", d)
		}
		for rest := b; len(rest) > 0; {
			_, rest = nextDirent(rest)
		}
	})
}
