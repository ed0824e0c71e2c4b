package flight

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/service/internal/cputime"
	"github.com/whylate/whylate/service/internal/guard"
	"github.com/whylate/whylate/service/mark"
	"github.com/whylate/whylate/service/redact"
)

// A Recorder keeps recordings of slow moments. Its methods may be called
// concurrently. A nil Recorder, which Start returns with an error, records nothing.
type Recorder struct {
	opts    Options
	routes  routes
	facts   *facts
	service map[string]string

	ctx     context.Context // ends with Stop
	stop    context.CancelFunc
	once    sync.Once
	done    sync.WaitGroup
	wake    chan struct{}  // the plan has changed
	ask     chan *asked    // recordings to keep
	fetch   chan *asked    // recordings to write to a client
	sunk    chan struct{}  // the sink has returned
	sinking sync.WaitGroup // the sink
	left    chan struct{}  // closed if Stop did not wait for the sink
	unwatch func()         // ends mark.Watch
	upload  *uploader
	ownCost atomic.Uint64 // bits of a float64
	fetches atomic.Int32  // GET requests that hold a recording
	guard   guard.Guard

	mu     sync.Mutex
	state  State
	plan   plan
	missed map[Kind]uint64 // since the last recording
	hour   *bucket         // of PerHour
	day    *bucket         // of PerDay
	posts  *bucket
	seen   uint64 // marked requests in this second
	slow   uint64 // and how many of them were slow or unusual

	// Only the recorder's goroutine uses the rest.
	rt    ring
	gov   governor
	rate  float64       // bytes a second, a moving average
	n     int           // recordings
	began time.Time     // when rt was started
	spent time.Duration // the process's CPU time when govern last read it
	count *counting
}

// A ring keeps the last seconds of the trace: the runtime's flight recorder, or a
// test's.
type ring interface {
	start(minAge time.Duration, maxBytes uint64) error
	stop()
	enabled() bool
	writeTo(w io.Writer) (int64, error)
}

// Start starts a recorder. An error means that an option makes no sense. If nothing can
// be recorded or written, State reports it.
func Start(opts Options) (*Recorder, error) {
	var r *Recorder
	var err error
	var g guard.Guard
	if err := g.Do("flight.Start", func() { r, err = startWith(opts, newRing()) }); err != nil {
		return nil, err
	}
	return r, err
}

func startWith(opts Options, rt ring) (*Recorder, error) {
	if err := opts.fill(); err != nil {
		return nil, err
	}
	now := time.Now()
	r := &Recorder{
		opts: opts, facts: readFacts(), service: describe(os.Getenv),
		wake: make(chan struct{}, 1), ask: make(chan *asked), fetch: make(chan *asked), sunk: make(chan struct{}, 1), left: make(chan struct{}),
		missed: make(map[Kind]uint64), hour: newBucket(opts.PerHour, time.Hour, now), day: newBucket(opts.PerDay, 24*time.Hour, now), posts: newBucket(postsPerMinute, time.Minute, now),
		gov: newGovernor(opts.Budget, opts.MinAge), rt: rt,
		plan: plan{tail: opts.Tail, gap: opts.Gap, minAge: opts.MinAge, reach: opts.MinAge},
	}
	r.opts.Redact = r.opts.Redact.WithKey()
	if r.opts.Redact.Main == "" {
		if b, ok := debug.ReadBuildInfo(); ok {
			r.opts.Redact.Main = b.Path
		}
	}
	if o := &r.opts.Redact; max(o.Logs, o.Tasks, o.Routes, o.Parents) != redact.Keep {
		r.facts.hide()
		delete(r.service, "pid")
	}
	r.state.Triggers, r.state.Missed = make(map[Kind]uint64), make(map[Kind]uint64)
	r.state.Budget, r.state.Duty, r.state.CostFrom, r.state.Reach = max(0, opts.Budget), 1, r.gov.how, opts.MinAge
	r.ctx, r.stop = context.WithCancel(context.Background())
	if !supported {
		r.state.Why = "built with a Go version before 1.25, which has no flight recorder"
		return r, nil
	}
	if opts.Dir != "" {
		if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
			r.state.LastError = err.Error()
		} else {
			removeParts(opts.Dir, os.Getpid(), alive, now)
			r.state.DiskBytes, _ = tidy(opts.Dir, opts.MaxDisk, "")
			r.recall(now)
		}
	}
	if opts.Upload != nil {
		var err error
		if r.upload, err = startUploader(opts.Dir, *opts.Upload); err != nil {
			r.stop()
			return nil, err
		}
	}
	var watched bool
	r.unwatch, watched = mark.Watch(r.ended)
	r.state.Unwatched = !watched
	r.begin()
	r.done.Add(1)
	go r.run()
	if len(opts.Signals) > 0 {
		r.done.Add(1)
		go r.onSignals(notify(opts.Signals))
	}
	if !opts.NoHost {
		r.done.Add(1)
		go r.logHost()
	}
	return r, nil
}

// recall counts what earlier processes kept, so that a service that crashes repeatedly does
// not begin with full buckets.
func (r *Recorder) recall(now time.Time) {
	files, _ := list(r.opts.Dir) // tidy has reported the error
	var kept []time.Time
	for _, f := range files {
		if kindOf(f.name) != KindAsked {
			kept = append(kept, f.mod)
		}
	}
	r.hour.recall(kept, now)
	r.day.recall(kept, now)
}

