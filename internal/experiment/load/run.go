package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// Options say what to send, and how. They are not changed.
type Options struct {
	Targets  []Target
	Phases   []Phase  // the schedule's; in a closed loop without a rate, one Phase with only a Duration
	Arrivals Arrivals // empty: Poisson
	Seed     uint64   // of the arrivals and the choice of targets
	// Warmup is a time of load at the first phase's rate that goes before the run and is not recorded.
	Warmup time.Duration
	// Closed makes a closed loop of so many clients, each of which waits for its answer before it goes on. With a rate,
	// they share the schedule's requests, and a request starts when it is due and a client is free; its latency then counts
	// from its actual start. 0 is the open loop.
	Closed int
	// MaxInFlight bounds the requests under way; those beyond it are dropped and counted. 0 means 4096.
	MaxInFlight int
	// Timeout of one request; 0 means 30 s.
	Timeout time.Duration
	Pace    Pace // empty: PaceTimer
	// CPUs is how many CPUs the generator may use, for its own load; 0 means runtime.NumCPU.
	CPUs int

	// Send sends one request; nil sends HTTP as HTTP says.
	Send Send
	HTTP HTTP
	// Observe, if not nil, is called for every recorded request, concurrently.
	Observe func(Sample)
	// Progress, if not nil, is called some ten times a second, not concurrently.
	Progress func(done, total time.Duration, sent int64)
}

// A Send sends one request to the target of that index and waits for the whole answer. It is called concurrently.
type Send func(ctx context.Context, target int) Answer

// An Answer is what came of a request. Err is set for whatever makes it no good answer, also a status of 400 and above.
type Answer struct {
	Status int
	Err    error
	Start  time.Time // when sending began; zero: when Send was called
}

func (o *Options) check() error {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 4096)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Pace = cmp.Or(o.Pace, PaceTimer)
	o.Arrivals = cmp.Or(o.Arrivals, Poisson)
	if o.CPUs == 0 {
		o.CPUs = runtime.NumCPU()
	}
	switch {
	case len(o.Targets) == 0:
		return errors.New("there is no target to send requests to")
	case len(o.Targets) > maxTargets:
		return fmt.Errorf("%d targets are more than %d", len(o.Targets), maxTargets)
	case len(o.Phases) == 0:
		return errors.New("a run needs a duration")
	case o.Arrivals != Poisson && o.Arrivals != Constant:
		return fmt.Errorf("arrivals %q: use %s or %s", o.Arrivals, Poisson, Constant)
	case o.Pace != PaceTimer && o.Pace != PaceSleep && o.Pace != PaceSpin:
		return fmt.Errorf("pace %q: use %s, %s or %s", o.Pace, PaceSleep, PaceSpin, PaceTimer)
	case o.Closed < 0 || o.Closed > 100_000:
		return fmt.Errorf("a closed loop of %d clients: give 1 to 100000", o.Closed)
	case o.MaxInFlight < 1 || o.MaxInFlight > 1_000_000:
		return fmt.Errorf("%d requests in flight: give 1 to 1000000", o.MaxInFlight)
	case o.Timeout < time.Millisecond || o.Timeout > 10*time.Minute:
		return fmt.Errorf("a time-out of %v: give 1ms to 10m", o.Timeout)
	case o.Warmup < 0 || o.Warmup > MaxDuration:
		return fmt.Errorf("a warm-up of %v: give up to %v", o.Warmup, MaxDuration)
	}
	return nil
}

func (o *Options) weights() []int {
	w := make([]int, len(o.Targets))
	for i := range o.Targets {
		w[i] = max(1, o.Targets[i].Weight)
	}
	return w
}

// rated tells whether there is a schedule: always but in a closed loop without a rate.
func (o *Options) rated() bool { return o.Closed == 0 || o.Phases[0].From > 0 }

// schedule lays out a run; without a rate it has an end and no requests.
func (o *Options) schedule(phases []Phase, seed uint64) (*Schedule, error) {
	if o.rated() {
		return NewSchedule(phases, o.Arrivals, seed, o.weights())
	}
	d := phases[0].Duration
	if d <= 0 || d > MaxDuration {
		return nil, fmt.Errorf("a run of %v: give a duration up to %v", d, MaxDuration)
	}
	return &Schedule{end: int64(d)}, nil
}

