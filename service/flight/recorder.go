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

// A Recorder runs the flight recorder and writes recordings when triggers fire. Its
// methods may be called concurrently. A nil Recorder, which Start returns with an
// error, records nothing.
type Recorder struct {
	opts      Options
	routes    routes
	hostFacts *hostFacts
	service   map[string]string

	ctx           context.Context // canceled by Stop
	stop          context.CancelFunc
	stopOnce      sync.Once
	goroutines    sync.WaitGroup
	planChanged   chan struct{}        // signals that advance must be called earlier
	captures      chan *captureRequest // of recordings for Dir and Sink
	fetchRequests chan *captureRequest // of recordings for HTTP clients
	sinkDone      chan struct{}        // signals that Sink has returned
	sinkCalls     sync.WaitGroup       // running calls of Sink
	sinkAbandoned chan struct{}        // closed if Stop gave up waiting for Sink
	stopWatching  func()               // ends mark.Watch
	uploader      *uploader
	ownCost       atomic.Uint64 // bits of a float64
	activeFetches atomic.Int32  // GET requests with a recording in memory
	guard         guard.Guard

	mu              sync.Mutex
	state           State
	plan            plan
	missedSinceLast map[Kind]uint64 // triggers since the last recording
	hourBucket      *tokenBucket    // of PerHour
	dayBucket       *tokenBucket    // of PerDay
	postBucket      *tokenBucket
	markedRequests  uint64 // in this second
	slowRequests    uint64 // slow or unusual ones of markedRequests

	// Only the recorder's goroutine uses the rest.
	ring        ring
	governor    governor
	byteRate    float64       // of the trace, in bytes a second, as a moving average
	recordings  int           // number of recordings so far, for file names
	ringStarted time.Time     // when ring was last started
	processCPU  time.Duration // when govern last read it
	byteCount   *byteCounting
}

// A ring keeps the last seconds of the trace: the runtime's flight recorder, or a fake
// of a test.
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

// startWith is Start with a given ring.
func startWith(opts Options, traceRing ring) (*Recorder, error) {
	if err := opts.setDefaults(); err != nil {
		return nil, err
	}
	now := time.Now()
	build, _ := debug.ReadBuildInfo()
	r := &Recorder{
		opts: opts, hostFacts: readHostFacts(), service: describeService(os.Getenv, build),
		planChanged: make(chan struct{}, 1), captures: make(chan *captureRequest), fetchRequests: make(chan *captureRequest), sinkDone: make(chan struct{}, 1), sinkAbandoned: make(chan struct{}),
		missedSinceLast: make(map[Kind]uint64), hourBucket: newTokenBucket(opts.PerHour, time.Hour, now), dayBucket: newTokenBucket(opts.PerDay, 24*time.Hour, now), postBucket: newTokenBucket(postsPerMinute, time.Minute, now),
		governor: newGovernor(opts.Budget, opts.MinAge), ring: traceRing,
		plan: plan{tail: opts.Tail, gap: opts.Gap, minAge: opts.MinAge, reach: opts.MinAge},
	}
	r.opts.Redact = r.opts.Redact.WithKey()
	if r.opts.Redact.Main == "" {
		if b, ok := debug.ReadBuildInfo(); ok {
			r.opts.Redact.Main = b.Path
		}
	}
	if o := &r.opts.Redact; max(o.Logs, o.Tasks, o.Routes, o.Parents) != redact.Keep {
		r.hostFacts.hideIdentity()
		delete(r.service, "pid")
	}
	r.state.Triggers, r.state.Missed = make(map[Kind]uint64), make(map[Kind]uint64)
	r.state.Budget, r.state.Duty, r.state.CostFrom, r.state.Reach = max(0, opts.Budget), 1, r.governor.costSource, opts.MinAge
	r.ctx, r.stop = context.WithCancel(context.Background())
	if !supported {
		r.state.Why = "built with a Go version before 1.25, which has no flight recorder"
		return r, nil
	}
	if opts.Dir != "" {
		if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
			r.state.LastError = err.Error()
		} else {
			removeParts(opts.Dir, os.Getpid(), processExists, now)
			r.state.DiskBytes, _ = enforceBudget(opts.Dir, opts.MaxDisk, "")
			r.countEarlierRecordings(now)
		}
	}
	if opts.Upload != nil {
		var err error
		if r.uploader, err = startUploader(opts.Dir, *opts.Upload); err != nil {
			r.stop()
			return nil, err
		}
	}
	var watched bool
	r.stopWatching, watched = mark.Watch(r.requestEnded)
	r.state.Unwatched = !watched
	r.startRing()
	r.goroutines.Add(1)
	go r.run()
	if len(opts.Signals) > 0 {
		r.goroutines.Add(1)
		go r.onSignals(notifySignals(opts.Signals))
	}
	if !opts.NoHost {
		r.goroutines.Add(1)
		go r.runHostLog()
	}
	return r, nil
}

