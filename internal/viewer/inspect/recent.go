package inspect

import (
	"container/list"
	"sync"
)

// A recent remembers what was made, the last used ones, until their sizes add up to more than most; the last one in any case. Without
// size each counts as 1.
type recent[K comparable, V any] struct {
	most int64
	size func(V) int64

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
	if r.at == nil {
		r.at = make(map[K]*list.Element)
	}
	if r.at[key] != nil {
		return
	}
	n := int64(1)
	if r.size != nil {
		n = r.size(v)
	}
	r.at[key] = r.list.PushFront(&remembered[K, V]{key, v, n})
	for r.held += n; r.held > r.most && r.list.Len() > 1; {
		old := r.list.Remove(r.list.Back()).(*remembered[K, V])
		delete(r.at, old.key)
		r.held -= old.size
	}
}
