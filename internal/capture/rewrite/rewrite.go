// Package rewrite writes a recording again, to be handed on: a part of its time (Cut), or with its texts hidden (Redact).
// Both read it once, from front to back, and hold a generation of the trace in memory.
package rewrite

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
)

// A Source is a recording to be written again.
type Source struct {
	Name  string // for messages
	Trace io.Reader
	// Bundle is the .whylate file that Trace is of; nil for a bare trace, which is written as one.
	Bundle *bundle.Bundle
}

// entries are what a bundle holds beside its trace.
type entries struct {
	meta              bundle.Meta
	host, allocs, cpu []byte
}

func (s *Source) entries() (*entries, error) {
	e := &entries{meta: s.Bundle.Meta()}
	for _, part := range []struct {
		to   *[]byte
		read func() ([]byte, error)
	}{{&e.host, s.Bundle.HostSamples}, {&e.allocs, s.Bundle.AllocsProfile}, {&e.cpu, s.Bundle.CPUProfile}} {
		data, err := part.read()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("reading %s: %w", s.Name, err)
		}
		*part.to = data
	}
	return e, nil
}

// write writes a bundle: the trace by trace, then the entries as change leaves them, which may depend on what the trace held.
func (e *entries) write(w io.Writer, trace func(io.Writer) error, change func() error) error {
	b, err := bundle.NewWriter(w, e.meta.Start)
	if err != nil {
		return err
	}
	if err := trace(b); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		data []byte
	}{{bundle.NameCPU, e.cpu}, {bundle.NameAllocs, e.allocs}, {bundle.NameHost, e.host}} {
		if err := b.Add(part.name, part.data); err != nil {
			return err
		}
	}
	return b.Close(e.meta)
}

// hostLines calls change with each line of host samples, in place, and keeps those for which it returns true. A line that
// cannot be read is left out: nothing is known of what it holds.
func hostLines(lines []byte, change func(*host.Line) bool) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	for line := range bytes.Lines(lines) {
		var l host.Line
		if json.Unmarshal(line, &l) != nil || !change(&l) {
			continue
		}
		if err := enc.Encode(&l); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}
