package mark

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A growing map is read without a lock. What comes to be added is found under one until
// that was as much work as a copy of all: ten thousand names cost each no more than ten.
// When it has as many entries as it may have it is closed: what get does not find then is
// not there, and no caller waits for another one.
//
// A service has few routes that are asked for often, so their entries stand apart, by
// a number that the caller makes of the key: to make a key's hash of two or three
// strings took as long as one of the two events that a mark writes.
type growing[K comparable, V any] struct {
	recent [64]atomic.Pointer[entry[K, V]]
	known  atomic.Pointer[map[K]*entry[K, V]]
	closed atomic.Bool
	mu     sync.Mutex // of what follows, and of changing known
	more   map[K]*entry[K, V]
	found  int // in more, since it was begun
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func (g *growing[K, V]) get(number uint, k K) *V {
	recent := &g.recent[number%uint(len(g.recent))]
	if e := recent.Load(); e != nil && e.key == k {
		return &e.value
	}
	if m := g.known.Load(); m != nil {
		if e := (*m)[k]; e != nil {
			recent.Store(e)
			return &e.value
		}
	}
	return nil
}

// numberOf is a number for short texts, of what they differ in most often.
func numberOf(s string) uint {
	n := uint(len(s))
	if n == 0 {
		return 0
	}
	return n + 5*uint(s[n-1]) + 11*uint(s[n/2]) + 17*uint(s[n/4])
}

// getMore looks among those that were added last, with mu held.
func (g *growing[K, V]) getMore(k K) *V {
	e := g.more[k]
	if e == nil {
		return nil
	}
	if g.found++; g.found > g.len() {
		g.merge()
	}
	return &e.value
}

// merge makes all be found without the lock, with mu held.
func (g *growing[K, V]) merge() {
	all := make(map[K]*entry[K, V], g.len())
	if m := g.known.Load(); m != nil {
		maps.Copy(all, *m)
	}
	maps.Copy(all, g.more)
	g.known.Store(&all)
	g.more, g.found = nil, 0
}

// add adds one, with mu held, that getMore has not found, unless there are as many as
// there may be.
func (g *growing[K, V]) add(k K, v V, most int) {
	if g.closed.Load() {
		return
	}
	if g.more == nil {
		g.more = make(map[K]*entry[K, V])
	}
	g.more[k] = &entry[K, V]{k, v}
	if g.len() >= most {
		g.merge()
		g.closed.Store(true)
	}
}

// len is how many there are, with mu held.
func (g *growing[K, V]) len() int {
	n := len(g.more)
	if m := g.known.Load(); m != nil {
		n += len(*m)
	}
	return n
}
