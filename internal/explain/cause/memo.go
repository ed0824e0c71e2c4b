package cause

import "github.com/whylate/whylate/internal/trace/tracefmt"

const unknown = 1<<32 - 1 // no frame's id, no string's, and no truth

// A truth is 1 for yes, 0 for no.
type truth uint32

// A memo remembers what was found of each stack.
type memo[T tracefmt.FrameID | tracefmt.StringID | truth] []T

// of returns what is remembered, and asks find for what is not.
func (m *memo[T]) of(id tracefmt.StackID, find func(tracefmt.StackID) T) T {
	if known := *m; int(id) < len(known) && known[id] != unknown {
		return known[id]
	}
	return m.add(id, find(id))
}

func (m *memo[T]) add(id tracefmt.StackID, v T) T {
	for int(id) >= len(*m) {
		*m = append(*m, unknown)
	}
	(*m)[id] = v
	return v
}
