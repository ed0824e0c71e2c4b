package probe

import (
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
)

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
		check.Equal(t, got, want, "%q", text)
	}
}

func FuzzSteal(f *testing.F) {
	f.Add([]byte("cpu  1 2 3 4 5 6 7 8"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, ok := parseSteal(b); ok && d < 0 {
			t.Errorf("steal %v", d)
		}
	})
}
