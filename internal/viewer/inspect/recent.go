package inspect

import (
	"container/list"
	"context"
	"sync"
)

// A recent remembers what was made, the last used ones, until their sizes add up to more than most; the last one in any case.
type recent[K comparable, V any] struct {
	most   int64
	size   func(V) int64
	making chan struct{} // a place for who makes one

	mu   sync.Mutex
	at   map[K]*list.Element // of *remembered[K, V]
	list list.List           // last used first
	held int64
}

type remembered[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func newRecent[K comparable, V any](most int64, size func(V) int64) *recent[K, V] {
	return &recent[K, V]{most: most, size: size, making: make(chan struct{}, 1), at: make(map[K]*list.Element)}
}

// one is a size for values that are counted.
func one[V any](V) int64 { return 1 }

// of returns what is remembered, else what make makes. One is made at a time.
func (r *recent[K, V]) of(ctx context.Context, key K, make func() (V, error)) (V, error) {
	if v, ok := r.get(key); ok {
		return v, nil
	}
	select {
	case r.making <- struct{}{}:
		defer func() { <-r.making }()
	case <-ctx.Done():
		return *new(V), ctx.Err()
	}
	if v, ok := r.get(key); ok {
		return v, nil
	}
	v, err := make()
	if err == nil {
		r.put(key, v)
	}
	return v, err
}

func (r *recent[K, V]) get(key K) (v V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.at[key]
	if e == nil {
		return v, false
	}
	r.list.MoveToFront(e)
	return e.Value.(*remembered[K, V]).value, true
}

func (r *recent[K, V]) put(key K, v V) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at[key] != nil {
		return
	}
	n := r.size(v)
	r.at[key] = r.list.PushFront(&remembered[K, V]{key, v, n})
	for r.held += n; r.held > r.most && r.list.Len() > 1; {
		old := r.list.Remove(r.list.Back()).(*remembered[K, V])
		delete(r.at, old.key)
		r.held -= old.size
	}
}
