package entry

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestEntries: an entry is created once, and found afterwards.
func TestEntries(t *testing.T) {
	m, s := map[string]*int{}, []int(nil)
	for _, k := range []string{"b", "a", "b"} {
		*GetOrAdd(m, k)++
	}
	for _, id := range []int32{5, 0, 5} {
		*GetOrGrow(&s, id)++
	}
	check.True(t, len(m) == 2 && *m["a"] == 1 && *m["b"] == 2, "the map contains %v", m)
	check.True(t, len(s) == 6 && s[0] == 1 && s[4] == 0 && s[5] == 2, "the slice contains %v", s)
}
