// Package benchmark has a benchmark that became slower by a lock: go test -trace records it in both versions.
package benchmark

import (
	"sync"
	"time"
)

// A store writes values to something slow.
type store struct {
	mu      sync.Mutex
	written map[int]time.Time
	locked  bool // write while the lock is held
}

func newStore(locked bool) *store { return &store{written: make(map[int]time.Time), locked: locked} }

func write() time.Time {
	time.Sleep(2 * time.Millisecond)
	return time.Now()
}

func (s *store) put(k int) {
	if s.locked {
		s.mu.Lock()
		s.written[k] = write()
		s.mu.Unlock()
		return
	}
	t := write()
	s.mu.Lock()
	s.written[k] = t
	s.mu.Unlock()
}
