package pool

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/whylate/whylate/service/cgroup"
	"github.com/whylate/whylate/service/internal/guard"
)

// A Limit has the resources that the process may use at one time.
type Limit struct {
	// CPUs is how many CPUs' worth of Go code can run: the smaller of Quota
	// and GOMAXPROCS, not rounded.
	CPUs float64
	// Quota is the tightest CPU quota that can be seen, in CPUs; 0 means none,
	// or not measurable here.
	Quota float64
	// GOMAXPROCS is its value now.
	GOMAXPROCS int
	// Memory is the tightest memory limit in bytes; 0 means none, or not
	// measurable here.
	Memory int64
}

// Options configure how a limiter follows the limit. The zero value of each field means its
// default.
type Options struct {
	// Size gives the number of units for a limit; results below 1 are taken as
	// 1. nil is PerCPU(1). It is called by one goroutine at a time, once in
	// Follow and then whenever the limit changed.
	Size func(Limit) int64
	// Interval is the time between two readings of the limit: 1 s, which is the
	// runtime's own pace.
	Interval time.Duration
	// OnResize, if not nil, is called after each change of size, by the limiter's
	// goroutine. A panic in it, in Size or in Read is reported to slog.Default, and
	// the limiter continues to follow the limit.
	OnResize func(from, to int64, limit Limit)
	// Read gives the limit; nil reads that of this process. An error keeps
	// the last known limit.
	Read func() (Limit, error)
}

// PerCPU returns a Size of n units for each CPU, rounded up, at least 1. Use 1 for work
// that computes, and more for work that waits.
func PerCPU(n float64) func(Limit) int64 {
	return func(l Limit) int64 {
		units := math.Ceil(n * l.CPUs)
		if !(units >= 1) { // also NaN
			return 1
		}
		return int64(min(units, math.MaxInt32))
	}
}

// Follow returns a limiter whose size follows the process's live limit, or
// GOMAXPROCS where no limit can be read (outside Linux, without a cgroup). It fails
// only if Options.Read fails at the first call. Close ends the limiter's goroutine.
func Follow(opts Options) (*Limiter, error) {
	f := &follower{opts: opts, stop: make(chan struct{}), done: make(chan struct{})}
	if f.opts.Size == nil {
		f.opts.Size = PerCPU(1)
	}
	if f.opts.Interval <= 0 {
		f.opts.Interval = time.Second
	}
	if f.opts.Read == nil {
		reader := new(processLimit)
		reader.open()
		f.opts.Read, f.closeReader = reader.read, reader.close
	}
	var err error
	if f.last, err = f.opts.Read(); err != nil {
		f.close()
		return nil, err
	}
	l := New(f.opts.Size(f.last))
	l.follower = f
	go f.run(l)
	return l, nil
}

// Close stops following the limit: the size stays as it is, and the limiter can
// still be used. Close may be called more than once. On a limiter made by New it
// does nothing.
func (l *Limiter) Close() error {
	if l.follower != nil {
		l.follower.stopOnce.Do(func() { close(l.follower.stop) })
		<-l.follower.done
	}
	return nil
}

type follower struct {
	opts        Options
	last        Limit
	closeReader func()
	stopOnce    sync.Once
	stop        chan struct{}
	done        chan struct{}
	guard       guard.Guard
}

// run polls the process's limit at each Interval and changes l, until the follower is
// stopped.
func (f *follower) run(l *Limiter) {
	defer close(f.done)
	defer f.close()
	tick := time.NewTicker(f.opts.Interval)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
			_ = f.guard.Do("pool: following the limit", func() { f.poll(l) })
		}
	}
}

// poll reads the limit, and resizes l and calls OnResize if its size has changed. If the limit cannot be read, it does nothing.
func (f *follower) poll(l *Limiter) {
	limit, err := f.opts.Read()
	if err != nil || limit == f.last {
		return
	}
	f.last = limit
	from, to := l.Size(), max(1, f.opts.Size(limit))
	if from == to {
		return
	}
	l.Resize(to)
	if f.opts.OnResize != nil {
		f.opts.OnResize(from, to, limit)
	}
}

func (f *follower) close() {
	if f.closeReader != nil {
		f.closeReader()
	}
}

// processLimit reads the limit of this process.
type processLimit struct {
	sampler *cgroup.Sampler // nil if no cgroup can be read
	// lastComplete are the last limits of which no file was missing. A limit that
	// cannot be read any more still applies.
	lastComplete cgroup.Tightest
}

func (o *processLimit) open() { o.sampler, _ = cgroup.NewSampler(cgroup.Options{}) }

// read returns the process's present limit: GOMAXPROCS, and the quota and the memory limit of its control group, also after a
// move to another group. If a file of the group cannot be read, its last complete limits apply, or none if there are no such. It
// never returns an error: the signature is that of Options.Read.
func (o *processLimit) read() (Limit, error) {
	l := Limit{GOMAXPROCS: runtime.GOMAXPROCS(0)}
	if o.sampler != nil && o.sampler.Moved() {
		o.close()
		o.open()
	}
	var b cgroup.Tightest
	if o.sampler != nil && o.sampler.SampleLimits(&b) == nil && b.Unread == 0 {
		o.lastComplete = b
	}
	l.Quota, l.Memory = o.lastComplete.Quota, o.lastComplete.Memory
	l.CPUs = float64(l.GOMAXPROCS)
	if l.Quota > 0 {
		l.CPUs = min(l.CPUs, l.Quota)
	}
	return l, nil
}

// close closes the files of the limits; a later read opens them again.
func (o *processLimit) close() {
	if o.sampler != nil {
		o.sampler.Close()
		o.sampler = nil
	}
}
