package explain

import (
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/explain/path"
)

// A spare leaves sums out of a reading that will be done again. Of the first reading of a trace whose requests wait for
// others of the same process, only the groups, the peers and the slowest requests are of use: graphs for predictions alone take a sixth
// of the CPU of both. That this is so is guessed as soon as enough requests were seen; if the guess proves wrong, the trace is
// read again all the same, for what was left out.
type spare struct{ now bool }

// sparing says when a reading leaves sums out.
type sparing uint8

const (
	spareNone sparing = iota
	spareLikely
	spareAll
)

// guess is asked after each walk, of the 1st, 2nd, 4th ... generation.
func (e *engine) guess() {
	e.walks++
	if !e.spare.now && e.walks&(e.walks-1) == 0 {
		e.spare.now = e.opts.guessYes || e.peers.Likely()
	}
}

// sum returns a Sum that adds nothing once the spare is on.
func (s *spare) sum(of pass.Sum) pass.Sum {
	x := spared{of, s}
	if c, ok := of.(pass.Chooser); ok {
		return sparedChooser{x, c} // which requests are walked must not depend on a guess
	}
	return x
}

type spared struct {
	pass.Sum
	by *spare
}

type sparedChooser struct {
	spared
	pass.Chooser
}

// Part implements pass.Sum.
func (s spared) Part(stage *path.Stage) path.Adder {
	a := sparedPart{Adder: s.Sum.Part(stage), by: s.by}
	a.flusher, _ = a.Adder.(pass.Flusher)
	return a
}

// End implements pass.Sum.
func (s spared) End() {
	if !s.by.now {
		s.Sum.End()
	}
}

type sparedPart struct {
	path.Adder
	flusher pass.Flusher
	by      *spare
}

// Add implements path.Adder.
func (p sparedPart) Add(w *path.Walked) {
	if !p.by.now {
		p.Adder.Add(w)
	}
}

// Flush implements pass.Flusher.
func (p sparedPart) Flush() {
	if p.flusher != nil && !p.by.now {
		p.flusher.Flush()
	}
}
