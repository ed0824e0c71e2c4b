package load

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/service/cgroup"
)

// A SendFunc sends one request to the target with that index and waits for the complete answer. It is
// called concurrently.
type SendFunc func(ctx context.Context, target int) Answer

// An Answer is the outcome of a request. Err is set for every failure, including a status of 400 and
// above.
type Answer struct {
	Status int
	Err    error
	Start  time.Time // when sending began; zero means the call of Send
}

// Run sends the requests and returns the result; Result.Valid reports whether its figures are usable.
// If ctx ends, the result covers the answers until then and the error is ctx's. The result is nil only
// if no request was sent.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	g := &generator{options: &o, send: o.Send}
	var err error
	if g.schedule, err = o.schedule(o.Phases, o.Seed); err != nil {
		return nil, err
	}
	if o.hasRate() && g.schedule.Len() == 0 {
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
	g.requestContext, g.cancel = context.WithCancel(ctx)
	defer g.cancel()
	stop := g.reportProgress()
	if o.Warmup > 0 {
		if err := g.warmUp(ctx); err != nil {
			g.finish()
			stop()
			return nil, err
		}
	}
	g.startMeasuring()
	g.sendSchedule(ctx, g.schedule, g.start, true)
	g.finish()
	stop()
	res := g.newResult()
	if ctx.Err() != nil {
		res.warn(false, "interrupted", "the run was interrupted: its figures cover a part of it")
		return res, context.Cause(ctx)
	}
	return res, nil
}

type generator struct {
	options        *Options
	send           SendFunc
	schedule       *Schedule
	start          time.Time // of the recorded part
	recorders      []*recorder
	requestContext context.Context // parent of the requests' contexts; ends with the run
	cancel         context.CancelFunc

	mu          sync.Mutex
	idleWorkers []*worker
	workerCount int
	isFinished  bool // no further request will be sent

	workersDone sync.WaitGroup
	nextRequest atomic.Int64 // index of the next request in a closed loop
	dropped     int64        // written by the dispatching goroutine
	unanswered  atomic.Int64
	sent        atomic.Int64

	spinTime    time.Duration
	usageBefore usage
	ownUsage    usage
}

// usage is the resource usage of the generator.
type usage struct {
	wall         time.Time
	cpu          time.Duration
	throttled    time.Duration
	hasThrottled bool // throttled is known
}

// readUsage returns the present time, this process's CPU time, and the time for which its own control group has been throttled,
// if that is known.
func readUsage() usage {
	u := usage{wall: time.Now(), cpu: cpuTime()}
	if s, err := cgroup.NewSampler(cgroup.Options{}); err == nil {
		defer s.Close()
		var st cgroup.Stat
		if s.Sample(&st) == nil {
			// Count the own cgroup's quota only: an ancestor's counter covers all cgroups below it.
			u.throttled, u.hasThrottled = st.Throttled, true
		}
	}
	return u
}

// startMeasuring makes the measured usage begin now. The run's start is that of the first call.
func (g *generator) startMeasuring() {
	g.usageBefore = readUsage()
	g.spinTime = 0
	if g.start.IsZero() {
		g.start = time.Now()
	}
}

// warmUp sets g.start, the time at which the recorded part begins, and sends unrecorded requests until then, at the rate with which the first phase
// starts. It returns at that time, or with ctx's error.
func (g *generator) warmUp(ctx context.Context) error {
	begin, rate := time.Now(), g.options.Phases[0].StartRate
	g.start = begin.Add(g.options.Warmup)
	s, err := g.options.schedule([]Phase{{StartRate: rate, EndRate: rate, Duration: g.options.Warmup}}, g.options.Seed+1)
	if err != nil {
		return fmt.Errorf("the warm-up: %w", err)
	}
	g.sendSchedule(ctx, s, begin, false)
	if g.options.ClosedClients == 0 {
		newPacer(PaceTimer).waitUntil(ctx, g.start)
	}
	return ctx.Err()
}

// sendSchedule sends the requests of a schedule that starts at begin, in an open or a closed loop, and returns when the last one is sent, or ctx
// ends; answers may be missing. recorded is false during the warm-up.
func (g *generator) sendSchedule(ctx context.Context, s *Schedule, begin time.Time, recorded bool) {
	if g.options.ClosedClients > 0 {
		g.runClosedLoop(ctx, s, begin, recorded)
	} else {
		g.runOpenLoop(ctx, s, begin, recorded)
	}
}

type job struct {
	due        int64 // ns from the start of its schedule
	target     int
	start      time.Time
	isRecorded bool
}

// A worker sends one request at a time.
type worker struct {
	jobs     chan job
	recorder *recorder
}

// runOpenLoop starts every request of a schedule when it is due.
func (g *generator) runOpenLoop(ctx context.Context, s *Schedule, begin time.Time, recorded bool) {
	p := newPacer(g.options.Pace)
	for i := range s.dueTimes {
		if !p.waitUntil(ctx, begin.Add(time.Duration(s.dueTimes[i]))) {
			break
		}
		w := g.idleWorker()
		if w == nil {
			if recorded {
				g.dropped++
			}
			continue
		}
		w.jobs <- job{s.dueTimes[i], int(s.targets[i]), begin, recorded}
		if g.options.Pace != PaceTimer {
			runtime.Gosched() // let the worker run before this thread sleeps in the kernel
		}
	}
	g.spinTime += p.spinTime
}

