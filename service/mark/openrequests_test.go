package mark

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// TestOpenCounts compares the ring with a list of all open requests.
func TestOpenCounts(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var o openCounts
		now := ringOrigin.Add(time.Hour + 7*time.Millisecond)
		var open []time.Time
		for range 2000 {
			now = now.Add(time.Duration(rnd.ExpFloat64() * float64(50*time.Millisecond)))
			if i := rnd.IntN(len(open) + 1); rnd.IntN(2) == 0 && i < len(open) {
				if rnd.IntN(20) == 0 {
					continue // a stream, which stays
				}
				o.end(open[i])
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			} else {
				o.begin(now)
				open = append(open, now)
			}
			from := now.Add(-time.Duration(rnd.Int64N(int64(40 * time.Second))))
			want := 0
			first := max(stepIndex(from), stepIndex(now)-openRingSize+1)
			for _, offset := range open {
				if stepIndex(offset) >= first {
					want++
				}
			}
			must.Equal(t, o.count(from, now), want, "seed %d: are open of %d", seed, len(open))
		}
		for _, offset := range open {
			o.end(offset)
		}
		check.Equal(t, o.count(now.Add(-time.Hour), now), 0, "seed %d: stay open", seed)
	}
}

// TestOpen tests that requests are open until they end, also if they panic or the watcher
// changes.
func TestOpen(t *testing.T) {
	running := time.Now()
	open := func() int { return Open(running, time.Now()) }
	watched := 0
	stop, ok := Watch(func(Ended) { watched = open() })
	must.True(t, ok, "somebody else watches")
	// If no request is open, the watcher has received all.
	if _ = Do(context.Background(), "job", func(context.Context) error { return nil }); watched == 0 {
		t.Error("a request is no longer open when its end is told")
	}
	before := open()
	var wg sync.WaitGroup
	inside, let := make(chan bool), make(chan bool)
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { _ = recover() }()
			_ = Do(context.Background(), "job", func(context.Context) error {
				inside <- true
				<-let
				if i%2 == 0 {
					panic("no")
				}
				return nil
			})
		}()
	}
	for range 8 {
		<-inside
	}
	check.Equal(t, open(), before+8, "are open, want 8 more than %d", before)
	stop() // they end although the watcher has stopped
	close(let)
	wg.Wait()
	check.Equal(t, open(), before, "are open at the end")
}
