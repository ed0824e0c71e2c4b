// Package client is the other side of the programs: it sends requests at times that are laid out before, and prints what each
// took by its own clock, for lab/field to read.
package client

import (
	"bufio"
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

var out = struct {
	sync.Mutex
	*bufio.Writer
}{Writer: bufio.NewWriter(os.Stdout)}

// Sample prints that a request ended, and how long it took.
func Sample(end time.Time, took time.Duration, err error) {
	out.Lock()
	defer out.Unlock()
	b := append(out.AvailableBuffer(), "sample "...)
	b = strconv.AppendInt(b, end.UnixNano(), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(took), 10)
	if err != nil {
		b = append(b, " err\n"...)
	} else {
		b = append(b, " ok\n"...)
	}
	out.Write(b)
	out.Flush()
}

// Open sends so many requests a second until the context ends, at random times, whether or not those before were answered, and
// prints a sample of each. send is called concurrently.
func Open(ctx context.Context, rate float64, send func(ctx context.Context) error) {
	var wg sync.WaitGroup
	random := rand.New(rand.NewPCG(1, 2))
	due := time.Now()
	for {
		due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case <-time.After(time.Until(due)):
		}
		wg.Go(func() {
			began := time.Now()
			err := send(ctx)
			if ctx.Err() == nil {
				end := time.Now()
				Sample(end, end.Sub(began), err)
			}
		})
	}
}

// Closed lets n clients send one request after the other, each with a pause before the next, until the context ends.
func Closed(ctx context.Context, n int, pause time.Duration, send func(ctx context.Context, id int) error) {
	var wg sync.WaitGroup
	for id := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				err := send(ctx, id)
				if ctx.Err() == nil {
					end := time.Now()
					Sample(end, end.Sub(began), err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	wg.Wait()
}
