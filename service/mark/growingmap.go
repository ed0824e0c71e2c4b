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
type growingMap[K comparable, V any] struct {
	recent    [64]atomic.Pointer[entry[K, V]]
	merged    atomic.Pointer[map[K]*entry[K, V]]
	closed    atomic.Bool
	mu        sync.Mutex // of what follows, and of changing known
	added     map[K]*entry[K, V]
	addedHits int // in more, since it was begun
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func (g *growingMap[K, V]) get(slot uint, k K) *V {
	recent := &g.recent[slot%uint(len(g.recent))]
	if e := recent.Load(); e != nil && e.key == k {
		return &e.value
	}
	if m := g.merged.Load(); m != nil {
		if e := (*m)[k]; e != nil {
			recent.Store(e)
			return &e.value
		}
	}
	return nil
}

// slotNumber is a number for short texts, of what they differ in most often.
func slotNumber(s string) uint {
	n := uint(len(s))
	if n == 0 {
		return 0
	}
	return n + 5*uint(s[n-1]) + 11*uint(s[n/2]) + 17*uint(s[n/4])
}

// getAdded looks among those that were added last, with mu held.
func (g *growingMap[K, V]) getAdded(k K) *V {
	e := g.added[k]
	if e == nil {
		return nil
	}
	if g.addedHits++; g.addedHits > g.len() {
		g.merge()
	}
	return &e.value
}

// merge makes all be found without the lock, with mu held.
func (g *growingMap[K, V]) merge() {
	all := make(map[K]*entry[K, V], g.len())
	if m := g.merged.Load(); m != nil {
		maps.Copy(all, *m)
	}
	maps.Copy(all, g.added)
	g.merged.Store(&all)
	g.added, g.addedHits = nil, 0
}

// add adds one, with mu held, that getAdded has not found, unless there are as many as
// there may be.
func (g *growingMap[K, V]) add(k K, v V, maxEntries int) {
	if g.closed.Load() {
		return
	}
	if g.added == nil {
		g.added = make(map[K]*entry[K, V])
	}
	g.added[k] = &entry[K, V]{k, v}
	if g.len() >= maxEntries {
		g.merge()
		g.closed.Store(true)
	}
}

// len is how many there are, with mu held.
func (g *growingMap[K, V]) len() int {
	n := len(g.added)
	if m := g.merged.Load(); m != nil {
		n += len(*m)
	}
	return n
}
