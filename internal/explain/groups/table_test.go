package groups

import "testing"

// TestStarter: where lines of the service's own are two that start a group's goroutines, none is the line to change for
// all, in whichever order tables with them are merged. It would catch a report that has the first one for every request.
func TestStarter(t *testing.T) {
	first, second, mixed := starter{12, true}, starter{30, true}, starter{0, true}
	for _, c := range []struct {
		starters []starter
		want     starter
	}{
		{[]starter{first, first}, first},
		{[]starter{first, {}, first}, first},
		{[]starter{{}, first}, first},
		{[]starter{first, second, first}, mixed},
		{[]starter{first, mixed}, mixed},
		{[]starter{mixed, first}, mixed},
	} {
		var s starter
		for _, o := range c.starters {
			s.add(o)
		}
		if s != c.want {
			t.Errorf("%v: %v, want %v", c.starters, s, c.want)
		}
	}
}
