package timeline

import (
	"fmt"

	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A ResumeState is the part of the state after earlier generations that decoding a generation depends on.
type ResumeState struct {
	First         bool     // it is the first generation of the trace
	StoppingWorld []uint64 // goroutines that stopped the world when it began
}

// ResumeState returns the state needed to decode this generation again without those before it. The slice in it is
// the Gen's; callers must not change it.
func (g *Gen) ResumeState() ResumeState { return ResumeState{g.First, g.stwBefore} }

// NewSingle returns a Decoder for DecodeAgain, on a trace whose symbols are known. It has no reader, and Close is
// not needed.
func NewSingle(syms *tracefmt.Symbols, workers int) *Decoder {
	d := newDecoder(workers)
	d.Symbols = syms
	return d
}

// DecodeAgain decodes one generation without those before it, with the same result as in the first reading. state is that Gen's
// ResumeState. It returns an error if the generation contains a string or stack that the symbols do not have: then the trace
// has changed since the first reading.
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
