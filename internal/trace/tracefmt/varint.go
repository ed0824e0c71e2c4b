package tracefmt

import (
	"encoding/binary"
	"iter"
)

// Pad is the number of bytes after the end of Batch.Data that may be read within the slice's capacity. Fast
// varint readers load eight bytes at once, and detect an event that exceeds its batch only afterwards.
const Pad = 64

// uvarint reads a varint at b[i:]. next is the index after it; 0 if the number is cut or too long.
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

// A cursor reads the numbers of a batch one after the other.
type cursor struct {
	data   []byte
	pos    int
	failed bool // a number was cut or too long; all later ones are 0
}

// hasMore reports whether there are more bytes and no number was cut.
func (c *cursor) hasMore() bool { return c.pos < len(c.data) && !c.failed }

// nextType returns the type of the event that begins here, and moves on to its arguments.
func (c *cursor) nextType() EventType {
	c.pos++
	return EventType(c.data[c.pos-1])
}

// nextUint reads the next number. If it is cut or too long, the cursor fails and the result is 0.
func (c *cursor) nextUint() uint64 {
	v, next := uvarint(c.data, c.pos)
	if next == 0 {
		c.failed, next = true, len(c.data)
	}
	c.pos = next
	return v
}

// entries yields a cursor at each entry in the table batches of one type. The caller must move the cursor to the end of the
// entry.
func (g *Generation) entries(batches EventType) iter.Seq[*cursor] {
	return func(yield func(*cursor) bool) {
		for _, b := range g.tables {
			if EventType(b.Data[0]) != batches {
				continue
			}
			for c := (&cursor{data: b.Data, pos: 1}); c.hasMore(); {
				if !yield(c) {
					return
				}
			}
		}
	}
}
