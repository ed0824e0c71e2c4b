// Package timelinetest decodes whole traces for tests.
package timelinetest

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// ForEachGen decodes a trace with a number of workers and calls f for each generation. It fails the test if the
// trace cannot be read to its end.
func ForEachGen(t testing.TB, data []byte, workers int, f func(*timeline.Gen)) *tracefmt.Symbols {
	t.Helper()
	rd, err := tracefmt.NewReader(bytes.NewReader(data), tracefmt.Options{})
	must.Do(t, err)
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

// DecodeWindow decodes a trace and returns a window of all its generations, with the symbols.
func DecodeWindow(t testing.TB, data []byte) (*timeline.Window, *tracefmt.Symbols) {
	t.Helper()
	win := new(timeline.Window)
	syms := ForEachGen(t, data, 2, func(g *timeline.Gen) { win.Gens = append(win.Gens, g) })
	return win, syms
}

// BuildWindow is DecodeWindow for a trace that build describes.
func BuildWindow(t testing.TB, build func(*tracetext.Builder)) (*timeline.Window, *tracefmt.Symbols) {
	t.Helper()
	b := tracetext.New(26)
	build(b)
	data := must.Have(b.Bytes())(t)
	return DecodeWindow(t, data)
}
