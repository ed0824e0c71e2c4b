package mark

import (
	"maps"
	"sync"
	"sync/atomic"
)

// A growingMap is read without a lock. New entries are found with a lock held, until these
// lookups have cost as much as a copy of the whole map; then all entries are merged. So the
// cost for each name does not depend on the number of names. A map with maxEntries entries
// is closed: get then finds every entry, and no caller waits for the lock.
//
// A service has few routes with many requests, so their entries are also in a small cache,
// in a slot that the caller computes from the key. The hash of a key with two or three
// strings took as long as one of the two events that a mark writes.
type growingMap[K comparable, V any] struct {
	recent    [64]atomic.Pointer[entry[K, V]]
	merged    atomic.Pointer[map[K]*entry[K, V]]
	closed    atomic.Bool
	mu        sync.Mutex // guards the fields below, and changes of merged
	added     map[K]*entry[K, V]
	addedHits int // number of lookups in added since the last merge
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// get returns the value of a key without the lock, nil if it is not merged yet or not there. slot, from slotNumber, selects where the last entry is
// remembered. It may be called concurrently.
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

// slotNumber returns a hash of a text from the characters in which short texts differ most often.
func slotNumber(s string) uint {
	n := uint(len(s))
	if n == 0 {
		return 0
	}
	return n + 5*uint(s[n-1]) + 11*uint(s[n/2]) + 17*uint(s[n/4])
}

// getAdded returns the value of an entry that is not merged yet, nil if there is none, with mu held. After many hits it merges.
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

// merge moves all entries to merged, with mu held.
func (g *growingMap[K, V]) merge() {
	all := make(map[K]*entry[K, V], g.len())
	if m := g.merged.Load(); m != nil {
		maps.Copy(all, *m)
	}
	maps.Copy(all, g.added)
	g.merged.Store(&all)
	g.added, g.addedHits = nil, 0
}

// add adds an entry that getAdded has not found, with mu held. When the map has maxEntries entries, it closes the map: from then on add does nothing.
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

// len returns the number of entries, with mu held.
func (g *growingMap[K, V]) len() int {
	n := len(g.added)
	if m := g.merged.Load(); m != nil {
		n += len(*m)
	}
	return n
}