// Run sends requests and returns what was seen of them. The result is valid as far as its Valid says. If ctx ends, the
// result is of what was answered until then and the error is ctx's; a result is nil only if nothing was sent.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &generator{o: &o, send: o.Send}
	var err error
	if g.schedule, err = o.schedule(o.Phases, o.Seed); err != nil {
		return nil, err
	}
	if o.rated() && g.schedule.Len() == 0 {
		return nil, errors.New("this rate and duration give no request: raise one of them")
	}
	if g.send == nil {
		h, err := newHTTPSender(&o)
		if err != nil {
			return nil, err
		}
		defer h.close()
		g.send = h.send
	}
	for range min(4, max(1, o.CPUs)) {
		g.recorders = append(g.recorders, newRecorder(len(o.Phases), len(o.Targets)))
	}
	g.flight, g.cancel = context.WithCancel(ctx)
	defer g.cancel()
	stop := g.watch()
	if o.Warmup > 0 {
		if err := g.warmUp(ctx); err != nil {
			g.finish()
			stop()
			return nil, err
		}
	}
	g.measure()
	g.follow(ctx, g.schedule, g.begin, true)
	g.finish()
	stop()
	res := g.result()
	if ctx.Err() != nil {
		res.warn(false, "interrupted", "the run was interrupted: its figures cover a part of it")
		return res, context.Cause(ctx)
	}
	return res, nil
}

type generator struct {
	o         *Options
	send      Send
	schedule  *Schedule
	begin     time.Time // of the recorded part
	recorders []*recorder
	flight    context.Context // of the requests; ends with the run's
	cancel    context.CancelFunc

	mu      sync.Mutex
	idle    []*worker
	workers int
	over    bool // nothing more will be sent

	all        sync.WaitGroup
	next       atomic.Int64 // closed loop: index of the next request
	dropped    int64        // written by the dispatching goroutine
	unanswered atomic.Int64
	sent       atomic.Int64

	spun      time.Duration
	ownBefore usage
	own       usage
}

// usage is what the generator itself used.
type usage struct {
	wall      time.Time
	cpu       time.Duration
	throttled time.Duration
	known     bool // throttled is
}

func readUsage() usage {
	u := usage{wall: time.Now(), cpu: cpuTime()}
	if s, err := cgroup.NewSampler(cgroup.Options{}); err == nil {
		defer s.Close()
		var st cgroup.Stat
		if s.Sample(&st) == nil {
			// Held back by the own group's quota: an ancestor's counter is of all its groups.
			u.throttled, u.known = st.Throttled, true
		}
	}
	return u
}

func (g *generator) measure() {
	g.ownBefore = readUsage()
	g.spun = 0
	if g.begin.IsZero() {
		g.begin = time.Now()
	}
}

// warmUp sends unrecorded requests. The recorded part follows at once.
func (g *generator) warmUp(ctx context.Context) error {
	begin, rate := time.Now(), g.o.Phases[0].From
	g.begin = begin.Add(g.o.Warmup)
	s, err := g.o.schedule([]Phase{{From: rate, To: rate, Duration: g.o.Warmup}}, g.o.Seed+1)
	if err != nil {
		return fmt.Errorf("the warm-up: %w", err)
	}
	g.follow(ctx, s, begin, false)
	if g.o.Closed == 0 {
		newPacer(PaceTimer).until(ctx, g.begin)
	}
	return ctx.Err()
}

// follow sends a schedule's requests.
func (g *generator) follow(ctx context.Context, s *Schedule, begin time.Time, recorded bool) {
	if g.o.Closed > 0 {
		g.closedLoop(ctx, s, begin, recorded)
	} else {
		g.openLoop(ctx, s, begin, recorded)
	}
}

type job struct {
	due      int64 // ns from the begin of its schedule
	target   int
	begin    time.Time
	recorded bool
}

// A worker sends one request at a time.
type worker struct {
	jobs chan job
	rec  *recorder
}

// openLoop starts every request of a schedule when it is due.
func (g *generator) openLoop(ctx context.Context, s *Schedule, begin time.Time, recorded bool) {
	p := newPacer(g.o.Pace)
	for i := range s.due {
		if !p.until(ctx, begin.Add(time.Duration(s.due[i]))) {
			break
		}
		w := g.free()
		if w == nil {
			if recorded {
				g.dropped++
			}
			continue
		}
		w.jobs <- job{s.due[i], int(s.target[i]), begin, recorded}
		if g.o.Pace != PaceTimer {
			runtime.Gosched() // to it, before this thread sleeps in the kernel
		}
	}
	g.spun += p.spun
}

