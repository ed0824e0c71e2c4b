package redact

import (
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/service/internal/tracebatch"
)

// A Writer writes an execution trace with its texts hidden. It keeps a generation
// of the trace, about a second, in memory, because what a text is may only be known
// at the generation's end. Close writes the last one.
type Writer struct {
	w              io.Writer
	opts           Options
	in             []byte // of which gone are written; then come the batches held, then what is not yet one
	writtenBatches int
	held           []tracebatch.Batch // of the generation under way
	whole          int                // bytes of them
	gen            uint64
	headed         bool
	err            error
}

// NewWriter returns a Writer for one trace. If the options make no sense, the first
// Write returns the error.
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
	if w.writtenBatches > 0 {
		w.in, w.writtenBatches = append(w.in[:0], w.in[w.writtenBatches:]...), 0
	}
	return len(p), nil
}

// Close writes what is left. It leaves out an incomplete batch at the end and
// returns io.ErrUnexpectedEOF for it. It does not close the writer below.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = w.flush()
	}
	if w.err == nil && len(w.in) > w.writtenBatches {
		w.err = fmt.Errorf("redact: the trace's last %d bytes are incomplete: %w", len(w.in)-w.writtenBatches, io.ErrUnexpectedEOF)
	}
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("redact: the writer is closed")
	return nil
}

// take finds whole batches, and writes each generation that has come to its end.
func (w *Writer) take() error {
	if !w.headed {
		if len(w.in) < tracebatch.HeaderLen {
			return nil
		}
		if string(w.in[:4]) != "go 1" {
			return errors.New("redact: this is not an execution trace of Go 1.22 or later")
		}
		w.headed = true
		if err := w.pass(tracebatch.HeaderLen); err != nil {
			return err
		}
	}
	for w.writtenBatches+w.whole < len(w.in) {
		b, err := tracebatch.Parse(w.in[w.writtenBatches+w.whole:])
		if err != nil {
			return fmt.Errorf("redact: %w", err)
		}
		if b.Len == 0 {
			break
		}
		end := b.Type == tracebatch.EndOfGeneration
		if end || b.Gen != w.gen {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if end {
			if err := w.pass(b.Len); err != nil {
				return err
			}
			continue
		}
		w.gen = b.Gen
		w.held = append(w.held, b)
		w.whole += b.Len
	}
	return nil
}

// pass writes bytes in which no text is.
func (w *Writer) pass(n int) error {
	_, err := w.w.Write(w.in[w.writtenBatches : w.writtenBatches+n])
	w.writtenBatches += n
	return err
}

// flush writes the generation that is held.
func (w *Writer) flush() error {
	if len(w.held) == 0 {
		return nil
	}
	// The bytes may have moved since batches were found.
	offset := w.writtenBatches
	for i := range w.held {
		b := &w.held[i]
		all := w.in[offset : offset+b.Len]
		b.Head, b.Data = all[:len(b.Head)], all[b.Len-len(b.Data):]
		offset += b.Len
	}
	t := newTexts(&w.opts)
	if w.opts.Hides() {
		for i := range w.held {
			if err := t.readUses(&w.held[i]); err != nil {
				return err
			}
		}
	}
	offset = w.writtenBatches
	for i := range w.held {
		b := &w.held[i]
		out := w.in[offset : offset+b.Len]
		offset += b.Len
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
	w.writtenBatches += w.whole
	w.held, w.whole = w.held[:0], 0
	return nil
}
