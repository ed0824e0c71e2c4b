package groups

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

// TestStarter: if two lines start a group's goroutines, there is no starter, in whichever order tables are merged. It fails
// if the first one counts for all requests.
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
		check.Equal(t, s, c.want, "%v", c.starters)
	}
}
