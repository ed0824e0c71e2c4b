// Package timelinetest decodes whole traces for tests.
package timelinetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// Each decodes a trace with so many workers and calls f for each generation.
// One that cannot be read to its end fails the test.
func Each(t testing.TB, data []byte, workers int, f func(*timeline.Gen)) *tracefmt.Symbols {
	t.Helper()
	rd, err := tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := timeline.NewDecoder(rd, workers)
	defer d.Close()
	for {
		g, err := d.Next(t.Context())
		switch {
		case errors.Is(err, io.EOF):
			return d.Symbols
		case err != nil:
			t.Fatal(err)
		case g == nil:
			t.Fatal("a generation was skipped")
		}
		f(g)
	}
}

// Window decodes a trace and returns all its generations.
func Window(t testing.TB, data []byte) (*timeline.Window, *tracefmt.Symbols) {
	t.Helper()
	win := new(timeline.Window)
	syms := Each(t, data, 2, func(g *timeline.Gen) { win.Gens = append(win.Gens, g) })
	return win, syms
}

// Built is Window for a trace made by hand.
func Built(t testing.TB, build func(*tracetext.Builder)) (*timeline.Window, *tracefmt.Symbols) {
	t.Helper()
	b := tracetext.New(26)
	build(b)
	data, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return Window(t, data)
}
