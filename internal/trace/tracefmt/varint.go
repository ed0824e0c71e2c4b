package tracefmt

import (
	"encoding/binary"
	"iter"
)

// Pad is how many bytes may be read past the end of Generation.Data without
// leaving the slice's capacity: fast varint readers load eight bytes at once,
// and an event that runs over the end of the last batch is only noticed then.
const Pad = 64

// uvarint reads a varint at b[i:]; next is 0 if it is cut or too long.
func uvarint(b []byte, i int) (v uint64, next int) {
	if i >= len(b) {
		return 0, 0
	}
	if b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	v, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, 0
	}
	return v, i + n
}

// A cursor reads a batch, number by number.
type cursor struct {
	b   []byte
	i   int
	cut bool // a number was cut or too long; from then on all are 0
}

func (c *cursor) more() bool { return c.i < len(c.b) && !c.cut }

// next returns the type of the event that begins here, and goes on to its arguments.
func (c *cursor) next() EventType {
	c.i++
	return EventType(c.b[c.i-1])
}

func (c *cursor) uint() uint64 {
	v, next := uvarint(c.b, c.i)
	if next == 0 {
		c.cut, next = true, len(c.b)
	}
	c.i = next
	return v
}

// entries yields a cursor at each entry of the tables that are in batches of a type. Who reads an entry moves it to the next.
func (g *Generation) entries(batches EventType) iter.Seq[*cursor] {
	return func(yield func(*cursor) bool) {
		for _, b := range g.tables {
			if EventType(g.Data[b.Off]) != batches {
				continue
			}
			for c := (&cursor{b: g.Data[:b.End], i: b.Off + 1}); c.more(); {
				if !yield(c) {
					return
				}
			}
		}
	}
}
