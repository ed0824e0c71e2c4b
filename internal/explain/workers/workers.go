// Package workers divides work among goroutines.
package workers

import (
	"sync"
	"sync/atomic"
)

// Share calls f for consecutive parts [from, to) of n elements, at most size of them each, with up to count goroutines. worker is the number
// of the goroutine, which takes the next part when it has done one.
func Share(count, n, size int, f func(worker, from, to int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for worker := range min(count, (n+size-1)/size) {
		wg.Go(func() {
			for to := int(next.Add(int64(size))); to-size < n; to = int(next.Add(int64(size))) {
				f(worker, to-size, min(to, n))
			}
		})
	}
	wg.Wait()
}
