package cause

import "github.com/whylate/whylate/internal/trace/tracefmt"

const notFound = 1<<32 - 1 // no frame's id, no string's, and no truth

// A truth is 1 for yes, 0 for no.
type memoBool uint32

func memoBoolOf(b bool) memoBool {
	if b {
		return 1
	}
	return 0
}

// A memo remembers what was found of each stack, frame or function.
type memo[K ~uint32, V tracefmt.FrameID | tracefmt.StringID | memoBool] []V

// get returns what is remembered, and asks find for what is not.
func (m *memo[K, V]) get(id K, find func(K) V) V {
	if values := *m; int(id) < len(values) && values[id] != notFound {
		return values[id]
	}
	return m.add(id, find(id))
}

func (m *memo[K, V]) add(id K, v V) V {
	for int(id) >= len(*m) {
		*m = append(*m, notFound)
	}
	(*m)[id] = v
	return v
}
