package redact

import (
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/service/internal/tracebatch"
)

// A Writer writes an execution trace with hidden texts. It keeps a generation of the
// trace, about a second, in memory, because the use of a text may be known only at
// the generation's end. Close writes the last generation.
type Writer struct {
	w             io.Writer
	opts          Options
	buffer        []byte // bytes that were written, then the held batches, then an incomplete batch
	writtenBytes  int
	heldBatches   []tracebatch.Batch // of the current generation
	heldBytes     int                // size of heldBatches
	gen           uint64
	headerWritten bool
	err           error
}

// NewWriter returns a Writer for one trace. If an option is invalid, the first Write
// returns the error.
func NewWriter(w io.Writer, o Options) *Writer {
	return &Writer{w: w, opts: o.WithKey(), err: o.Check()}
}

// Write takes the next bytes of a trace, and passes on each generation when it is complete. It keeps no reference to p.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.buffer = append(w.buffer, p...)
	if w.err = w.parseBatches(); w.err != nil {
		return 0, w.err
	}
	if w.writtenBytes > 0 {
		w.buffer, w.writtenBytes = append(w.buffer[:0], w.buffer[w.writtenBytes:]...), 0
	}
	return len(p), nil
}

// Close writes the last generation. It leaves out an incomplete batch at the end and
// returns io.ErrUnexpectedEOF for it. It does not close the writer below.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = w.flush()
	}
	if w.err == nil && len(w.buffer) > w.writtenBytes {
		w.err = fmt.Errorf("redact: the trace's last %d bytes are incomplete: %w", len(w.buffer)-w.writtenBytes, io.ErrUnexpectedEOF)
	}
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("redact: the writer is closed")
	return nil
}

// parseBatches parses the complete batches in the buffer, and writes each complete generation.
func (w *Writer) parseBatches() error {
	if !w.headerWritten {
		if len(w.buffer) < tracebatch.HeaderLen {
			return nil
		}
		if string(w.buffer[:4]) != "go 1" {
			return errors.New("redact: this is not an execution trace of Go 1.22 or later")
		}
		w.headerWritten = true
		if err := w.writeThrough(tracebatch.HeaderLen); err != nil {
			return err
		}
	}
	for w.writtenBytes+w.heldBytes < len(w.buffer) {
		b, err := tracebatch.Parse(w.buffer[w.writtenBytes+w.heldBytes:])
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
			if err := w.writeThrough(b.Len); err != nil {
				return err
			}
			continue
		}
		w.gen = b.Gen
		w.heldBatches = append(w.heldBatches, b)
		w.heldBytes += b.Len
	}
	return nil
}

// writeThrough writes bytes without texts unchanged.
func (w *Writer) writeThrough(n int) error {
	_, err := w.w.Write(w.buffer[w.writtenBytes : w.writtenBytes+n])
	w.writtenBytes += n
	return err
}

// flush redacts and writes the held batches, which are a whole generation, and forgets them.
func (w *Writer) flush() error {
	if len(w.heldBatches) == 0 {
		return nil
	}
	// The bytes may have moved since batches were found.
	offset := w.writtenBytes
	for i := range w.heldBatches {
		b := &w.heldBatches[i]
		all := w.buffer[offset : offset+b.Len]
		b.Head, b.Data = all[:len(b.Head)], all[b.Len-len(b.Data):]
		offset += b.Len
	}
	t := newTexts(&w.opts)
	if w.opts.Hides() {
		for i := range w.heldBatches {
			if err := t.readUses(&w.heldBatches[i]); err != nil {
				return err
			}
		}
	}
	offset = w.writtenBytes
	for i := range w.heldBatches {
		b := &w.heldBatches[i]
		out := w.buffer[offset : offset+b.Len]
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
	w.writtenBytes += w.heldBytes
	w.heldBatches, w.heldBytes = w.heldBatches[:0], 0
	return nil
}