// countEarlierRecordings takes a token for each recording that an earlier process left in
// Dir, so that a service that crashes repeatedly does not start with full buckets.
func (r *Recorder) countEarlierRecordings(now time.Time) {
	files, _ := listRecordings(r.opts.Dir) // enforceBudget has reported the error
	var takenAt []time.Time
	for _, f := range files {
		if kindOf(f.name) != KindAsked {
			takenAt = append(takenAt, f.modTime)
		}
	}
	r.hourBucket.replay(takenAt, now)
	r.dayBucket.replay(takenAt, now)
}

// sinkPatience is how long Stop waits for Sink.
const sinkPatience = 5 * time.Second

// Stop stops the recorder, finishes the recording that is being written, and waits for
// the recorder's goroutines. It waits five seconds for Sink.
func (r *Recorder) Stop() {
	if r == nil {
		return
	}
	r.stopOnce.Do(func() {
		r.stop()
		if r.stopWatching != nil {
			r.stopWatching()
		}
		r.goroutines.Wait()
		sinkReturned := make(chan struct{})
		go func() { r.sinkCalls.Wait(); close(sinkReturned) }()
		timeout := time.NewTimer(sinkPatience)
		defer timeout.Stop()
		select {
		case <-sinkReturned:
		case <-timeout.C:
			close(r.sinkAbandoned)
		}
	})
	r.goroutines.Wait()
	if r.uploader != nil {
		r.uploader.stop()
	}
}

// startRing starts the ring unless it runs. If that fails, only State shows it, as Why.
func (r *Recorder) startRing() {
	if r.ring.enabled() {
		return
	}
	err := r.ring.start(r.opts.MinAge, r.opts.MaxBytes)
	r.ringStarted = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Recording, r.state.Why = err == nil, ""
	if err != nil {
		r.state.Why = err.Error() + "; it is tried again"
	}
}

// stopRing stops the ring. Its contents are lost, so waiting triggers count as missed. The state shows the reason.
func (r *Recorder) stopRing(reason string) {
	r.ring.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Recording, r.state.Why = false, reason
	r.countMissed(r.plan.dropWaiting())
}

// run is the recorder's goroutine. A panic in it ends the recorder, not the service.
func (r *Recorder) run() {
	defer r.goroutines.Done()
	reason := "stopped"
	defer func() { r.noteError(r.guard.Do("flight: stopping", func() { r.stopRing(reason) })) }()
	if err := r.guard.Do("flight: the recorder", r.loop); err != nil {
		reason = err.Error()
		r.noteError(err)
		r.stop()
	}
}

// noteError sets State.LastError to the text of err unless that is nil.
func (r *Recorder) noteError(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.LastError = err.Error()
}

