package pool

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
)

// waitFor spins until the limiter's state satisfies a condition. Only the test's
// deadline limits it, so a slow machine cannot fail it.
func waitFor(t *testing.T, l *Limiter, name string, ok func(Stats) bool) {
	t.Helper()
	for !ok(l.Stats()) {
		if d, condition := t.Deadline(); condition && time.Until(d) < 5*time.Second {
			t.Fatalf("never came: %s; state %+v", name, l.Stats())
		}
		runtime.Gosched()
	}
}

// queued starts an Acquire and returns when it is waiting.
func queued(t *testing.T, l *Limiter, ctx context.Context, n int64) <-chan error {
	t.Helper()
	before := l.Stats().Waiting
	done := make(chan error, 1)
	go func() { done <- l.Acquire(ctx, n) }()
	waitFor(t, l, "one more waiter", func(s Stats) bool { return s.Waiting == before+1 })
	return done
}

func TestAcquireTakesAndReleaseReturns(t *testing.T) {
	l := New(3)
	must.Do(t, l.Acquire(context.Background(), 2))
	check.False(t, l.TryAcquire(2), "2 of 1 free unit were granted")
	check.True(t, l.TryAcquire(1), "the last free unit was refused")
	l.Release(3)
	check.Equal(t, l.Stats(), Stats{Size: 3}, "after all came back")
}

func TestWrongWeights(t *testing.T) {
	l := New(1)
	for _, n := range []int64{0, -1, math.MinInt64} {
		if err := l.Acquire(context.Background(), n); !errors.Is(err, ErrWeight) {
			t.Errorf("Acquire(%d): %v", n, err)
		}
		check.False(t, l.TryAcquire(n), "TryAcquire(%d) succeeded", n)
		l.Release(n)
	}
	l.Release(5)
	if got := l.Stats(); got.Used != 0 || got.Excess != 5 {
		t.Errorf("after a release of what nobody took: %+v", got)
	}
	check.True(t, l.TryAcquire(1) && !l.TryAcquire(1), "an excess release changed the size")
}

func TestHeaviestPossible(t *testing.T) {
	l := New(4)
	must.Do(t, l.Acquire(context.Background(), math.MaxInt64))
	check.False(t, l.TryAcquire(1), "a unit was free beside a request for everything")
	l.Release(math.MaxInt64)
	if got := l.Stats(); got.Used != 0 {
		t.Errorf("used %d after everything came back", got.Used)
	}
}

func TestOrderIsKept(t *testing.T) {
	l := New(4)
	ctx := context.Background()
	must.Do(t, l.Acquire(ctx, 3))
	heavy := queued(t, l, ctx, 4)
	light := queued(t, l, ctx, 1)
	must.False(t, l.TryAcquire(1), "a light request overtook a heavy one that waits")
	l.Release(3)
	must.Do(t, <-heavy)
	if got := l.Stats(); got.Used != 4 || got.Waiting != 1 {
		t.Fatalf("with the heavy one running: %+v", got)
	}
	l.Release(4)
	must.Do(t, <-light)
}

func TestCancelledHeadLetsTheNextGo(t *testing.T) {
	l := New(4)
	must.Do(t, l.Acquire(context.Background(), 3))
	ctx, cancel := context.WithCancel(context.Background())
	heavy := queued(t, l, ctx, 4)
	light := queued(t, l, context.Background(), 1)
	cancel()
	if err := <-heavy; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
	must.Do(t, <-light)
	if got := l.Stats(); got.Used != 4 || got.Waiting != 0 {
		t.Errorf("%+v", got)
	}
}

