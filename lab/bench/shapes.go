package main

import (
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
)

// shapes are programs that are no request servers. Each runs until ctx is done.
var shapes = map[string]func(ctx context.Context){
	"pipeline": runPipeline, "fanout": runFanOut, "mutex": runLockHolders, "syscalls": runSystemCalls, "echo": runEcho, "published": runBenchmark,
}

// runPipeline passes numbers through six goroutines.
func runPipeline(ctx context.Context) {
	first := make(chan int)
	last := first
	for range 6 {
		in, out := last, make(chan int)
		go func() {
			for v := range in {
				out <- v + 1
			}
			close(out)
		}()
		last = out
	}
	go func() {
		for ctx.Err() == nil {
			first <- 1
		}
		close(first)
	}()
	for range last {
	}
}

// runFanOut starts a thousand goroutines at a time and waits for them.
func runFanOut(ctx context.Context) {
	var total atomic.Int64
	for ctx.Err() == nil {
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() { total.Add(sumUpTo(2000)) })
		}
		wg.Wait()
	}
}

func sumUpTo(n int64) (sum int64) {
	for i := range n {
		sum += i
	}
	return sum
}

// runLockHolders has 64 goroutines that share a lock.
func runLockHolders(ctx context.Context) {
	var (
		mu    sync.Mutex
		total int64
		wg    sync.WaitGroup
	)
	for range 64 {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				total += sumUpTo(3000)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// runSystemCalls has four goroutines that do nothing else.
func runSystemCalls(ctx context.Context) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer f.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for b := make([]byte, 1); ctx.Err() == nil; {
				_, _ = f.Read(b)
			}
		})
	}
	wg.Wait()
}

// runEcho has 200 connections over which bytes go to and fro.
func runEcho(ctx context.Context) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return
	}
	go echo(ln)
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				return
			}
			defer conn.Close()
			for b := make([]byte, 32); ctx.Err() == nil; {
				if _, err := conn.Write(b); err != nil {
					return
				}
				if _, err := io.ReadFull(conn, b); err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

// runBenchmark is a published benchmark: a goroutine for each operation, and a semaphore with a slot for each P.
func runBenchmark(ctx context.Context) {
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var mu sync.Mutex
	for ctx.Err() == nil {
		var (
			list []int
			wg   sync.WaitGroup
		)
		for i := range 20_000 {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				mu.Lock()
				list = append(list, i)
				mu.Unlock()
			})
		}
		wg.Wait()
	}
}
