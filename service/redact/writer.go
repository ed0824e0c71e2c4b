package redact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Writer takes an execution trace and writes it with its texts hidden. It
// keeps a generation of the trace, about a second, in memory: only then it is
// known what each text is. Close writes the last one.
type Writer struct {
	w      io.Writer
	opts   Options
	in     []byte // not yet looked at
	held   []byte // batches of the generation under way
	gen    uint64
	headed bool
	err    error
}

// NewWriter returns a Writer for one trace. Options that make no sense are told
// by the first Write.
func NewWriter(w io.Writer, o Options) *Writer {
	return &Writer{w: w, opts: o.WithKey(), err: o.Check()}
}

// Write takes the next bytes of a trace.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.in = append(w.in, p...)
	if w.err = w.take(); w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// Close writes what is left. An incomplete batch at the end is left out, and told
// as io.ErrUnexpectedEOF. It does not close the writer below.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = w.flush()
	}
	if w.err == nil && len(w.in) > 0 {
		w.err = fmt.Errorf("redact: the trace's last %d bytes are incomplete: %w", len(w.in), io.ErrUnexpectedEOF)
	}
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("redact: the writer is closed")
	return nil
}

const headerLen = 16

// take holds whole batches.
func (w *Writer) take() error {
	in := w.in
	if !w.headed {
		if len(in) < headerLen {
			return nil
		}
		if string(in[:4]) != "go 1" {
			return errors.New("redact: this is no execution trace of Go 1.22 or later")
		}
		if _, err := w.w.Write(in[:headerLen]); err != nil {
			return err
		}
		in, w.headed = in[headerLen:], true
	}
	for len(in) > 0 {
		b, err := parseBatch(in)
		if err != nil {
			return err
		}
		if b.len == 0 {
			break
		}
		if b.typ == evEndOfGeneration {
			if err := w.flush(); err != nil {
				return err
			}
			if _, err := w.w.Write(in[:1]); err != nil {
				return err
			}
			in = in[1:]
			continue
		}
		if b.gen != w.gen {
			if err := w.flush(); err != nil {
				return err
			}
			w.gen = b.gen
		}
		w.held = append(w.held, in[:b.len]...)
		in = in[b.len:]
	}
	w.in = append(w.in[:0], in...)
	return nil
}

// A batch is a part of a generation: data lies in the bytes that it was parsed
// from.
type batch struct {
	typ  byte
	gen  uint64
	len  int    // of all, 0 if it is not all there
	head []byte // up to the size
	data []byte
}

const maxBatch = 64 << 10

func parseBatch(in []byte) (b batch, err error) {
	b.typ = in[0]
	i := 1
	switch b.typ {
	case evEndOfGeneration:
		b.len = 1
		return b, nil
	case evEventBatch:
	case evExperimentalBatch:
		i = 2
	default:
		return b, fmt.Errorf("redact: a batch was expected, but there is a byte %d", b.typ)
	}
	var size uint64
	for n, to := range []*uint64{&b.gen, nil, nil, &size} { // generation, thread, time, size
		if n == 3 && i < len(in) {
			b.head = in[:i]
		}
		if i > len(in) {
			return b, nil
		}
		v, l := binary.Uvarint(in[i:])
		if l == 0 {
			return b, nil
		}
		if l < 0 {
			return b, errors.New("redact: a number in a batch's header is too long")
		}
		if i += l; to != nil {
			*to = v
		}
	}
	if size > maxBatch {
		return b, fmt.Errorf("redact: a batch claims %d bytes, more than the format allows", size)
	}
	if end := i + int(size); end <= len(in) {
		b.data, b.len = in[i:end], end
	}
	return b, nil
}

// flush writes the generation that is held.
func (w *Writer) flush() error {
	held := w.held
	if len(held) == 0 {
		return nil
	}
	var batches []batch
	for len(held) > 0 {
		b, err := parseBatch(held)
		if err != nil {
			return err
		}
		batches = append(batches, b)
		held = held[b.len:]
	}
	t := newTexts(&w.opts)
	for i := range batches {
		if !w.opts.Hides() {
			break
		}
		if err := t.learn(&batches[i]); err != nil {
			return err
		}
	}
	all := w.held
	for i := range batches {
		b := &batches[i]
		out := all[:b.len]
		all = all[b.len:]
		if w.opts.Hides() && b.typ == evEventBatch && len(b.data) > 0 && b.data[0] == evStrings {
			var err error
			if out, err = t.rewrite(b); err != nil {
				return err
			}
		}
		if _, err := w.w.Write(out); err != nil {
			return err
		}
	}
	w.held = w.held[:0]
	return nil
}
