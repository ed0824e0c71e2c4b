package tune

import (
	"runtime"
	"sync/atomic"
)

// A collectionHook sends a token after each garbage collection: the runtime
// queues the finalizer of an object that nothing points to when a collection
// found it, and the finalizer makes the next object wait. That costs one
// finalizer a collection, and nothing between two.
type collectionHook struct {
	stopped atomic.Bool
	tokens  chan struct{} // of capacity 1; one token stands for all that were not taken
}

// A sentinel holds a pointer, so that the runtime does not put it into a block
// with other small objects, whose finalizers could wait for each other.
type sentinel struct{ hook *collectionHook }

func newCollectionHook() *collectionHook {
	h := &collectionHook{tokens: make(chan struct{}, 1)}
	h.arm()
	return h
}

func (h *collectionHook) arm() { runtime.SetFinalizer(&sentinel{h}, (*sentinel).finalize) }

func (s *sentinel) finalize() {
	h := s.hook
	if h.stopped.Load() {
		return
	}
	h.arm() // first: who hears of this collection may ask for the next at once
	select {
	case h.tokens <- struct{}{}:
	default:
	}
}

func (h *collectionHook) stop() { h.stopped.Store(true) }