// idleWorker returns an idle or new worker; nil if MaxInFlight requests are in flight. It prefers the
// most recently used worker, whose stack and connection are warm.
func (g *generator) idleWorker() *worker {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.idleWorkers); n > 0 {
		w := g.idleWorkers[n-1]
		g.idleWorkers = g.idleWorkers[:n-1]
		return w
	}
	if g.workerCount == g.options.MaxInFlight {
		return nil
	}
	w := &worker{make(chan job, 1), g.recorders[g.workerCount%len(g.recorders)]}
	g.workerCount++
	g.workersDone.Go(func() {
		for j := range w.jobs {
			g.sendRequest(w.recorder, j.start, j.due, j.due, j.target, j.isRecorded)
			if !g.parkWorker(w) {
				return
			}
		}
	})
	return w
}

// parkWorker adds a worker to the idle ones. It returns false if the worker should end.
func (g *generator) parkWorker(w *worker) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isFinished {
		g.idleWorkers = append(g.idleWorkers, w)
	}
	return !g.isFinished
}

// finish ends the workers, waits for all answers, at most for the time-out of a request, and sets ownUsage.
func (g *generator) finish() {
	g.mu.Lock()
	g.isFinished = true
	for _, w := range g.idleWorkers {
		close(w.jobs)
	}
	g.mu.Unlock()
	g.workersDone.Wait()
	current := readUsage()
	g.ownUsage = usage{wall: current.wall, cpu: current.cpu - g.usageBefore.cpu, throttled: current.throttled - g.usageBefore.throttled, hasThrottled: current.hasThrottled && g.usageBefore.hasThrottled}
}

// runClosedLoop runs clients that wait for their answers: until the schedule's requests are sent or,
// without a rate, until the schedule's end.
func (g *generator) runClosedLoop(ctx context.Context, s *Schedule, begin time.Time, recorded bool) {
	end := begin.Add(time.Duration(s.duration))
	g.nextRequest.Store(0)
	targets := drawTargets(1<<12, g.options.weights(), newRandom(g.options.Seed))
	pace := g.options.Pace
	if pace == PaceSpin {
		pace = PaceSleep // many clients cannot spin
	}
	var clients sync.WaitGroup
	for i := range g.options.ClosedClients {
		recorder := g.recorders[i%len(g.recorders)]
		clients.Go(func() {
			p := newPacer(pace)
			for ctx.Err() == nil {
				index := int(g.nextRequest.Add(1) - 1)
				due, target := int64(time.Since(begin)), int(targets[index%len(targets)])
				if g.options.hasRate() {
					if index >= len(s.dueTimes) || !p.waitUntil(ctx, begin.Add(time.Duration(s.dueTimes[index]))) {
						return
					}
					due, target = s.dueTimes[index], int(s.targets[index])
				} else if !time.Now().Before(end) || index >= MaxRequests {
					return
				}
				g.sendRequest(recorder, begin, int64(time.Since(begin)), due, target, recorded)
			}
		})
	}
	clients.Wait()
}

// sendRequest sends a request to the target with this index and, if recorded is set, records it in rec. Its latency counts from
// due; planned is its time in the schedule (both in ns since begin).
func (g *generator) sendRequest(rec *recorder, begin time.Time, due, planned int64, target int, recorded bool) {
	ctx, cancel := context.WithTimeout(g.requestContext, g.options.Timeout)
	start := time.Now()
	answer := g.send(ctx, target)
	end := time.Now()
	timedOut := errors.Is(ctx.Err(), context.DeadlineExceeded)
	cancel()
	if !answer.Start.IsZero() {
		start = answer.Start
	}
	if answer.Err != nil && g.requestContext.Err() != nil {
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
		Target: target, Due: due, Start: int64(start.Sub(begin)), End: int64(end.Sub(begin)), Status: answer.Status, Err: answer.Err,
		TimedOut: timedOut && answer.Err != nil,
	}
	s.Lateness = s.Start - planned
	half := 0
	if 2*due >= g.schedule.duration {
		half = 1
	}
	rec.add(&s, half, g.phaseOf(due))
	if g.options.Observe != nil {
		g.options.Observe(s)
	}
}

// phaseOf returns the index of the phase that contains a time, in ns from the begin of the schedule; the last one for a later time.
func (g *generator) phaseOf(due int64) int {
	for i := range g.options.Phases {
		if due -= int64(g.options.Phases[i].Duration); due < 0 {
			return i
		}
	}
	return len(g.options.Phases) - 1
}

// reportProgress calls Options.Progress, if it is set, every 100 ms from another goroutine, until stop is called, which waits for it.
func (g *generator) reportProgress() (stop func()) {
	if g.options.Progress == nil {
		return func() {}
	}
	total := g.options.Warmup + time.Duration(g.schedule.duration)
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
				g.options.Progress(min(time.Since(begin), total), total, g.sent.Load())
			}
		}
	}()
	return func() { close(done); <-ended }
}
