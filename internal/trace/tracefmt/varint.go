package tracefmt

import "encoding/binary"

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
