package mark

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A growing map is read without a lock. What comes to be added is found under one until
// that was as much work as a copy of all: ten thousand names cost each no more than ten.
type growing[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	mu    sync.Mutex // of what follows, and of changing known
	more  map[K]V
	found int // in more, since it was begun
}

func (g *growing[K, V]) get(k K) (v V, ok bool) {
	if m := g.known.Load(); m != nil {
		v, ok = (*m)[k]
	}
	return v, ok
}

// getMore looks among those that were added last, with mu held.
func (g *growing[K, V]) getMore(k K) (v V, ok bool) {
	v, ok = g.more[k]
	if !ok {
		return v, false
	}
	if g.found++; g.found > g.len() {
		var old map[K]V
		if m := g.known.Load(); m != nil {
			old = *m
		}
		all := make(map[K]V, g.len())
		maps.Copy(all, old)
		maps.Copy(all, g.more)
		g.known.Store(&all)
		g.more, g.found = nil, 0
	}
	return v, true
}

// add adds one, with mu held, that getMore has not found.
func (g *growing[K, V]) add(k K, v V) {
	if g.more == nil {
		g.more = make(map[K]V)
	}
	g.more[k] = v
}

// len is how many there are, with mu held.
func (g *growing[K, V]) len() int {
	n := len(g.more)
	if m := g.known.Load(); m != nil {
		n += len(*m)
	}
	return n
}
