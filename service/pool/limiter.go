package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrWeight is the error of a request for fewer than one unit.
var ErrWeight = errors.New("weight must be at least 1")

// A Limiter hands out units, at most Size at a time. All its methods may be
// called concurrently. The zero value has size 1.
type Limiter struct {
	mu      sync.Mutex
	size    int64
	used    int64
	excess  int64
	waiting waitQueue

	// Updated without the lock, so that a waiter with its units does not delay the
	// next.
	waits waitCounts

	follower *follower
}

// New returns a limiter of size units. A size below 1 counts as 1, because nothing
// could run in an empty pool.
func New(size int64) *Limiter {
	return &Limiter{size: max(1, size)}
}

// Acquire waits until n units are free and takes them. It returns the
// context's error, and takes nothing, if the context ends first; a context
// that has ended already takes nothing. Units are returned with Release.
//
// A request for more than the whole pool is granted once nothing else is out.
func (l *Limiter) Acquire(ctx context.Context, n int64) error {
	if n < 1 {
		return fmt.Errorf("acquiring %d units: %w", n, ErrWeight)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.waiting.first == nil && l.canGrant(n) {
		l.used += n
		l.mu.Unlock()
		return nil
	}
	w := waiters.Get().(*waiter)
	w.n = n
	l.waiting.push(w)
	l.mu.Unlock()
	waitStart := time.Since(epoch)
	err := w.wait(ctx)
	l.waits.add(time.Since(epoch) - waitStart)
	if err == nil {
		waiters.Put(w)
		return nil
	}
	l.waits.givenUp.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.granted:
		// Granted while the context ended: the caller gives up, so the next
		// waiter gets the units.
		l.used -= n
	default:
		l.waiting.remove(w)
	}
	waiters.Put(w)
	// Even if no units were released, this waiter may have been the first of the
	// queue and delayed lighter ones.
	l.grant()
	return err
}

// Do waits until n units are free, calls f and returns the units, also if f
// panics. It returns the context's error without calling f if the context ends
// first, else f's.
func (l *Limiter) Do(ctx context.Context, n int64, f func() error) error {
	if err := l.Acquire(ctx, n); err != nil {
		return err
	}
	defer l.Release(n)
	return f()
}

// TryAcquire takes n units if that needs no waiting, and reports whether it
// did. It does not overtake waiters.
func (l *Limiter) TryAcquire(n int64) bool {
	if n < 1 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting.first != nil || !l.canGrant(n) {
		return false
	}
	l.used += n
	return true
}

// Release returns n units. Units that were never taken are not added to the
// pool, but counted in Stats.Excess, for such a call is a mistake of the
// caller.
func (l *Limiter) Release(n int64) {
	if n < 1 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if excess := n - l.used; excess > 0 {
		l.excess += excess
		n = l.used
	}
	l.used -= n
	l.grant()
}

// Resize sets the size; below 1 it is taken as 1. It never waits: units beyond a smaller size remain taken until they are released.
func (l *Limiter) Resize(size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = max(1, size)
	l.grant()
}

// Stats is a limiter at one moment.
type Stats struct {
	// Size is the number of units there are, and Used the number taken: above
	// Size for a while after the pool shrank, or while one request heavier
	// than the pool has it to itself.
	Size, Used int64
	// Waiting is the number of requests waiting, and WaitingUnits their sum.
	Waiting, WaitingUnits int64
	// Excess is the number of units released that were not taken.
	Excess int64
	// Waits are the requests that had to wait.
	Waits Waits
}

// Waits counts requests that could not be granted at once, and for how long
// they waited. Those still waiting are not in it.
type Waits struct {
	Count int64
	// GivenUp is how many of them ended with their context.
	GivenUp int64
	// Time is the sum, Max the longest.
	Time, Max time.Duration
}

type waitCounts struct{ count, givenUp, time, max atomic.Int64 }

// add counts a wait of length d, and keeps the longest one. It may be called concurrently.
func (w *waitCounts) add(d time.Duration) {
	w.count.Add(1)
	w.time.Add(int64(d))
	for m := w.max.Load(); int64(d) > m && !w.max.CompareAndSwap(m, int64(d)); m = w.max.Load() {
	}
}

func (w *waitCounts) read() Waits {
	return Waits{Count: w.count.Load(), GivenUp: w.givenUp.Load(), Time: time.Duration(w.time.Load()), Max: time.Duration(w.max.Load())}
}

// epoch is the origin of wait times: time.Since of a monotonic time costs half as much
// as time.Now.
var epoch = time.Now()

// Stats returns the limiter's state.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Size: max(1, l.size), Used: l.used, Excess: l.excess, Waits: l.waits.read()}
	for w := l.waiting.first; w != nil; w = w.next {
		s.Waiting++
		s.WaitingUnits += w.n
	}
	return s
}

// Size returns the number of units.
func (l *Limiter) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(1, l.size)
}

// canGrant reports whether n units are free. It does not add, so that no weight overflows.
func (l *Limiter) canGrant(n int64) bool {
	return l.used == 0 || n <= max(1, l.size)-l.used
}

// grant grants units to the waiters in order until one does not fit, with l.mu held.
func (l *Limiter) grant() {
	for w := l.waiting.first; w != nil && l.canGrant(w.n); w = l.waiting.first {
		l.used += w.n
		l.waiting.remove(w)
		w.granted <- struct{}{}
	}
}

type waiter struct {
	n          int64
	granted    chan struct{} // of capacity 1
	prev, next *waiter
}

// waiters has unused waiters: in no queue and without a token in granted.
var waiters = sync.Pool{New: func() any { return &waiter{granted: make(chan struct{}, 1)} }}

// wait returns nil when the units were granted, else the context's error. A
// receive is half the price of a select.
func (w *waiter) wait(ctx context.Context) error {
	done := ctx.Done()
	if done == nil {
		<-w.granted
		return nil
	}
	select {
	case <-w.granted:
		return nil
	case <-done:
		return ctx.Err()
	}
}

// A queue is a list that a waiter can leave from anywhere in constant time.
type waitQueue struct{ first, last *waiter }

// push appends a waiter.
func (q *waitQueue) push(w *waiter) {
	w.prev = q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
}

// remove removes a waiter, which must be in the queue.
func (q *waitQueue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}
