package bundle

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Writer writes one recording: first the trace, then other entries, then Close. It is not safe for
// concurrent use.
//
// service/flight has a small copy of it, because that package may depend on the standard library only.
type Writer struct {
	zip      *zip.Writer
	trace    io.Writer
	names    map[string]bool
	modified time.Time
}

// NewWriter begins a recording on w with the trace's entry. The start time becomes the time of
// modification of every entry.
func NewWriter(w io.Writer, start time.Time) (*Writer, error) {
	b := &Writer{zip: zip.NewWriter(w), names: map[string]bool{}, modified: start}
	var err error
	b.trace, err = b.create(NameTrace, zip.Store)
	return b, err
}

// create begins an entry; a second one of the same name is an error. Traces are stored so that they can be used in place, profiles because they are
// already compressed.
func (b *Writer) create(name string, method uint16) (io.Writer, error) {
	if b.names[name] {
		return nil, fmt.Errorf("writing a recording: entry %s was written already", name)
	}
	b.names[name] = true
	w, err := b.zip.CreateHeader(&zip.FileHeader{Name: name, Method: method, Modified: b.modified})
	if err != nil {
		return nil, fmt.Errorf("writing a recording: %w", err)
	}
	return w, nil
}

// Write appends to the trace. It fails once Add or Close has been called.
func (b *Writer) Write(p []byte) (int, error) {
	if b.trace == nil {
		return 0, errors.New("writing a recording: the trace is finished")
	}
	return b.trace.Write(p)
}

// Add finishes the trace and adds another entry. An entry without data is left out, without an error.
func (b *Writer) Add(name string, data []byte) error {
	b.trace = nil
	if len(data) == 0 {
		return nil
	}
	method := zip.Store
	if name == NameHost {
		method = zip.Deflate // repetitive text
	}
	w, err := b.create(name, method)
	if err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Close writes the metadata, with the schema set, and the zip's directory. It does not close the
// underlying writer.
func (b *Writer) Close(m Meta) error {
	m.Schema = Schema
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("writing a recording: %w", err)
	}
	if err := b.Add(NameMeta, append(data, '\n')); err != nil {
		return err
	}
	return b.zip.Close()
}
