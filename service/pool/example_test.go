package pool_test

import (
	"fmt"

	"github.com/whylate/whylate/service/pool"
)

// Three units for each CPU of the current limit. Options.Read replaces the container's limit here.
func ExampleFollow() {
	workers, err := pool.Follow(pool.Options{
		Size: pool.PerCPU(3),
		Read: func() (pool.Limit, error) { return pool.Limit{CPUs: 2.5, Quota: 2.5, GOMAXPROCS: 3}, nil },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer workers.Close()
	fmt.Println(workers.Size())
	// Output: 8
}

// The caller sets the size, and may change it while work runs.
func ExampleLimiter_Resize() {
	p := pool.New(2)
	fmt.Println(p.TryAcquire(1), p.TryAcquire(1), p.TryAcquire(1))
	p.Resize(1)
	p.Release(1)
	fmt.Println(p.TryAcquire(1)) // one unit is still out
	// Output:
	// true true false
	// false
}
