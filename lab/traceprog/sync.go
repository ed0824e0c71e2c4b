package main

import (
	"context"
	"sync"
	"time"

	"github.com/whylate/whylate/lab/traceprog/internal/rig"
)

func syncScenarios() []rig.Scenario {
	return []rig.Scenario{
		{Name: "timers", Doc: "Sleep, After, AfterFunc, Ticker, Timer, context timeouts: wakes that no goroutine makes", Run: timers},
		{Name: "locks", Doc: "Mutex barging and starvation hand-off, RWMutex, Cond, WaitGroup, Once, semaphore channel", Run: locks},
		{Name: "channels", Doc: "unbuffered and buffered channels, select over many, close as a broadcast, pipelines, fan-in", Run: channels},
	}
}

func timers(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(7, func(i int) error {
			switch i {
			case 0:
				for ctx.Err() == nil {
					time.Sleep(2 * time.Millisecond)
					e.Count("sleeps", 1)
				}
			case 1:
				for ctx.Err() == nil {
					<-time.After(2 * time.Millisecond)
					e.Count("afters", 1)
				}
			case 2:
				for ctx.Err() == nil {
					done := make(chan struct{})
					time.AfterFunc(2*time.Millisecond, func() {
						time.Sleep(200 * time.Microsecond)
						close(done)
					})
					<-done
					e.Count("afterfuncs", 1)
				}
			case 3:
				t := time.NewTicker(3 * time.Millisecond)
				defer t.Stop()
				for {
					select {
					case <-t.C:
						e.Count("ticks", 1)
					case <-ctx.Done():
						return nil
					}
				}
			case 4:
				for ctx.Err() == nil {
					c, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
					<-c.Done()
					cancel()
					e.Count("timeouts", 1)
				}
			case 5: // a timer pushed back again and again, then let fire
				t := time.NewTimer(2 * time.Millisecond)
				for ctx.Err() == nil {
					for range 3 {
						time.Sleep(500 * time.Microsecond)
						t.Reset(2 * time.Millisecond)
					}
					<-t.C
					t.Reset(2 * time.Millisecond)
					e.Count("timers", 1)
				}
			default: // cancelled by another goroutine before the deadline
				for ctx.Err() == nil {
					c, cancel := context.WithTimeout(ctx, time.Second)
					go func() {
						time.Sleep(time.Millisecond)
						cancel()
					}()
					<-c.Done()
					e.Count("cancels", 1)
				}
			}
			return nil
		})
	})
}

func locks(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(6, func(i int) error {
			return [...]func(context.Context, *rig.Env) error{barging, starving, readersAndWriter, conditions, waits, slots}[i](ctx, e)
		})
	})
}

// barging: short holds by goroutines that come back at once; a woken waiter
// often finds the lock taken again.
func barging(ctx context.Context, e *rig.Env) error {
	var mu sync.Mutex
	return rig.Crew(4, func(int) error {
		return rig.Pace(ctx, 5*time.Millisecond, func() error {
			for range 10 {
				mu.Lock()
				rig.Burn(20 * time.Microsecond)
				mu.Unlock()
			}
			e.Count("barging rounds", 1)
			return nil
		})
	})
}

// starving: a holder that sleeps with the lock and takes it back at once, so
// that the waiter passes the starvation threshold of 1 ms and is handed it.
func starving(ctx context.Context, e *rig.Env) error {
	var mu sync.Mutex
	return rig.Crew(3, func(int) error {
		for ctx.Err() == nil {
			mu.Lock()
			time.Sleep(2 * time.Millisecond)
			mu.Unlock()
			e.Count("starving holds", 1)
		}
		return nil
	})
}

func readersAndWriter(ctx context.Context, e *rig.Env) error {
	var mu sync.RWMutex
	return rig.Crew(4, func(i int) error {
		return rig.Pace(ctx, time.Millisecond, func() error {
			if i == 0 {
				mu.Lock()
				time.Sleep(time.Millisecond)
				mu.Unlock()
				e.Count("writes", 1)
			} else {
				mu.RLock()
				time.Sleep(300 * time.Microsecond)
				mu.RUnlock()
				e.Count("reads", 1)
			}
			return nil
		})
	})
}

func conditions(ctx context.Context, e *rig.Env) error {
	var mu sync.Mutex
	cond := sync.NewCond(&mu)
	queue, closed := 0, false
	return rig.Crew(4, func(i int) error {
		if i > 0 {
			mu.Lock()
			defer mu.Unlock()
			for {
				for queue == 0 && !closed {
					cond.Wait()
				}
				if queue == 0 {
					return nil
				}
				queue--
				e.Count("taken", 1)
			}
		}
		n := 0
		err := rig.Pace(ctx, 2*time.Millisecond, func() error {
			mu.Lock()
			defer mu.Unlock()
			queue++
			if n++; n%4 == 0 {
				cond.Broadcast()
			} else {
				cond.Signal()
			}
			return nil
		})
		mu.Lock()
		closed = true
		mu.Unlock()
		cond.Broadcast()
		return err
	})
}

func waits(ctx context.Context, e *rig.Env) error {
	return rig.Pace(ctx, 2*time.Millisecond, func() error {
		var wg sync.WaitGroup
		for k := range 3 {
			wg.Go(func() { time.Sleep(time.Duration(k) * 300 * time.Microsecond) })
		}
		wg.Wait()
		var init sync.Once
		if err := rig.Crew(3, func(int) error {
			init.Do(func() { time.Sleep(500 * time.Microsecond) })
			return nil
		}); err != nil {
			return err
		}
		e.Count("waits", 1)
		return nil
	})
}

func slots(ctx context.Context, e *rig.Env) error {
	sem := make(chan struct{}, 2)
	return rig.Crew(5, func(int) error {
		return rig.Pace(ctx, 500*time.Microsecond, func() error {
			sem <- struct{}{}
			time.Sleep(500 * time.Microsecond)
			<-sem
			e.Count("slots", 1)
			return nil
		})
	})
}

func channels(e *rig.Env) error {
	return e.Record(func(ctx context.Context) error {
		return rig.Crew(3, func(i int) error {
			return rig.Pace(ctx, 2*time.Millisecond, func() error {
				switch i {
				case 0: // pipeline of three stages, unbuffered
					a, b := make(chan int), make(chan int)
					go func() {
						defer close(a)
						for k := range 10 {
							a <- k
						}
					}()
					go func() {
						defer close(b)
						for v := range a {
							rig.Burn(10 * time.Microsecond)
							b <- v
						}
					}()
					for range b {
						e.Count("piped", 1)
					}
				case 1: // fan-in by select, ended by close
					quit := make(chan struct{})
					x, y := make(chan int, 4), make(chan int)
					var wg sync.WaitGroup
					for _, c := range []chan int{x, y} {
						wg.Go(func() {
							for k := 0; ; k++ {
								select {
								case c <- k:
								case <-quit:
									return
								}
							}
						})
					}
					for range 20 {
						select {
						case <-x:
						case <-y:
						}
						e.Count("selected", 1)
					}
					close(quit)
					wg.Wait()
				default: // close wakes all at once
					gate := make(chan struct{})
					var wg sync.WaitGroup
					for range 10 {
						wg.Go(func() { <-gate })
					}
					time.Sleep(200 * time.Microsecond)
					close(gate)
					wg.Wait()
					e.Count("broadcasts", 1)
				}
				return nil
			})
		})
	})
}