// loop handles requests for recordings, due snapshots and seconds until Stop.
func (r *Recorder) loop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	metricsReader := newMetricsReader()
	metricsReader.read(time.Now())
	r.processCPU, _ = cputime.Process()
	next := time.NewTimer(0)
	defer next.Stop()
	sinking := false
	for seconds := 0; ; {
		captures := r.captures
		if sinking {
			captures = nil // Sink handles one recording at a time
		}
		select {
		case <-r.ctx.Done():
			return
		case a := <-r.fetchRequests:
			r.capture(a)
		case a := <-captures:
			sinking = r.capture(a)
		case <-r.sinkDone:
			sinking = r.captureIfDue(next)
		case <-r.planChanged:
			if !sinking {
				sinking = r.captureIfDue(next)
			}
		case <-next.C:
			if !sinking {
				sinking = r.captureIfDue(next)
			}
		case now := <-tick.C:
			seconds++
			r.handleSecond(seconds, metricsReader.read(now))
		}
	}
}

// captureIfDue writes a recording if the plan says that it is due, and otherwise sets the timer for the next call, if triggers wait. It reports
// whether Sink is running.
func (r *Recorder) captureIfDue(next *time.Timer) (sinking bool) {
	reason, otherMoments, heldCounts, wait := r.takeDueTriggers(time.Now())
	if wait > 0 {
		next.Reset(wait)
	}
	if wait != 0 {
		return false
	}
	req := &captureRequest{heldCounts: heldCounts, done: make(chan struct{})}
	err := r.guard.Do("flight: redact.Options.Allow", func() {
		req.trigger = reason.trigger(&r.opts.Redact)
		for i := range otherMoments {
			req.otherTriggers = append(req.otherTriggers, otherMoments[i].trigger(&r.opts.Redact))
		}
	})
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.noteFailure(err, heldCounts)
		return false
	}
	return r.capture(req)
}

// takeDueTriggers removes the waiting triggers from the plan and returns them, as plan.takeWaiting does, if a snapshot is due now: then wait is 0.
// Otherwise wait is plan.advance's time to the next call, negative if none waits, and the others are empty.
func (r *Recorder) takeDueTriggers(now time.Time) (reason moment, otherMoments []moment, heldCounts map[Kind]uint64, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait = r.plan.advance(now, mark.Open); wait != 0 {
		return reason, nil, nil, wait
	}
	reason, otherMoments, heldCounts = r.plan.takeWaiting(now)
	r.hourBucket.takeToken()
	r.dayBucket.takeToken()
	return reason, otherMoments, heldCounts, 0
}

// noteFailure counts a failed recording and its triggers as missed, with r.mu held.
func (r *Recorder) noteFailure(err error, heldCounts map[Kind]uint64) {
	r.state.Failed++
	r.state.LastError = err.Error()
	r.countMissed(heldCounts)
}

// sleep waits for d or for the end of ctx. It reports false if ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// handleSecond does the work that is due once a second. seconds counts its calls.
func (r *Recorder) handleSecond(seconds int, metrics metricsReading) {
	r.govern(seconds, metrics)
	if seconds%60 == 0 {
		r.routes.visit((*route).rotate)
	}
	if seconds%5 == 0 {
		r.routes.visit(func(x *route) { x.updateLimit(0.99, r.opts.Factor, r.opts.MinUnusual) })
	}
	r.byteRate += (metrics.starts/max(metrics.elapsed.Seconds(), 1e-3)*r.governor.bytesPerStart - r.byteRate) / 5
	reach := r.opts.MinAge
	if full := float64(r.opts.MaxBytes) / max(r.byteRate, 1); full < reach.Seconds() {
		reach = time.Duration(full * float64(time.Second))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan.reach, r.state.Reach = reach, reach
	r.judgeSecond(metrics)
}

// onSignals keeps a recording for each signal. Signals that arrive while one is written
// lead to one recording.
func (r *Recorder) onSignals(c chan os.Signal) {
	defer r.goroutines.Done()
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

func notifySignals(signals []os.Signal) chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	return c
}
