package cause

import "github.com/whylate/whylate/internal/trace/tracefmt"

const notFound = 1<<32 - 1 // not a frame's id, a string's id or a memoBool

// A memoBool is 1 for true, 0 for false.
type memoBool uint32

func memoBoolOf(b bool) memoBool {
	if b {
		return 1
	}
	return 0
}

// A memo caches a result by the id of a stack, frame or function (a slice indexed by id).
type memo[K ~uint32, V tracefmt.FrameID | tracefmt.StringID | memoBool] []V

// get returns the cached result, or calls find and caches its result.
func (m *memo[K, V]) get(id K, find func(K) V) V {
	if values := *m; int(id) < len(values) && values[id] != notFound {
		return values[id]
	}
	return m.add(id, find(id))
}

// add stores the result of an id, and returns it.
func (m *memo[K, V]) add(id K, v V) V {
	for int(id) >= len(*m) {
		*m = append(*m, notFound)
	}
	(*m)[id] = v
	return v
}
