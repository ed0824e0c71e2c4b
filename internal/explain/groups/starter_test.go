package groups

import "testing"

// TestStarter: where lines of the service's own are two that start a group's goroutines, none is the line to change for
// all, in whichever order tables with them are merged. It would catch a report that has the first one for every request.
func TestStarter(t *testing.T) {
	one, other, none := starter{12, true}, starter{30, true}, starter{0, true}
	for _, c := range []struct {
		of   []starter
		want starter
	}{
		{[]starter{one, one}, one},
		{[]starter{one, {}, one}, one},
		{[]starter{{}, one}, one},
		{[]starter{one, other, one}, none},
		{[]starter{one, none}, none},
		{[]starter{none, one}, none},
	} {
		var s starter
		for _, o := range c.of {
			s.add(o)
		}
		if s != c.want {
			t.Errorf("%v: %v, want %v", c.of, s, c.want)
		}
	}
}
