// Command cgo is traceprog's part that needs a C compiler: what a trace shows
// of calls into C, of C calling back, and of threads that C made.
package main

/*
#cgo LDFLAGS: -lpthread
#include "calls.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func main() { os.Exit(rig.Main(os.Args[1:], os.Stdout, os.Stderr, scenarios())) }

func scenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "cgo-calls", Doc: "short calls into C, in bursts: each one looks like a system call", Run: calls},
		{Name: "cgo-block", Doc: "calls that stay in C for milliseconds, more of them than Ps: Ps are taken away", Run: block},
		{Name: "cgo-callback", Doc: "Go calls C calls Go, nested, with waits inside", Run: callback},
		{Name: "cgo-threads", Doc: "threads made by C that call Go, end, and are followed by others: goroutine ids come back", Run: threads},
		{Name: "cgo-dns", Doc: "name lookups through libc", Run: dns},
	}
}

// enterings counts calls from C into Go; C cannot carry a pointer to more.
var enterings atomic.Int64

//export goEnter
func goEnter(depth C.int) C.int {
	enterings.Add(1)
	if depth > 0 {
		return C.call_back(depth-1) + 1
	}
	time.Sleep(100 * time.Microsecond)
	return 1
}

//export goEnterShort
func goEnterShort() { enterings.Add(1) }

func calls(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(int) error {
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				x := C.int(1)
				for range 50 {
					x = C.add(x, 1)
				}
				if x != 51 {
					return fmt.Errorf("counting in C gave %d", int(x))
				}
				e.Count("calls", 50)
				return nil
			})
		})
	})
}

func block(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(6, func(i int) error {
			return rig.Pace(ctx, time.Millisecond, func() error {
				if i%2 == 0 {
					C.sleep_us(3000)
				} else {
					C.spin_us(1000)
				}
				e.Count("calls", 1)
				return nil
			})
		})
	})
}

func callback(e *rig.Env) error {
	err := e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				if n := C.call_back(C.int(i)); int(n) != i+1 {
					return fmt.Errorf("a callback nested %d deep answered %d", i, int(n))
				}
				return nil
			})
		})
	})
	e.Count("callbacks", enterings.Load())
	return err
}

func threads(e *rig.Env) error {
	var mu sync.Mutex // one set of threads at a time: the next one finds the freed ones
	err := e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(i int) error {
			return rig.Pace(ctx, 3*time.Millisecond, func() error {
				const n = 3
				mu.Lock()
				defer mu.Unlock()
				if failed := C.run_threads(n, C.int(5*(i+1))); failed != 0 {
					return fmt.Errorf("%d threads could not be made", int(failed))
				}
				e.Count("threads", n)
				return nil
			})
		})
	})
	e.Count("callbacks", enterings.Load())
	return err
}

func dns(e *rig.Env) error {
	res := &net.Resolver{PreferGo: false}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(int) error {
			return rig.Pace(ctx, 3*time.Millisecond, func() error {
				e.Count("lookups", 1)
				_, err := res.LookupHost(context.Background(), "localhost")
				return err
			})
		})
	})
}
