package redact

import (
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/service/internal/tracebatch"
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

// take holds whole batches.
func (w *Writer) take() error {
	in := w.in
	if !w.headed {
		if len(in) < tracebatch.HeaderLen {
			return nil
		}
		if string(in[:4]) != "go 1" {
			return errors.New("redact: this is no execution trace of Go 1.22 or later")
		}
		if _, err := w.w.Write(in[:tracebatch.HeaderLen]); err != nil {
			return err
		}
		in, w.headed = in[tracebatch.HeaderLen:], true
	}
	for len(in) > 0 {
		b, err := parseBatch(in)
		if err != nil {
			return err
		}
		if b.Len == 0 {
			break
		}
		if b.Type == tracebatch.EndOfGeneration {
			if err := w.flush(); err != nil {
				return err
			}
			if _, err := w.w.Write(in[:1]); err != nil {
				return err
			}
			in = in[1:]
			continue
		}
		if b.Gen != w.gen {
			if err := w.flush(); err != nil {
				return err
			}
			w.gen = b.Gen
		}
		w.held = append(w.held, in[:b.Len]...)
		in = in[b.Len:]
	}
	w.in = append(w.in[:0], in...)
	return nil
}

// parseBatch reads the batch with which in begins.
func parseBatch(in []byte) (tracebatch.Batch, error) {
	b, err := tracebatch.Parse(in)
	if err != nil {
		err = fmt.Errorf("redact: %w", err)
	}
	return b, err
}

// flush writes the generation that is held.
func (w *Writer) flush() error {
	held := w.held
	if len(held) == 0 {
		return nil
	}
	var batches []tracebatch.Batch
	for len(held) > 0 {
		b, err := parseBatch(held)
		if err != nil {
			return err
		}
		batches = append(batches, b)
		held = held[b.Len:]
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
		out := all[:b.Len]
		all = all[b.Len:]
		if w.opts.Hides() && b.Type == tracebatch.Events && len(b.Data) > 0 && b.Data[0] == evStrings {
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