// sinkPatience is how long Stop waits for Sink.
const sinkPatience = 5 * time.Second

// Stop stops the recorder, finishes the recording that is being written, and waits for
// the recorder's goroutines. It waits five seconds for Sink.
func (r *Recorder) Stop() {
	if r == nil {
		return
	}
	r.once.Do(func() {
		r.stop()
		if r.unwatch != nil {
			r.unwatch()
		}
		r.done.Wait()
		sunk := make(chan struct{})
		go func() { r.sinking.Wait(); close(sunk) }()
		patience := time.NewTimer(sinkPatience)
		defer patience.Stop()
		select {
		case <-sunk:
		case <-patience.C:
			close(r.left)
		}
	})
	r.done.Wait()
	if r.upload != nil {
		r.upload.end()
	}
}

// begin starts the runtime's flight recorder, unless it runs.
func (r *Recorder) begin() {
	if r.rt.enabled() {
		return
	}
	err := r.rt.start(r.opts.MinAge, r.opts.MaxBytes)
	r.began = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Recording, r.state.Why = err == nil, ""
	if err != nil {
		r.state.Why = err.Error() + "; it is tried again"
	}
}

// end stops it. Its contents are lost, and with them what the plan waits to keep.
func (r *Recorder) end(why string) {
	r.rt.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Recording, r.state.Why = false, why
	r.lose(r.plan.drop())
}

// run is the recorder's goroutine. A panic in it ends the recorder, not the service.
func (r *Recorder) run() {
	defer r.done.Done()
	why := "stopped"
	defer func() { r.noteError(r.guard.Do("flight: stopping", func() { r.end(why) })) }()
	if err := r.guard.Do("flight: the recorder", r.loop); err != nil {
		why = err.Error()
		r.noteError(err)
		r.stop()
	}
}

// noteError makes an error that is not nil the state's last.
func (r *Recorder) noteError(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.LastError = err.Error()
}

// loop waits for what is due until the recorder is stopped.
func (r *Recorder) loop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	metrics := newMetricsReader()
	metrics.read(time.Now())
	r.spent, _ = cputime.Process()
	next := time.NewTimer(0)
	defer next.Stop()
	sinking := false
	for n := 0; ; {
		ask := r.ask
		if sinking {
			ask = nil // the sink is given one recording at a time
		}
		select {
		case <-r.ctx.Done():
			return
		case a := <-r.fetch:
			r.capture(a)
		case a := <-ask:
			sinking = r.capture(a)
		case <-r.sunk:
			sinking = r.step(next)
		case <-r.wake:
			if !sinking {
				sinking = r.step(next)
			}
		case <-next.C:
			if !sinking {
				sinking = r.step(next)
			}
		case now := <-tick.C:
			n++
			r.second(n, metrics.read(now))
		}
	}
}

// step takes a snapshot if the plan is due, and otherwise sets the timer for when to
// look again. It reports whether the sink is running.
func (r *Recorder) step(next *time.Timer) (sinking bool) {
	why, also, held, wait := r.takeDue(time.Now())
	if wait > 0 {
		next.Reset(wait)
	}
	if wait != 0 {
		return false
	}
	a := &asked{held: held, done: make(chan struct{})}
	err := r.guard.Do("flight: redact.Options.Allow", func() {
		a.trigger = why.trigger(&r.opts.Redact)
		for i := range also {
			a.also = append(a.also, also[i].trigger(&r.opts.Redact))
		}
	})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fail(err, held)
		return false
	}
	return r.capture(a)
}

// takeDue takes the triggers of the snapshot that is due now. Otherwise it returns when to look again, see plan.step.
func (r *Recorder) takeDue(now time.Time) (why moment, also []moment, held map[Kind]uint64, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait = r.plan.step(now, mark.Open); wait != 0 {
		return why, nil, nil, wait
	}
	why, also, held = r.plan.take(now)
	r.hour.take()
	r.day.take()
	return why, also, held, 0
}

// fail notes that triggers got no recording, with r.mu held.
func (r *Recorder) fail(err error, held map[Kind]uint64) {
	r.state.Failed++
	r.state.LastError = err.Error()
	r.lose(held)
}

// sleep waits, and reports whether ctx is not done.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// second does what is due once a second, the n-th time.
func (r *Recorder) second(n int, s reading) {
	r.govern(n, s)
	if n%60 == 0 {
		r.routes.each((*route).rotate)
	}
	if n%5 == 0 {
		r.routes.each(func(x *route) { x.settle(0.99, r.opts.Factor, r.opts.Least) })
	}
	r.rate += (s.starts/max(s.took.Seconds(), 1e-3)*r.gov.perStart - r.rate) / 5
	reach := r.opts.MinAge
	if full := float64(r.opts.MaxBytes) / max(r.rate, 1); full < reach.Seconds() {
		reach = time.Duration(full * float64(time.Second))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan.reach, r.state.Reach = reach, reach
	r.judge(s)
}

// onSignals keeps a recording for each signal. Signals that arrive meanwhile are one.
func (r *Recorder) onSignals(c chan os.Signal) {
	defer r.done.Done()
	defer signal.Stop(c)
	r.noteError(r.guard.Do("flight: waiting for signals", func() {
		for {
			select {
			case <-r.ctx.Done():
				return
			case s := <-c:
				_, _ = r.Capture(r.ctx, "signal: "+s.String()) // State reports the error
			}
		}
	}))
}

func notify(signals []os.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	return c
}
