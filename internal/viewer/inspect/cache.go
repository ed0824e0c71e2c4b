package inspect

import (
	"container/list"
	"context"
	"sync"
)

// A cache holds the most recently used values, until the sum of their sizes exceeds capacity. It always holds the
// last one.
type cache[K comparable, V any] struct {
	capacity int64
	size     func(V) int64
	makeSlot chan struct{} // one slot, held while make runs

	mu       sync.Mutex
	elements map[K]*list.Element // of *remembered[K, V]
	order    list.List           // most recently used first
	held     int64
}

type cacheEntry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func newCache[K comparable, V any](capacity int64, size func(V) int64) *cache[K, V] {
	return &cache[K, V]{capacity: capacity, size: size, makeSlot: make(chan struct{}, 1), elements: make(map[K]*list.Element)}
}

// unitSize is the size function of a cache that counts its values.
func unitSize[V any](V) int64 { return 1 }

// getOrMake returns the cached value of a key; if there is none, it calls make and caches the value. An error of make is
// returned and not cached. Only one make runs at a time; if ctx ends before, the error is ctx.Err().
func (c *cache[K, V]) getOrMake(ctx context.Context, key K, make func() (V, error)) (V, error) {
	if v, ok := c.get(key); ok {
		return v, nil
	}
	select {
	case c.makeSlot <- struct{}{}:
		defer func() { <-c.makeSlot }()
	case <-ctx.Done():
		return *new(V), ctx.Err()
	}
	if v, ok := c.get(key); ok {
		return v, nil
	}
	v, err := make()
	if err == nil {
		c.put(key, v)
	}
	return v, err
}

// get returns the cached value of a key and makes it the most recently used one; false if there is none.
func (c *cache[K, V]) get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.elements[key]
	if e == nil {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cacheEntry[K, V]).value, true
}

// put adds a value, and removes the least recently used ones beyond the capacity. A key that is cached keeps its value.
func (c *cache[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.elements[key] != nil {
		return
	}
	n := c.size(v)
	c.elements[key] = c.order.PushFront(&cacheEntry[K, V]{key, v, n})
	for c.held += n; c.held > c.capacity && c.order.Len() > 1; {
		old := c.order.Remove(c.order.Back()).(*cacheEntry[K, V])
		delete(c.elements, old.key)
		c.held -= old.size
	}
}
