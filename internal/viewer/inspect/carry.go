package inspect

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// carries holds, for every generation, what goroutines that were in the middle
// of something as it began were doing, as explain's window had it: since when,
// and where. A goroutine that stays in one wait over many generations is held
// once.
type carries struct {
	spans map[uint64][]carried
	n     int
}

// carried is a span that goroutine had at the borders before generations
// [from, to].
type carried struct {
	from, to int32
	span     timeline.Span
}

// maxCarried bounds what is kept, at about 120 bytes each; waits beyond it show
// no place if they began in a generation that is not looked at.
const maxCarried = 2 << 20

func (c *carries) init() { c.spans = make(map[uint64][]carried) }

// add takes the border before a generation.
func (c *carries) add(gen int, carry *timeline.Carry) {
	carry.EachSpan(func(id uint64, s timeline.Span) {
		list := c.spans[id]
		if k := len(list) - 1; k >= 0 && list[k].to == int32(gen)-1 && list[k].span == s {
			list[k].to = int32(gen)
			return
		}
		if c.n >= maxCarried {
			return
		}
		c.n++
		c.spans[id] = append(list, carried{int32(gen), int32(gen), s})
	})
}

// at returns what a goroutine was doing as a generation began.
func (c *carries) at(gen int, id uint64) (timeline.Span, bool) {
	list := c.spans[id]
	i, _ := slices.BinarySearchFunc(list, int32(gen), func(c carried, gen int32) int { return cmp.Compare(c.to, gen) })
	if i < len(list) && int(list[i].from) <= gen {
		return list[i].span, true
	}
	return timeline.Span{}, false
}
