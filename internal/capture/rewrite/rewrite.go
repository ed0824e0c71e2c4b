// Package rewrite writes a recording again, to be handed on: a part of its time (Cut), or with its texts hidden (Redact).
// Both read it once, from front to back, and hold a generation of the trace in memory. Of a recording that is cut or damaged they
// write what can be read: the generations before the damage, and the other entries of its bundle.
package rewrite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Source is a recording to be written again.
type Source struct {
	Name string // for messages
	// Trace may be packed by gzip. It is written unpacked.
	Trace io.Reader
	// Bundle is the .whylate file that Trace is of; nil for a bare trace, which is written as one.
	Bundle *bundle.Bundle
	// Meta is set for a .whylate file that was not finished: it has a trace and no other entry.
	Meta *bundle.Meta
}

// A Loss is what could not be read of a source, so that it is not in what was written.
type Loss struct {
	// Truncated says that the trace is cut or damaged behind what was read.
	Truncated bool
	// Entries are the names of entries of the bundle.
	Entries []string
}

// traceHeader returns the header of a trace with a minor version of Go.
func traceHeader(minor int) []byte {
	h := make([]byte, 16)
	copy(h, fmt.Sprintf("go 1.%d trace", minor))
	return h
}

// newReader returns a reader of the source's generations, however large they are.
func (s *Source) newReader() (*tracefmt.Reader, error) {
	rd, err := tracefmt.NewReader(s.Trace, tracefmt.Options{MaxGeneration: math.MaxInt})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Name, err)
	}
	return rd, nil
}

// classifyError says what an error of tracefmt.Reader.Next means: the trace's end, the end of what can be read of it, or a failure.
func (s *Source) classifyError(err error) (truncated bool, failure error) {
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Errorf("reading %s: %w", s.Name, err)
	case tracefmt.KindOf(err) != 0:
		return true, nil
	case errors.Is(err, io.EOF):
		return false, nil
	}
	return false, fmt.Errorf("reading %s: %w", s.Name, err)
}

// bundleEntries are what a bundle holds beside its trace.
type bundleEntries struct {
	meta              bundle.Meta
	host, allocs, cpu []byte
	loss              Loss
}

func (s *Source) isBundle() bool { return s.Bundle != nil || s.Meta != nil }

func (s *Source) readEntries() *bundleEntries {
	if s.Bundle == nil {
		return &bundleEntries{meta: *s.Meta, loss: Loss{Truncated: true}}
	}
	e := &bundleEntries{meta: s.Bundle.Meta()}
	for _, entry := range []struct {
		target  *[]byte
		name    string
		read    func() ([]byte, error)
		isLines bool // of which those before the damage are of use
	}{{&e.host, bundle.NameHost, s.Bundle.HostSamples, true}, {&e.allocs, bundle.NameAllocs, s.Bundle.AllocsProfile, false}, {&e.cpu, bundle.NameCPU, s.Bundle.CPUProfile, false}} {
		data, err := entry.read()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.loss.Entries = append(e.loss.Entries, entry.name)
		}
		if err == nil || entry.isLines {
			*entry.target = data
		}
	}
	return e
}

// writeBundle writes a bundle: the trace by trace, then the entries as change leaves them, which may depend on what the trace held.
func (e *bundleEntries) writeBundle(w io.Writer, writeTrace func(io.Writer) error, change func() error) error {
	b, err := bundle.NewWriter(w, e.meta.Start)
	if err != nil {
		return err
	}
	if err := writeTrace(b); err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	e.addLoss()
	for _, entry := range []struct {
		name string
		data []byte
	}{{bundle.NameCPU, e.cpu}, {bundle.NameAllocs, e.allocs}, {bundle.NameHost, e.host}} {
		if err := b.Add(entry.name, entry.data); err != nil {
			return err
		}
	}
	return b.Close(e.meta)
}

// addLoss adds to the metadata what could not be read, before other warnings: a report may show the first alone.
func (e *bundleEntries) addLoss() {
	m, warnings := &e.meta, e.meta.Warnings
	m.Warnings = nil
	defer func() { m.Warnings = append(m.Warnings, warnings...) }()
	if e.loss.Truncated {
		m.Truncated = true
		m.Warnings = append(m.Warnings, bundle.Warning{Code: "damaged", Text: "the recording that this was written from is cut or damaged: the trace ends where it could no longer be read"})
	}
	if len(e.loss.Entries) > 0 {
		m.Warnings = append(m.Warnings, bundle.Warning{Code: "unreadable", Text: "the recording that this was written from is damaged: it could not be read, or not to its end: " + strings.Join(e.loss.Entries, ", ")})
	}
}

// startOf returns when a generation began by the monotonic clock, in ns, and by the wall clock; ok is false where the trace does
// not say so.
func startOf(g *tracefmt.Generation) (mono int64, wall time.Time, ok bool) {
	if !g.HasSnapshot {
		return 0, time.Time{}, false
	}
	s, sinceStart := &g.Snapshot, clockTime(g, g.Snapshot.Time)-clockTime(g, g.MinTime)
	return int64(s.Mono) - int64(sinceStart), time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).Add(-sinceStart).UTC(), true
}

// filterHostLines calls change with each line of host samples, in place, and keeps those for which it returns true. A line that
// cannot be read is left out: nothing is known of what it holds.
func filterHostLines(lines []byte, change func(*host.Line) bool) ([]byte, error) {
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
