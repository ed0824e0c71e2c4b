package timeline

import (
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
)

func TestMarkPhases(t *testing.T) {
	begin := func(t int64) GCEvent { return GCEvent{Time: t, Begin: true} }
	active := func(t int64) GCEvent { return GCEvent{Time: t, Begin: true, Active: true} }
	end := func(t int64) GCEvent { return GCEvent{Time: t} }
	const last = 1000
	for name, c := range map[string]struct {
		gens [][]GCEvent
		want [][2]int64
	}{
		"none":                           {gens: [][]GCEvent{{}, {}}},
		"two in one generation":          {[][]GCEvent{{begin(10), end(20), begin(30), end(50)}}, [][2]int64{{10, 20}, {30, 50}}},
		"begun before the trace":         {[][]GCEvent{{active(1), end(20)}}, [][2]int64{{1, 20}}},
		"begun before, not said":         {[][]GCEvent{{end(20), begin(30), end(40)}}, [][2]int64{{30, 40}}},
		"over a border":                  {[][]GCEvent{{begin(10)}, {active(101), end(120)}}, [][2]int64{{10, 120}}},
		"over two":                       {[][]GCEvent{{begin(10)}, {active(101)}, {active(201), end(220)}}, [][2]int64{{10, 220}}},
		"over a border, not said":        {[][]GCEvent{{begin(10)}, {end(120)}}, [][2]int64{{10, 120}}},
		"begun before the border's word": {[][]GCEvent{{}, {begin(100), active(101), end(120)}}, [][2]int64{{100, 120}}},
		"an end lost":                    {[][]GCEvent{{begin(10)}, {begin(110), end(120)}}, [][2]int64{{110, 120}}},
		"without an end":                 {[][]GCEvent{{begin(10), end(20), begin(90)}}, [][2]int64{{10, 20}, {90, last}}},
		"the whole trace":                {[][]GCEvent{{active(1)}, {active(101)}}, [][2]int64{{1, last}}},
		"two ends":                       {[][]GCEvent{{begin(10), end(20), end(30)}}, [][2]int64{{10, 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			var m MarkPhases
			var got [][2]int64
			add := func(from, to int64) { got = append(got, [2]int64{from, to}) }
			for _, events := range c.gens {
				m.Add(&Gen{Lists: Lists{GC: events}}, add)
			}
			m.Close(last, add)
			m.Close(last, add) // nothing is left
			check.True(t, slices.Equal(got, c.want), "%v, want %v", got, c.want)
		})
	}
}