// free returns a worker that has nothing to do, nil if there are as many requests under way as there may be. It prefers
// the one that was busy last: its stack and connection are warm.
func (g *generator) free() *worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.idle); n > 0 {
		w := g.idle[n-1]
		g.idle = g.idle[:n-1]
		return w
	}
	if g.workers == g.o.MaxInFlight {
		return nil
	}
	w := &worker{make(chan job, 1), g.recorders[g.workers%len(g.recorders)]}
	g.workers++
	g.all.Go(func() {
		for j := range w.jobs {
			g.one(w.rec, j.begin, j.due, j.due, j.target, j.recorded)
			if !g.rest(w) {
				return
			}
		}
	})
	return w
}

// rest lets a worker wait for its next request. It returns false if there will be none.
func (g *generator) rest(w *worker) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		g.idle = append(g.idle, w)
	}
	return !g.over
}

// finish waits for all answers. A request's time-out bounds that.
func (g *generator) finish() {
	g.mu.Lock()
	g.over = true
	for _, w := range g.idle {
		close(w.jobs)
	}
	g.mu.Unlock()
	g.all.Wait()
	now := readUsage()
	g.own = usage{wall: now.wall, cpu: now.cpu - g.ownBefore.cpu, throttled: now.throttled - g.ownBefore.throttled, known: now.known && g.ownBefore.known}
}

// closedLoop runs clients that wait for their answers: until the schedule's requests are sent or, if it has none, until its end.
func (g *generator) closedLoop(ctx context.Context, s *Schedule, begin time.Time, recorded bool) {
	end := begin.Add(time.Duration(s.end))
	g.next.Store(0)
	targets := pick(1<<12, g.o.weights(), newRandom(g.o.Seed))
	pace := g.o.Pace
	if pace == PaceSpin {
		pace = PaceSleep // many clients cannot spin
	}
	var clients sync.WaitGroup
	for i := range g.o.Closed {
		rec := g.recorders[i%len(g.recorders)]
		clients.Go(func() {
			p := newPacer(pace)
			for ctx.Err() == nil {
				k := int(g.next.Add(1) - 1)
				due, target := int64(time.Since(begin)), int(targets[k%len(targets)])
				if g.o.rated() {
					if k >= len(s.due) || !p.until(ctx, begin.Add(time.Duration(s.due[k]))) {
						return
					}
					due, target = s.due[k], int(s.target[k])
				} else if !time.Now().Before(end) || k >= MaxRequests {
					return
				}
				g.one(rec, begin, int64(time.Since(begin)), due, target, recorded)
			}
		})
	}
	clients.Wait()
}

// one sends a request. Its latency counts from due; planned is what the schedule said.
func (g *generator) one(rec *recorder, begin time.Time, due, planned int64, target int, recorded bool) {
	ctx, cancel := context.WithTimeout(g.flight, g.o.Timeout)
	start := time.Now()
	a := g.send(ctx, target)
	end := time.Now()
	gaveUp := errors.Is(ctx.Err(), context.DeadlineExceeded)
	cancel()
	if !a.Start.IsZero() {
		start = a.Start
	}
	if a.Err != nil && g.flight.Err() != nil {
		if recorded {
			g.unanswered.Add(1)
		}
		return
	}
	if !recorded {
		return
	}
	g.sent.Add(1)
	s := Sample{
		Target: target, Due: due, Start: int64(start.Sub(begin)), End: int64(end.Sub(begin)), Status: a.Status, Err: a.Err,
		TimedOut: gaveUp && a.Err != nil,
	}
	s.Late = s.Start - planned
	half := 0
	if 2*due >= g.schedule.end {
		half = 1
	}
	rec.add(&s, half, g.phase(due))
	if g.o.Observe != nil {
		g.o.Observe(s)
	}
}

// phase returns the index of the phase that a time lies in.
func (g *generator) phase(due int64) int {
	for i := range g.o.Phases {
		if due -= int64(g.o.Phases[i].Duration); due < 0 {
			return i
		}
	}
	return len(g.o.Phases) - 1
}

// watch calls Progress until the returned function is called.
func (g *generator) watch() (stop func()) {
	if g.o.Progress == nil {
		return func() {}
	}
	total := g.o.Warmup + time.Duration(g.schedule.end)
	begin := time.Now()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(100 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				g.o.Progress(min(time.Since(begin), total), total, g.sent.Load())
			}
		}
	}()
	return func() { close(done); <-ended }
}