func TestEndedContextTakesNothing(t *testing.T) {
	l := New(1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Acquire(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	check.Equal(t, l.Stats().Used, 0, "used")
}

func TestShrinkLosesNoWaiter(t *testing.T) {
	l := New(4)
	ctx := context.Background()
	for range 4 {
		must.Do(t, l.Acquire(ctx, 1))
	}
	waits := []<-chan error{queued(t, l, ctx, 1), queued(t, l, ctx, 3)}
	l.Resize(2)
	for remaining := int64(3); remaining >= 2; remaining-- {
		l.Release(1)
		if got := l.Stats(); got.Used != remaining || got.Waiting != 2 {
			t.Fatalf("while more is out than the pool has: %+v", got)
		}
	}
	l.Release(1)
	must.Do(t, <-waits[0])
	// The second asks for 3 of 2: it must get the pool to itself.
	l.Release(1)
	if got := l.Stats(); got.Used != 1 || got.Waiting != 1 {
		t.Fatalf("an oversized request beside another: %+v", got)
	}
	l.Release(1)
	must.Do(t, <-waits[1])
	l.Release(3)
}

func TestGrowServesAtOnce(t *testing.T) {
	l := New(1)
	ctx := context.Background()
	must.Do(t, l.Acquire(ctx, 1))
	a, b := queued(t, l, ctx, 1), queued(t, l, ctx, 1)
	l.Resize(3)
	for _, c := range []<-chan error{a, b} {
		must.Do(t, <-c)
	}
	l.Resize(-7)
	check.Equal(t, l.Size(), 1, "a size below 1 became")
}

// TestAllAreServedWhileTheSizeChanges runs random weights, cancellations and
// sizes. While the size is constant, the used units may not exceed it. In the end
// every request was granted or cancelled and no unit is in use.
func TestAllAreServedWhileTheSizeChanges(t *testing.T) {
	const workers, turns, largest = 8, 400, 6
	l := New(3)
	var out, completed, cancelled atomic.Int64
	var wg sync.WaitGroup
	for i := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range turns {
				n := 1 + r.Int64N(largest)
				ctx, cancel := context.WithCancel(context.Background())
				if r.IntN(4) == 0 {
					go cancel()
				}
				switch err := l.Acquire(ctx, n); {
				case err == nil:
					// One oversized request alone, or a sum within the
					// largest size ever set.
					if sum := out.Add(n); sum > largest && sum != n {
						t.Errorf("%d units out together", sum)
					}
					runtime.Gosched()
					out.Add(-n)
					l.Release(n)
					completed.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
				cancel()
			}
		}()
	}
	stop := make(chan struct{})
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		r := rand.New(rand.NewPCG(2, 2))
		for {
			select {
			case <-stop:
				return
			default:
				l.Resize(1 + r.Int64N(largest))
				runtime.Gosched()
			}
		}
	}()
	wg.Wait()
	close(stop)
	<-resized
	check.Equal(t, completed.Load()+cancelled.Load(), workers*turns, "requests ended")
	if s := l.Stats(); s.Used != 0 || s.Waiting != 0 || s.Excess != 0 {
		t.Errorf("left over: %+v", s)
	}
	check.True(t, completed.Load() != 0 && cancelled.Load() != 0,
		"served %d, cancelled %d: the test did not exercise both", completed.Load(), cancelled.Load())
}

func TestZeroValue(t *testing.T) {
	var l Limiter
	check.True(t, l.TryAcquire(1) && !l.TryAcquire(1) && l.Size() == 1, "the zero value is not a pool of one")
	l.Release(1)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func BenchmarkUncontended(b *testing.B) {
	l := New(1)
	ctx := context.Background()
	b.ReportAllocs()
	for range b.N {
		must.Do(b, l.Acquire(ctx, 1))
		l.Release(1)
	}
}

// BenchmarkContended has 8 goroutines for each P acquire one of two units.
// lab/pool compares it with a channel and with x/sync/semaphore.
func BenchmarkContended(b *testing.B) {
	l := New(2)
	ctx := context.Background()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := l.Acquire(ctx, 1); err != nil {
				b.Error(err)
				return
			}
			l.Release(1)
		}
	})
}

func TestDo(t *testing.T) {
	l := New(2)
	ctx, cancel := context.WithCancel(context.Background())
	called := false
	if err := l.Do(ctx, 2, func() error { called = true; return ErrWeight }); !called || err != ErrWeight || l.Stats().Used != 0 {
		t.Errorf("called %v, %v, %+v", called, err, l.Stats())
	}
	func() {
		defer func() { _ = recover() }()
		_ = l.Do(ctx, 1, func() error { panic("x") })
	}()
	check.Equal(t, l.Stats().Used, 0, "units are out after a panic")
	cancel()
	if err := l.Do(ctx, 1, func() error { t.Error("called though the context ended"); return nil }); err != context.Canceled {
		t.Error(err)
	}
}

// TestWaits tests that waits are counted when they end, granted or not, and that a
// reused waiter has no old token.
func TestWaits(t *testing.T) {
	l := New(1)
	must.Do(t, l.Acquire(context.Background(), 1))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- l.Acquire(ctx, 1) }()
	for l.Stats().Waiting != 1 {
		runtime.Gosched()
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
	for range 50 {
		go func() { ended <- l.Acquire(context.Background(), 1) }()
		for l.Stats().Waiting != 1 {
			runtime.Gosched()
		}
		select {
		case err := <-ended:
			t.Fatalf("granted while the unit was out: %v", err)
		default:
		}
		l.Release(1)
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	s := l.Stats()
	check.True(t, s.Waits.Count == 51 && s.Waits.GivenUp == 1 && s.Waits.Time > 0 && s.Waits.Max <= s.Waits.Time, "%+v", s.Waits)
}
