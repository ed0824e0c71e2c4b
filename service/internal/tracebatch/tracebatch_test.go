package tracebatch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/whylate/whylate/service/internal/must"
)

// batch writes one: its type, for experiments their number, then generation, thread, time and size.
func batch(typ byte, size uint64, data []byte) []byte {
	b := []byte{typ}
	if typ == Experimental {
		b = append(b, 7)
	}
	for _, v := range []uint64{300, 5, 1 << 40, size} {
		b = binary.AppendUvarint(b, v)
	}
	return append(b, data...)
}

func TestParse(t *testing.T) {
	data := bytes.Repeat([]byte{9}, MaxData)
	for _, size := range []int{0, 1, 127, 128, MaxData} {
		for _, typ := range []byte{Events, Experimental} {
			in := batch(typ, uint64(size), data[:size])
			head := len(batch(typ, 0, nil)) - 1
			b, err := Parse(append(in, Events, 1, 2))
			must.True(t, err == nil && b.Type == typ && b.Gen == 300 && b.Len == len(in) && bytes.Equal(b.Data, data[:size]) && bytes.Equal(b.Head, in[:head]),
				"type %d, %d bytes: %v, %d of %d bytes, generation %d, head %v", typ, size, err, b.Len, len(in), b.Gen, b.Head)
			for n := 1; n < min(len(in), 300); n++ { // cut anywhere, it is not all there, and no error
				if b, err := Parse(in[:n]); err != nil || b.Len != 0 || b.Data != nil || (b.Head != nil) != (n > head) {
					t.Fatalf("type %d, %d of %d bytes: %+v, %v", typ, n, len(in), b, err)
				}
			}
		}
	}
	if b, err := Parse([]byte{EndOfGeneration, 1, 2}); err != nil || b.Len != 1 || b.Type != EndOfGeneration || b.Data != nil {
		t.Errorf("%+v, %v", b, err)
	}
	long := append([]byte{Events}, bytes.Repeat([]byte{0xff}, 11)...)
	for want, in := range map[string][]byte{
		"a batch was expected, but there is a byte 2":                   {2},
		"a batch claims 65537 bytes, more than the format allows":       batch(Events, MaxData+1, data),
		"a number in a batch's header is too long":                      long,
		fmt.Sprintf("a batch was expected, but there is a byte %d", 48): {48},
	} {
		if _, err := Parse(in); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
