package request

import (
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// TestIsRegular checks which waits separate iterations: nearly always the same others come before the next, about equally many.
func TestIsRegular(t *testing.T) {
	const write, sync, other = 1, 2, 3
	var fixed, varying, byChance []tracefmt.StackID
	for i := range 30 {
		for range 10 {
			fixed = append(fixed, write)
		}
		for range 8 + i%4 {
			varying = append(varying, write)
		}
		for range 1 << (i * 7 % 6) {
			byChance = append(byChance, write)
		}
		fixed, varying, byChance = append(fixed, sync), append(varying, sync), append(byChance, other)
	}
	for _, c := range []struct {
		name     string
		sequence []tracefmt.StackID
		id       tracefmt.StackID
		want     bool
	}{
		{"ten writes and a sync", fixed, sync, true},
		{"about ten writes and a sync", varying, sync, true},
		{"a wait that comes by chance", byChance, other, false},
	} {
		var indexes []int
		for i, id := range c.sequence {
			if id == c.id {
				indexes = append(indexes, i)
			}
		}
		check.Equal(t, isRegular(c.sequence, indexes), c.want, "%s", c.name)
	}
}
