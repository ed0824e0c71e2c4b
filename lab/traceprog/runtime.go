package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"runtime/trace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func runtimeScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "gcstress", Doc: "garbage collection all the time: mark assists, sweeps, waits for the collector, a heap goal far too low", Run: gcstress},
		{Name: "iterpull", Doc: "iter.Pull: coroutine switches, nested, stopped early, and across goroutines", Run: iterpull},
		{Name: "goroutines10k", Doc: "10,000 goroutines idle since before the trace, 10,000 born in it, some blocked for ever", Run: goroutines10k},
		{Name: "procschange", Doc: "GOMAXPROCS going up and down while everything runs", Run: procschange},
		{Name: "wrap", Doc: "light activity over many generations, with goroutines idle through all of them", Duration: 6500 * time.Millisecond, Run: wrap},
		{Name: "generations", Doc: "as wrap, but a flight recorder beside the trace forces a new generation every 30 ms", Run: generations},
		{Name: "flight", Doc: "what runtime/trace.FlightRecorder writes: begins in the middle of everything", Run: flight},
		{Name: "stw", Doc: "stopped worlds of many kinds: ReadMemStats, goroutine profile, all stacks, GOMAXPROCS, forced collections", Run: stw},
		{Name: "cpusamples", Doc: "a CPU profile running beside the trace: samples in goroutines, in the runtime, in system calls", Run: cpusamples},
		{Name: "preempt", Doc: "more busy loops than Ps, with and without Gosched, and goroutines that only wait for their turn", Run: preempt},
		{Name: "osthreads", Doc: "goroutines locked to threads, signals, timers that start goroutines, finalizers and cleanups", Run: osthreads},
		{Name: "allocfree", Doc: "the experimental batches of GODEBUG=traceallocfree=1", Duration: 100 * time.Millisecond, Run: allocfree},
		{Name: "idle", Doc: "almost nothing happens", Run: idle},
	}
}

type node struct {
	next *node
	data [10]*node
}

// gcstress keeps a live heap of small linked nodes, so that marking takes long, and allocates faster than the background workers
// can mark.
func gcstress(e *rig.Env) error {
	const live = 120_000 // nodes, about 10 MB
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	var head *node
	for range live {
		head = &node{next: head}
	}
	err := e.Record(func(ctx context.Context) error {
		return rig.Crew(6, func(i int) error {
			var keep [64]*node
			return rig.Pace(ctx, 500*time.Microsecond, func() error {
				for range 60 {
					var list *node
					for range 20 {
						list = &node{next: list, data: [10]*node{list}}
					}
					keep[i%len(keep)] = list
					i++
				}
				e.Count("rounds", 1)
				return nil
			})
		})
	})
	runtime.KeepAlive(head)
	return err
}

func numbers(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// pairs pulls from another pulled sequence: a coroutine inside a coroutine.
func pairs(s iter.Seq[int]) iter.Seq2[int, int] {
	return func(yield func(int, int) bool) {
		next, stop := iter.Pull(s)
		defer stop()
		for {
			a, ok := next()
			if !ok {
				return
			}
			b, _ := next()
			if !yield(a, b) {
				return
			}
		}
	}
}

func blockingNumbers(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			time.Sleep(50 * time.Microsecond)
			if !yield(i) {
				return
			}
		}
	}
}

func iterpull(e *rig.Env) error {
	passed, stopPassed := iter.Pull(numbers(1 << 30)) // born before the trace
	defer stopPassed()
	return e.Record(func(ctx context.Context) error {
		var mu sync.Mutex
		return rig.Crew(4, func(i int) error {
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				switch i {
				case 0: // to the end
					next, stop := iter.Pull(numbers(50))
					defer stop()
					for _, ok := next(); ok; _, ok = next() {
						e.Count("switches", 1)
					}
				case 1: // nested, stopped early
					next, stop := iter.Pull2(pairs(numbers(100)))
					for range 20 {
						next()
						e.Count("switches", 1)
					}
					stop()
				case 2: // blocks inside the coroutine
					next, stop := iter.Pull(blockingNumbers(5))
					defer stop()
					for _, ok := next(); ok; _, ok = next() {
						e.Count("switches", 1)
					}
				default: // one coroutine, resumed by ever other goroutines
					return rig.Crew(2, func(int) error {
						mu.Lock()
						defer mu.Unlock()
						passed()
						e.Count("switches", 1)
						return nil
					})
				}
				return nil
			})
		})
	})
}

