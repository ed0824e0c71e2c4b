// Package pool limits how much work runs at once, by a size that may change
// while work is running.
//
// A pool sized once from runtime.NumCPU or runtime.GOMAXPROCS keeps that size
// for the life of the process, even when the container's limit is a fraction
// of the machine or is changed in place. [Follow] returns a [Limiter] whose size
// is a function of the current limit:
//
//	workers, err := pool.Follow(pool.Options{})
//	if err != nil {
//		return err
//	}
//	defer workers.Close()
//	for _, job := range jobs {
//		if err := workers.Acquire(ctx, 1); err != nil {
//			return err
//		}
//		go func() {
//			defer workers.Release(1)
//			job.Run()
//		}()
//	}
//
// [New] returns one whose size the caller sets with [Limiter.Resize].
//
// # Guarantees
//
// Units are granted in the order of the requests: light requests do not overtake
// a heavy one at the head, so it cannot starve. When the pool shrinks, granted
// units stay granted, and no new ones are granted until enough have been
// released. When it grows, waiters are served at once. A request heavier than the whole
// pool, which any can become when a pool shrinks, gets the pool to itself instead
// of waiting indefinitely.
//
// # Cost
//
// BenchmarkPool of lab/maxprocs, on 2 CPUs with Linux 6.18 and Go 1.26.8: acquiring and
// releasing a unit costs 16 ns if no goroutine waits (a buffered channel: 43 ns).
// With 16 and 128 goroutines that want 2 units repeatedly it costs 268 and 273
// ns, medians of five runs, against 187 and 154 ns of a channel and some 550 ns of
// golang.org/x/sync/semaphore: each unit then goes from one goroutine to the one that
// waited longest, which must be woken. No unit allocates.
package pool
