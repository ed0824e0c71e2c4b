package inspect

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/trace/timeline"
)

// A carriedSpans holds, for each generation, the spans of goroutines that continue over its begin, as explain's
// window showed them. A span that continues over several generations is stored once.
type carriedSpans struct {
	spans map[uint64][]carriedSpan
	count int
}

// A carriedSpan is a span of a goroutine at the begins of generations [from, to].
type carriedSpan struct {
	from, to int32
	span     timeline.Span
}

// maxCarried bounds the number of spans, at about 120 bytes each. Beyond it, waits that began in a generation
// outside the query's window have no site.
const maxCarried = 2 << 20

func (c *carriedSpans) init() { c.spans = make(map[uint64][]carriedSpan) }

// add adds the spans that continued at the begin of generation gen, an index; those beyond maxCarried are left out.
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

// spanAt returns the span of goroutine id at the begin of generation gen; false if it is not known.
func (c *carriedSpans) spanAt(gen int, id uint64) (timeline.Span, bool) {
	list := c.spans[id]
	i, _ := slices.BinarySearchFunc(list, int32(gen), func(c carriedSpan, gen int32) int { return cmp.Compare(c.to, gen) })
	if i < len(list) && int(list[i].from) <= gen {
		return list[i].span, true
	}
	return timeline.Span{}, false
}

// lastGenerationOf returns the last generation at whose begin a span of a goroutine continued, -1 if there is none.
func (c *carriedSpans) lastGenerationOf(id uint64, s *timeline.Span) int {
	for _, carried := range slices.Backward(c.spans[id]) {
		if carried.span.Start == s.Start && carried.span.State == s.State {
			return int(carried.to)
		}
	}
	return -1
}
