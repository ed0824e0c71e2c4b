package entry

import "testing"

// TestEntries: an entry is created once, and found afterwards.
func TestEntries(t *testing.T) {
	m, s := map[string]*int{}, []int(nil)
	for _, k := range []string{"b", "a", "b"} {
		*GetOrAdd(m, k)++
	}
	for _, id := range []int32{5, 0, 5} {
		*GetOrGrow(&s, id)++
	}
	if len(m) != 2 || *m["a"] != 1 || *m["b"] != 2 {
		t.Errorf("the map contains %v", m)
	}
	if len(s) != 6 || s[0] != 1 || s[4] != 0 || s[5] != 2 {
		t.Errorf("the slice contains %v", s)
	}
}