func goroutines10k(e *rig.Env) error {
	const n = 10_000
	release := make(chan struct{})
	var old sync.WaitGroup
	for range n {
		old.Go(func() { <-release })
	}
	for range 5 {
		go func() { select {} }()
		go func() { var noReceiver chan int; noReceiver <- 1 }()
	}
	return e.Record(func(ctx context.Context) error {
		var young sync.WaitGroup
		gate := make(chan struct{})
		for range n {
			young.Go(func() { <-gate })
		}
		close(gate)
		young.Wait()
		e.Count("born", n)
		go func() { select {} }()
		<-ctx.Done()
		close(release)
		old.Wait()
		e.Count("released", n)
		return nil
	})
}

func procschange(e *rig.Env) error {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(6, func(i int) error {
			switch i {
			case 0:
				steps := [...]int{1, 4, 2, 8, 3, 1, 6, before}
				k := 0
				return rig.Pace(ctx, 15*time.Millisecond, func() error {
					runtime.GOMAXPROCS(steps[k%len(steps)])
					k++
					e.Count("changes", 1)
					return nil
				})
			case 1, 2:
				return rig.Pace(ctx, time.Millisecond, func() error { rig.Burn(500 * time.Microsecond); return nil })
			default:
				c := make(chan int)
				defer close(c)
				go func() {
					for range c {
						runtime.Gosched()
					}
				}()
				return rig.Pace(ctx, 500*time.Microsecond, func() error { c <- 1; return nil })
			}
		})
	})
}

// light is activity of many kinds at a low rate.
func light(ctx context.Context, e *rig.Env) error {
	var idle sync.WaitGroup
	release := make(chan struct{})
	for range 20 {
		idle.Go(func() { <-release })
	}
	err := rig.Crew(3, func(i int) error {
		c := make(chan int)
		go func() {
			for v := range c {
				rig.Burn(time.Duration(v) * time.Microsecond)
			}
		}()
		defer close(c)
		return rig.Pace(ctx, time.Duration(3+i)*time.Millisecond, func() error {
			c <- 20
			e.Count("turns", 1)
			return nil
		})
	})
	close(release)
	idle.Wait()
	return err
}

func wrap(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error { return light(ctx, e) })
}

func generations(e *rig.Env) error {
	fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 50 * time.Millisecond})
	if err := fr.Start(); err != nil {
		return fmt.Errorf("starting the flight recorder: %w", err)
	}
	defer fr.Stop()
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(2, func(i int) error {
			if i == 0 {
				return light(ctx, e)
			}
			return rig.Pace(ctx, 30*time.Millisecond, func() error {
				_, err := fr.WriteTo(io.Discard)
				e.Count("forced", 1)
				return err
			})
		})
	})
}

func flight(e *rig.Env) error {
	return flown(e, func(ctx context.Context) error { return light(ctx, e) })
}

// flown records, in place of the trace, what a flight recorder holds when run has returned.
func flown(e *rig.Env, run func(context.Context) error) error {
	fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: 10 * time.Second, MaxBytes: 8 << 20})
	if err := fr.Start(); err != nil {
		return fmt.Errorf("starting the flight recorder: %w", err)
	}
	defer fr.Stop()
	var out io.Writer
	e.ReplaceTracer(func(w io.Writer) error { out = w; return nil }, func() {})
	return e.Record(func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		_, err := fr.WriteTo(out)
		return err
	})
}

func stw(e *rig.Env) error {
	procs := runtime.GOMAXPROCS(0)
	buf := make([]byte, 1<<20)
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			if i > 0 {
				return rig.Pace(ctx, time.Millisecond, func() error { rig.Burn(500 * time.Microsecond); return nil })
			}
			k := 0
			return rig.Pace(ctx, 8*time.Millisecond, func() error {
				k++
				e.Count("stops", 1)
				switch k % 7 {
				case 0:
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
				case 1:
					return pprof.Lookup("goroutine").WriteTo(io.Discard, 0)
				case 2:
					runtime.Stack(buf, true)
				case 3:
					runtime.GOMAXPROCS(procs + 1 + k%2)
				case 4:
					runtime.GC()
				case 5:
					debug.FreeOSMemory()
				case 6:
					runtime.GOMAXPROCS(procs)
				}
				return nil
			})
		})
	})
}

