package timeline

import (
	"fmt"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// Resume is what decoding one generation needs to know of those before it.
type Resume struct {
	First   bool     // nothing was before it
	Stopped []uint64 // goroutines that were stopping the world as it began
}

// Resume returns what is needed to decode this generation again by itself. The
// slice is the Gen's own.
func (g *Gen) Resume() Resume { return Resume{g.First, g.stwBefore} }

// NewSingle returns a Decoder for single generations of a trace whose symbols
// are known: see Again. It reads nothing by itself and needs no Close.
func NewSingle(syms *tracefmt.Symbols, workers int) *Decoder {
	d := newDecoder(workers)
	d.Symbols = syms
	return d
}

// Again decodes one generation by itself, with the same result as when it was
// decoded in its turn. It fails if the generation holds a string or stack that
// the symbols do not have: then the trace is not the one that was read before.
func (d *Decoder) Again(src *tracefmt.Generation, state Resume) (*Gen, error) {
	strings, stacks := d.Symbols.Strings(), d.Symbols.Stacks()
	d.first = state.First
	d.stopped = make(map[uint64]bool, len(state.Stopped))
	for _, g := range state.Stopped {
		d.stopped[g] = true
	}
	g, err := d.decode(src)
	if err != nil {
		return nil, err
	}
	if d.Symbols.Strings() != strings || d.Symbols.Stacks() != stacks {
		return nil, fmt.Errorf("generation %d is not what it was when the trace was first read", src.Num)
	}
	return g, nil
}
