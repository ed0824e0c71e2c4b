package tracetext

import (
	"encoding/binary"
	"errors"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Chunk is one batch in the bytes of a trace, or the mark at the end of a generation.
type Chunk struct {
	Off, Data, End int // data[Off:Data] is the header, data[Data:End] the events
	Type           tracefmt.EventType
	Gen, M, Time   uint64
}

var errWire = errors.New("not a whole batch")

// Split divides a trace into its batches and end-of-generation marks, in the order of the file. It returns an error if a batch is
// cut, and does not check the header, the first 16 bytes. It does not use the reader, so that tests can check the reader with it.
func Split(data []byte) ([]Chunk, error) {
	var out []Chunk
	for i := 16; i < len(data); {
		c := Chunk{Off: i, Type: tracefmt.EventType(data[i])}
		i++
		if c.Type == tracefmt.EvEndOfGeneration {
			c.Data, c.End = i, i
			out = append(out, c)
			continue
		}
		if c.Type == tracefmt.EvExperimentalBatch {
			i++
		}
		var size uint64
		for _, v := range []*uint64{&c.Gen, &c.M, &c.Time, &size} {
			n := 0
			if *v, n = binary.Uvarint(data[min(i, len(data)):]); n <= 0 {
				return nil, errWire
			}
			i += n
		}
		if size > uint64(len(data)-i) {
			return nil, errWire
		}
		c.Data, c.End = i, i+int(size)
		i = c.End
		out = append(out, c)
	}
	return out, nil
}