//go:noinline
func burnDeep(depth int, d time.Duration) {
	if depth > 0 {
		burnDeep(depth-1, d)
		return
	}
	rig.Burn(d)
}

func cpusamples(e *rig.Env) error {
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		return fmt.Errorf("starting the CPU profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			return rig.Pace(ctx, time.Millisecond, func() error {
				e.Count("rounds", 1)
				switch i {
				case 0:
					burnDeep(60, 20*time.Millisecond)
				case 1:
					for range 200 {
						if _, err := os.Stat(os.DevNull); err != nil {
							return err
						}
					}
				default:
					burnDeep(3, 5*time.Millisecond)
					_ = make([]byte, 1<<20)
				}
				return nil
			})
		})
	})
}

func preempt(e *rig.Env) error {
	hogs := runtime.GOMAXPROCS(0) + 2
	return e.Record(func(ctx context.Context) error {
		var stop atomic.Bool
		context.AfterFunc(ctx, func() { stop.Store(true) })
		return rig.Crew(hogs+3, func(i int) error {
			switch {
			case i < hogs: // no call, no allocation: only a signal stops it
				for x := uint64(1); !stop.Load(); x = x*6364136223846793005 + 1 {
				}
			case i == hogs:
				for !stop.Load() {
					rig.Burn(200 * time.Microsecond)
					runtime.Gosched()
					e.Count("yields", 1)
				}
			default:
				return rig.Pace(ctx, time.Millisecond, func() error { e.Count("turns", 1); return nil })
			}
			return nil
		})
	})
}

func osthreads(e *rig.Env) error {
	sigs := make(chan os.Signal, 16)
	signal.Notify(sigs, syscall.SIGHUP)
	defer signal.Stop(sigs)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(4, func(i int) error {
			switch i {
			case 0: // two locked goroutines hand a value to and fro: each hand-over changes threads
				a, b := make(chan int), make(chan int)
				go func() {
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					defer close(b)
					for v := range a {
						b <- v
					}
				}()
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				defer close(a)
				return rig.Pace(ctx, time.Millisecond, func() error {
					a <- 1
					<-b
					e.Count("handovers", 1)
					return nil
				})
			case 1:
				return rig.Pace(ctx, 5*time.Millisecond, func() error {
					if err := self.Signal(syscall.SIGHUP); err != nil {
						return err
					}
					<-sigs
					e.Count("signals", 1)
					return nil
				})
			case 2: // a thread that dies with its goroutine
				return rig.Pace(ctx, 10*time.Millisecond, func() error {
					done := make(chan struct{})
					go func() {
						runtime.LockOSThread()
						close(done)
					}()
					<-done
					e.Count("dead threads", 1)
					return nil
				})
			default:
				return rig.Pace(ctx, 15*time.Millisecond, func() error {
					p := new([64]byte)
					done := make(chan struct{})
					runtime.AddCleanup(p, func(c chan struct{}) { close(c) }, done)
					q := new([64]byte)
					runtime.SetFinalizer(q, func(*[64]byte) {})
					runtime.GC()
					<-done
					e.Count("cleanups", 1)
					return nil
				})
			}
		})
	})
}

func allocfree(e *rig.Env) error {
	const setting = "traceallocfree=1"
	if old := os.Getenv("GODEBUG"); old != "" {
		os.Setenv("GODEBUG", old+","+setting)
	} else {
		os.Setenv("GODEBUG", setting)
	}
	return e.Record(func(ctx context.Context) error {
		var list *node
		return rig.Pace(ctx, time.Millisecond, func() error {
			for range 100 {
				list = &node{next: list}
			}
			if e.Count("rounds", 1); list != nil && ctx.Err() == nil {
				list = nil
			}
			runtime.GC()
			return nil
		})
	})
}

func idle(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error { <-ctx.Done(); return nil })
}
