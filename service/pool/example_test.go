package pool_test

import (
	"fmt"

	"github.com/whylate/whylate/service/pool"
)

// Three units a CPU of the limit, as it is now. Options.Read stands in for the container here.
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

// The caller decides about the size, and may change it while work runs.
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
