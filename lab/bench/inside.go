package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/trace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// recordOwnTrace traces a program in this process until the trace has the given size: "inside" is a busy server with its
// clients and worker loops, "twenty" has goroutines of twenty kinds, "tickers" has ten thousand goroutines with a ticker each. Others are in shapes.
func recordOwnTrace(kind, name, size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return fmt.Errorf("the size %q: %w", size, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	switch kind {
	case "inside":
		err = startServerAndClients(ctx)
	case "twenty":
		err = startTwentyKinds(ctx)
	case "tickers":
		for i := range 10_000 {
			go runTicker(ctx, time.Duration(20+i%30)*time.Millisecond)
		}
	default:
		go shapes[kind](ctx)
	}
	if err != nil {
		return err
	}
	time.Sleep(200 * time.Millisecond)
	return writeTrace(name, n, nil)
}

// writeTrace writes a trace of this process until it has n bytes.
func writeTrace(name string, n int64, ended <-chan error) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("creating the trace: %w", err)
	}
	defer f.Close()
	w := &sizeLimit{w: f, done: make(chan struct{})}
	w.remaining.Store(n)
	if err := trace.Start(w); err != nil {
		return fmt.Errorf("tracing: %w", err)
	}
	select {
	case <-w.done:
	case err := <-ended:
		return fmt.Errorf("the server ended: %w", err)
	case <-time.After(10 * time.Minute):
		return errors.New("the trace does not become long enough in ten minutes; is the machine very busy?")
	}
	trace.Stop()
	return f.Close()
}

func startServerAndClients(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	go (&http.Server{Handler: handler(""), ReadHeaderTimeout: time.Minute}).Serve(ln)
	paths := []string{"/self", "/pool", "/fan"}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
	for i := range 48 {
		go func() {
			for ctx.Err() == nil {
				if err := get(client, "http://"+ln.Addr().String()+paths[i%3]); err != nil {
					return
				}
			}
		}()
	}
	return nil
}

func runTicker(ctx context.Context, interval time.Duration) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// startTwentyKinds starts four goroutines of each of twenty functions that wait in different ways.
func startTwentyKinds(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	go echo(ln)
	var (
		jobs, sums, sizes, done = make(chan []byte, 16), make(chan [32]byte, 16), make(chan int), make(chan struct{}, 64)
		mu                      sync.Mutex
		rw                      sync.RWMutex
		cond                    = sync.NewCond(new(sync.Mutex))
		ready                   int
		total                   atomic.Int64
		table                   = make(map[int]int)
		slots                   = make(chan struct{}, 3)
		turns                   = [2]chan int{make(chan int), make(chan int)}
	)
	pause := func(n int) { time.Sleep(time.Duration(100+rand.IntN(n)) * time.Microsecond) }
	work := func(n int) { total.Add(int64(sha256.Sum256(bytes.Repeat([]byte("x"), n))[0])) }
	kinds := []func(){
		func() { jobs <- bytes.Repeat([]byte("x"), 200); pause(300) },          // producers
		func() { sums <- sha256.Sum256(<-jobs) },                               // workers between two queues
		func() { s := <-sums; total.Add(int64(s[0])) },                         // a sink
		func() { mu.Lock(); work(500); mu.Unlock(); pause(400) },               // a lock held for work
		func() { rw.RLock(); _ = table[1]; rw.RUnlock(); pause(200) },          // readers
		func() { rw.Lock(); table[rand.IntN(10)]++; rw.Unlock(); pause(2000) }, // a writer
		func() { cond.L.Lock(); ready++; cond.L.Unlock(); cond.Signal(); pause(300) },
		func() {
			cond.L.Lock()
			for ready == 0 {
				cond.Wait()
			}
			ready--
			cond.L.Unlock()
			work(300)
		},
		func() {
			select {
			case n := <-sizes:
				work(n)
			case <-time.After(time.Millisecond):
			}
		},
		func() {
			select {
			case sizes <- 100:
			default:
			}
			pause(500)
		},
		func() { slots <- struct{}{}; pause(200); <-slots }, // a pool of three
		func() {
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { work(200) })
			}
			wg.Wait()
			pause(500)
		},
		func() {
			go func() {
				work(100)
				select {
				case done <- struct{}{}:
				default:
				}
			}()
			pause(300)
		},
		func() { <-done },
		func() { time.AfterFunc(100*time.Microsecond, func() { work(50) }); pause(600) },
		func() { c, stop := context.WithTimeout(ctx, 200*time.Microsecond); <-c.Done(); stop() },
		func() { turns[0] <- 1; <-turns[1] },
		func() { <-turns[0]; pause(100); turns[1] <- 1 },
		func() {
			if f, err := os.Open(os.DevNull); err == nil {
				_, _ = f.Read(make([]byte, 10))
				f.Close()
			}
			pause(400)
		},
	}
	for _, kind := range kinds {
		for range 4 {
			go func() {
				for ctx.Err() == nil {
					kind()
				}
			}()
		}
	}
	for range 4 {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		go askRepeatedly(ctx, conn)
	}
	return nil
}

// echo answers lines with themselves.
func echo(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

// askRepeatedly sends a line and waits for the answer, repeatedly.
func askRepeatedly(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	for r := bufio.NewReader(conn); ctx.Err() == nil; {
		if _, err := fmt.Fprintln(conn, "what"); err != nil {
			return
		}
		if _, err := r.ReadString('\n'); err != nil {
			return
		}
	}
}
