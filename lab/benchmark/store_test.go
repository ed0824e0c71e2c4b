package benchmark

import (
	"os"
	"sync"
	"testing"
)

// BenchmarkPut puts four values concurrently; with LOCKED in the environment, each while it holds the lock.
func BenchmarkPut(b *testing.B) {
	s := newStore(os.Getenv("LOCKED") != "")
	for b.Loop() {
		var wg sync.WaitGroup
		for k := range 4 {
			wg.Go(func() { s.put(k) })
		}
		wg.Wait()
	}
}
