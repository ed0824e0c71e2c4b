package tune

import (
	"runtime"
	"sync/atomic"
)

// A collectionHook sends a token after each garbage collection. It uses the finalizer
// of an unreachable object, which the runtime calls after a collection has found the
// object; the finalizer creates the next object. The cost is one finalizer for each
// collection.
type collectionHook struct {
	stopped atomic.Bool
	tokens  chan struct{} // capacity 1: collections before the token is received send no further one
}

// A sentinel contains a pointer. Otherwise the runtime could allocate it in a block with
// other small objects, which keep each other reachable.
type sentinel struct{ hook *collectionHook }

func newCollectionHook() *collectionHook {
	h := &collectionHook{tokens: make(chan struct{}, 1)}
	h.arm()
	return h
}

// arm allocates an unreachable sentinel, whose finalizer runs after the next collection.
func (h *collectionHook) arm() { runtime.SetFinalizer(&sentinel{h}, (*sentinel).finalize) }

// finalize runs after a collection: it sends a token, unless one waits, and arms the hook
// again. A stopped hook does neither.
func (s *sentinel) finalize() {
	h := s.hook
	if h.stopped.Load() {
		return
	}
	h.arm() // before the send: the receiver may already wait for the next collection
	select {
	case h.tokens <- struct{}{}:
	default:
	}
}

func (h *collectionHook) stop() { h.stopped.Store(true) }
