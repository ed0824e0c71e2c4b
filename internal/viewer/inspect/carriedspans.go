package inspect

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// carriedSpans holds, for every generation, what goroutines that were in the middle
// of something as it began were doing, as explain's window had it: since when,
// and where. A goroutine that stays in one wait over many generations is held
// once.
type carriedSpans struct {
	spans map[uint64][]carriedSpan
	count int
}

// carriedSpan is a span that goroutine had at the borders before generations
// [from, to].
type carriedSpan struct {
	from, to int32
	span     timeline.Span
}

// maxCarried bounds what is kept, at about 120 bytes each; waits beyond it show
// no place if they began in a generation that is not looked at.
const maxCarried = 2 << 20

func (c *carriedSpans) init() { c.spans = make(map[uint64][]carriedSpan) }

// add takes the border before a generation.
func (c *carriedSpans) add(gen int, carry *timeline.Carry) {
	carry.EachSpan(func(id uint64, s timeline.Span) {
		list := c.spans[id]
		if k := len(list) - 1; k >= 0 && list[k].to == int32(gen)-1 && list[k].span == s {
			list[k].to = int32(gen)
			return
		}
		if c.count >= maxCarried {
			return
		}
		c.count++
		c.spans[id] = append(list, carriedSpan{int32(gen), int32(gen), s})
	})
}

// spanAt returns what a goroutine was doing as a generation began.
func (c *carriedSpans) spanAt(gen int, id uint64) (timeline.Span, bool) {
	list := c.spans[id]
	i, _ := slices.BinarySearchFunc(list, int32(gen), func(c carriedSpan, gen int32) int { return cmp.Compare(c.to, gen) })
	if i < len(list) && int(list[i].from) <= gen {
		return list[i].span, true
	}
	return timeline.Span{}, false
}
