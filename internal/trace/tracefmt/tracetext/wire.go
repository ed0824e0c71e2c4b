package tracetext

import (
	"encoding/binary"
	"errors"
	"fmt"

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

// Downgrade converts a trace of Go 1.26 to the trace that Go 1.minor would have written: 25 without end marks of
// generations, 23 also with only a frequency instead of the clock snapshot, 22 also without stacks in statuses. It
// fails for a trace with events that the older version does not have.
func Downgrade(data []byte, minor int) ([]byte, error) {
	chunks, err := Split(data)
	if err != nil {
		return nil, fmt.Errorf("downgrading a trace: %w", err)
	}
	out := Header(minor)
	for _, c := range chunks {
		body := data[c.Data:c.End]
		switch {
		case c.Type == tracefmt.EvEndOfGeneration:
			continue
		case c.Type == tracefmt.EvExperimentalBatch:
		case len(body) > 0 && tracefmt.EventType(body[0]) == tracefmt.EvSync && minor < 25:
			_, n := binary.Uvarint(body[2:])
			if tracefmt.EventType(body[1]) != tracefmt.EvFrequency || n <= 0 {
				return nil, errors.New("downgrading a trace: a sync batch does not begin with the frequency")
			}
			body = body[1 : 2+n]
		default:
			if body, err = downgradeEvents(body, minor); err != nil {
				return nil, fmt.Errorf("downgrading a trace: %w", err)
			}
		}
		out = append(out, data[c.Off])
		if c.Type == tracefmt.EvExperimentalBatch {
			out = append(out, data[c.Off+1])
		}
		for _, v := range []uint64{c.Gen, c.M, c.Time, uint64(len(body))} {
			out = binary.AppendUvarint(out, v)
		}
		out = append(out, body...)
	}
	return out, nil
}

// downgradeEvents converts the events of a batch to those of Go 1.minor. An event that this version lacks is an error.
func downgradeEvents(body []byte, minor int) ([]byte, error) {
	if len(body) == 0 || !tracefmt.SpecOf(tracefmt.EventType(body[0])).Timed {
		return body, nil
	}
	var out []byte
	for i := 0; i < len(body); {
		typ := tracefmt.EventType(body[i])
		spec := tracefmt.SpecOf(typ)
		from := i
		i++
		lastArg := i
		for range spec.Args {
			lastArg = i
			_, n := binary.Uvarint(body[i:])
			if n <= 0 {
				return nil, errWire
			}
			i += n
		}
		switch {
		case spec.SinceMinor <= minor:
			out = append(out, body[from:i]...)
		case typ == tracefmt.EvGoStatusStack:
			out = append(out, byte(tracefmt.EvGoStatus))
			out = append(out, body[from+1:lastArg]...)
		default:
			return nil, fmt.Errorf("go 1.%d has no %s event", minor, spec.Name)
		}
	}
	return out, nil
}
