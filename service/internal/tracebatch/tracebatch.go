// Package tracebatch finds the header and the batches of an execution trace. It does not read events. Source:
// src/internal/trace/tracev2 in Go's sources, Go 1.22 to 1.26.
package tracebatch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// HeaderLen is the length of a trace's header, in bytes.
const HeaderLen = 16

// Types of batches.
const (
	Events          = 1
	Experimental    = 49
	EndOfGeneration = 52
)

// A Batch is a part of a generation. Head and Data are slices of the parsed bytes.
type Batch struct {
	Type byte
	Gen  uint64
	Len  int    // of the whole batch; 0 if it is incomplete
	Head []byte // up to the size
	Data []byte
}

// MaxData is the largest size of a batch's data in the format, in bytes.
const MaxData = 64 << 10

// Parse reads the batch with which in begins; in must not be empty. Of an incomplete batch, Len is 0 without an error.
func Parse(in []byte) (b Batch, err error) {
	b.Type = in[0]
	i := 1
	switch b.Type {
	case EndOfGeneration:
		b.Len = 1
		return b, nil
	case Events:
	case Experimental:
		i = 2
	default:
		return b, fmt.Errorf("a batch was expected, but there is a byte %d", b.Type)
	}
	var size uint64
	for n, to := range []*uint64{&b.Gen, nil, nil, &size} { // generation, thread, time, size
		if n == 3 && i < len(in) {
			b.Head = in[:i]
		}
		if i > len(in) {
			return b, nil
		}
		v, l := binary.Uvarint(in[i:])
		if l == 0 {
			return b, nil
		}
		if l < 0 {
			return b, errors.New("a number in a batch's header is too long")
		}
		if i += l; to != nil {
			*to = v
		}
	}
	if size > MaxData {
		return b, fmt.Errorf("a batch claims %d bytes, more than the format allows", size)
	}
	if end := i + int(size); end <= len(in) {
		b.Data, b.Len = in[i:end], end
	}
	return b, nil
}
