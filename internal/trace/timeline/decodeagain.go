package timeline

import (
	"fmt"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// ResumeState is what decoding one generation needs to know of those before it.
type ResumeState struct {
	First         bool     // nothing was before it
	StoppingWorld []uint64 // goroutines that were stopping the world as it began
}

// ResumeState returns what is needed to decode this generation again by itself. The
// slice is the Gen's own.
func (g *Gen) ResumeState() ResumeState { return ResumeState{g.First, g.stwBefore} }

// NewSingle returns a Decoder for single generations of a trace whose symbols
// are known: see Again. It reads nothing by itself and needs no Close.
func NewSingle(syms *tracefmt.Symbols, workers int) *Decoder {
	d := newDecoder(workers)
	d.Symbols = syms
	return d
}

// DecodeAgain decodes one generation by itself, with the same result as when it was
// decoded in its turn. It fails if the generation holds a string or stack that
// the symbols do not have: then the trace is not the one that was read before.
func (d *Decoder) DecodeAgain(src *tracefmt.Generation, state ResumeState) (*Gen, error) {
	strings, stacks := d.Symbols.Strings(), d.Symbols.Stacks()
	d.nextIsFirst = state.First
	d.stoppingWorld = make(map[uint64]bool, len(state.StoppingWorld))
	for _, g := range state.StoppingWorld {
		d.stoppingWorld[g] = true
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
