//go:build linux

package main

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/whylate/whylate/service/pool"
)

// BenchmarkPool compares acquiring and releasing a slot of a pool with x/sync's semaphore and a buffered channel: 2 slots, and
// as many goroutines for each P as the name says.
func BenchmarkPool(b *testing.B) {
	const places = 2
	ctx := context.Background()
	p, s, c := pool.New(places), semaphore.NewWeighted(places), make(chan struct{}, places)
	for _, way := range []struct {
		name       string
		take, give func()
	}{
		{"pool", func() { _ = p.Acquire(ctx, 1) }, func() { p.Release(1) }},
		{"semaphore", func() { _ = s.Acquire(ctx, 1) }, func() { s.Release(1) }},
		{"channel", func() { c <- struct{}{} }, func() { <-c }},
	} {
		for _, goroutines := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", way.name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				b.SetParallelism(goroutines)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						way.take()
						way.give()
					}
				})
			})
		}
	}
}
