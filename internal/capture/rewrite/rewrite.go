// Package rewrite copies a recording with changes, so that users can pass it on: Cut keeps a range of
// its time, and Redact replaces its texts.
//
// Both read the recording once, from front to back, and keep one generation of the trace in memory. Of
// a truncated or damaged recording they copy the readable part: the generations before the damage, and
// the other entries of the bundle. A Loss reports the rest.
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
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/capture/bundle"
	"github.com/whylate/whylate/internal/capture/host"
	"github.com/whylate/whylate/internal/capture/kernelevents"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Source is the recording to copy.
type Source struct {
	Name string // for messages
	// Trace may be gzipped. The copy is not.
	Trace io.Reader
	// Bundle is the .whylate file that has Trace; nil for a bare trace, whose copy is a bare trace.
	Bundle *bundle.Bundle
	// Meta is set for an unfinished .whylate file, which has only a trace.
	Meta *bundle.Meta
}

// A Loss is the part of a source that was unreadable and is missing in the copy.
type Loss struct {
	// Truncated means that the trace is cut or damaged after the copied part.
	Truncated bool
	// Entries are the names of unreadable entries of the bundle.
	Entries []string
}

// traceHeader returns the header of a trace of Go 1.minor.
func traceHeader(minor int) []byte {
	h := make([]byte, 16)
	copy(h, fmt.Sprintf("go 1.%d trace", minor))
	return h
}

// newReader returns a reader of the source's generations, without a limit of their size.
func (s *Source) newReader() (*tracefmt.Reader, error) {
	rd, err := tracefmt.NewReader(s.Trace, tracefmt.Options{MaxGeneration: math.MaxInt})
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", s.Name, err)
	}
	return rd, nil
}

// classifyError interprets an error of tracefmt.Reader.Next. At the trace's end both results are zero; truncated means that the trace is damaged here
// and the rest is unreadable; failure is any other error, such as that of a context.
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

// bundleEntries are the entries of a bundle except its trace.
type bundleEntries struct {
	meta                      bundle.Meta
	host, allocs, cpu, kernel []byte
	loss                      Loss
}

func (s *Source) isBundle() bool { return s.Bundle != nil || s.Meta != nil }

// readEntries reads the entries of the source's bundle. A damaged entry is listed in loss; of host samples and kernel events
// the part before the damage is used. Of a bundle that is cut, only the metadata is available.
func (s *Source) readEntries() *bundleEntries {
	if s.Bundle == nil {
		return &bundleEntries{meta: *s.Meta, loss: Loss{Truncated: true}}
	}
	e := &bundleEntries{meta: s.Bundle.Meta()}
	for _, entry := range []struct {
		target  *[]byte
		name    string
		read    func() ([]byte, error)
		isLines bool // the part before the damage is usable
	}{{&e.host, bundle.NameHost, s.Bundle.HostSamples, true}, {&e.allocs, bundle.NameAllocs, s.Bundle.AllocsProfile, false}, {&e.cpu, bundle.NameCPU, s.Bundle.CPUProfile, false}, {&e.kernel, bundle.NameKernel, s.Bundle.KernelEvents, true}} {
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

// writeBundle writes a bundle: writeTrace writes the trace, then change modifies the other entries,
// which may depend on the trace's content.
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
	}{{bundle.NameCPU, e.cpu}, {bundle.NameAllocs, e.allocs}, {bundle.NameHost, e.host}, {bundle.NameKernel, e.kernel}} {
		if err := b.Add(entry.name, entry.data); err != nil {
			return err
		}
	}
	return b.Close(e.meta)
}

// rewriteKernelEvents replaces the kernel's events by those for which keep returns true, and calls change with their tables. If that fails, it drops
// them and lists the entry in loss.
func (e *bundleEntries) rewriteKernelEvents(keep func(*kernelevents.Event) bool, change func(*kernelevents.Tables)) {
	if len(e.kernel) == 0 {
		return
	}
	var err error
	if e.kernel, err = kernelevents.Rewrite(e.kernel, keep, change); err != nil {
		e.kernel = nil
		if !slices.Contains(e.loss.Entries, bundle.NameKernel) {
			e.loss.Entries = append(e.loss.Entries, bundle.NameKernel)
		}
	}
}

// addLoss adds warnings about e.loss to the metadata, before other warnings, because a report may show only the first one.
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

// startOf returns when a generation began, in ns of CLOCK_MONOTONIC and by the wall clock (UTC); ok is false if the trace has no clock snapshot.
func startOf(g *tracefmt.Generation) (mono int64, wall time.Time, ok bool) {
	if !g.HasSnapshot {
		return 0, time.Time{}, false
	}
	s, sinceStart := &g.Snapshot, clockTime(g, g.Snapshot.Time)-clockTime(g, g.MinTime)
	return int64(s.Mono) - int64(sinceStart), time.Unix(int64(s.UnixSec), int64(s.UnixNsec)).Add(-sinceStart).UTC(), true
}

// filterHostLines calls change with each line of host samples, which it may modify, and returns the
// lines for which change returns true. It drops lines that it cannot read, because their content is
// unknown.
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
