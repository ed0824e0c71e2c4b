package cause

import "github.com/whylate/whylate/internal/trace/tracefmt"

const unknown = 1<<32 - 1 // no frame's id, no string's, and no truth

// A truth is 1 for yes, 0 for no.
type truth uint32

func truthOf(b bool) truth {
	if b {
		return 1
	}
	return 0
}

// A memo remembers what was found of each stack, frame or function.
type memo[K ~uint32, V tracefmt.FrameID | tracefmt.StringID | truth] []V

// of returns what is remembered, and asks find for what is not.
func (m *memo[K, V]) of(id K, find func(K) V) V {
	if known := *m; int(id) < len(known) && known[id] != unknown {
		return known[id]
	}
	return m.add(id, find(id))
}

func (m *memo[K, V]) add(id K, v V) V {
	for int(id) >= len(*m) {
		*m = append(*m, unknown)
	}
	(*m)[id] = v
	return v
}
