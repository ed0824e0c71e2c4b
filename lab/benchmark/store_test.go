package benchmark

import (
	"os"
	"sync"
	"testing"
)

// BenchmarkPut puts four values at once; with LOCKED in the environment, the lock is held meanwhile.
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
