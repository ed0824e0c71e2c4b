package catalog

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	semaphorex "golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/whylate/whylate/lab/truth/catalog/consumer"
)

func waitServices() []*Service {
	return []*Service{
		{Name: "waitgroup", Doc: "the handler waits for three goroutines; one of them sleeps", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*waitGroup).report", Cause: "sleep", Via: []string{"waitgroup"},
				Injected: "20 ms sleep on one of three goroutines", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.98},
			Fix: "sleep 20 ms -> 2 ms", FixAtMost: 0.5, start: startWaitGroup},
		{Name: "errgroup", Doc: "as waitgroup, by golang.org/x/sync/errgroup with a limit", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*errGroup).report", Cause: "sleep", Via: []string{"waitgroup"},
				Injected: "20 ms sleep in one of four members", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.98},
			Fix: "sleep 20 ms -> 2 ms", FixAtMost: 0.5, start: startErrGroup},
		{Name: "errgroup-limit", Doc: "eight calls a request by an errgroup that lets two go at a time", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*calls).report", Cause: "sleep", Via: []string{"chan"},
				Injected: "eight sleeps of 5 ms, two at a time", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.98},
			Fix: "limit 2 -> 8", FixAtMost: 0.5, start: startCalls},
		{Name: "deadline", Doc: "the handler waits for an answer that never comes, until its context's deadline", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*deadline).ask", Cause: "sleep", Injected: "context deadline of 25 ms", LeastNS: 25e6, InjectedNS: 25e6, Share: 0.98},
			Fix:   "deadline 25 ms -> 3 ms", FixAtMost: 0.5, start: startDeadline},
		{Name: "ticker-flush", Doc: "a batcher acknowledges only when its ticker fires, each 50 ms", Proto: "http1", Load: mixedLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*batcher).append", Cause: "sleep", Via: []string{"chan"},
				Injected: "up to 50 ms until the next tick", InjectedNS: 25e6, Share: 0.98},
			Fix: "tick each 50 ms -> 5 ms", FixAtMost: 0.5, start: startBatcher},
		{Name: "batch-timer", Doc: "the first request of a batch sets a timer, whose function, a method, answers all that came meanwhile", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*batches).add", Cause: "sleep", Via: []string{"chan"}, Site: Site{Func: packagePath + ".(*batches).flush", File: packageDir + "/waits.go"},
				Injected: "up to 20 ms until the batch's timer", InjectedNS: 20e6, Share: 0.98},
			Fix: "20 ms -> 2 ms", FixAtMost: 0.5, start: startBatches},
		{Name: "rate-limiter", Doc: "golang.org/x/time/rate lets 100 requests a second through, 6 clients ask", Proto: "http1", Load: slowOnlyLoad(6),
			Truth: Truth{Kind: "http1", Group: "(*limited).ask", Cause: "sleep",
				Site:     Site{Func: "golang.org/x/time/rate.(*Limiter).wait"},
				OrSites:  []Site{{Func: "golang.org/x/time/rate.(*Limiter).WaitN"}, {Func: "golang.org/x/time/rate.(*Limiter).Wait"}},
				Injected: "a limit of 100 requests a second for 6 clients: about 60 ms each", InjectedNS: 58e6, Share: 0.98},
			Fix: "limit 100 -> 2000 a second", FixAtMost: 0.3, start: startLimited},
		{Name: "singleflight", Doc: "many requests share one load; followers wait for the leader, who sleeps", Proto: "http1", Load: slowOnlyLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*shared).ask", Cause: "sleep", Via: []string{"waitgroup"},
				Injected: "20 ms sleep in the shared load", InjectedNS: 20e6, Share: 0.97},
			Fix: "sleep 20 ms -> 2 ms", FixAtMost: 0.5, start: startShared},
		{Name: "once", Doc: "the first request of a tenant initialises it under sync.Once, the others wait", Proto: "http1", Load: slowOnlyLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*tenants).ask", Cause: "sleep", Via: []string{"lock"},
				Injected: "20 ms sleep in each tenant's initialisation", InjectedNS: 20e6, Share: 0.97},
			Fix: "sleep 20 ms -> 2 ms", FixAtMost: 0.6, FixInTail: true, start: startTenants},
		{Name: "retry", Doc: "a call fails twice; the handler backs off before each new try", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*retry).ask", Cause: "sleep", Injected: "back-off of 8 and 16 ms", LeastNS: 24e6, InjectedNS: 24e6, Share: 0.98},
			Fix:   "back-off 8 ms -> 1 ms", FixAtMost: 0.5, start: startRetry},
		{Name: "poll-loop", Doc: "the handler looks every 2 ms whether a result is there", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*pollLoop).ask", Cause: "sleep", Injected: "sleeps of 2 ms until the result is there, after 20 ms", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.97},
			Fix:   "the result is there after 2 ms", FixAtMost: 0.6, start: startPollLoop},
		{Name: "polled-flag", Doc: "the handler looks every 1 ms whether a goroutine, which takes 30 ms, has set a flag", Proto: "http1", Load: slowOnlyLoad(1),
			Truth: Truth{Kind: "http1", Group: "(*polledFlag).wait", Cause: "sleep", Injected: "sleeps of 1 ms until the flag is set, after 30 ms", LeastNS: 30e6, InjectedNS: 30e6, Share: 0.97},
			Fix:   "the flag is set after 3 ms", FixAtMost: 0.3, start: startPolledFlag},
		{Name: "hedge", Doc: "the first try never answers; a second one is started after a while, by a timer in a select", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*hedge).ask", Cause: "sleep", Injected: "15 ms until the second try", LeastNS: 15e6, InjectedNS: 15e6, Share: 0.97},
			Fix:   "15 ms -> 2 ms", FixAtMost: 0.5, start: startHedge},
		{Name: "nested", Doc: "a goroutine starts a goroutine that starts a goroutine that sleeps; each waits for the one it started", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*nested).ask", Cause: "sleep", Via: []string{"chan", "waitgroup", "chan"},
				Injected: "20 ms sleep three goroutines away", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.97},
			Fix: "20 ms -> 2 ms", FixAtMost: 0.5, start: startNested},
		{Name: "weighted", Doc: "golang.org/x/sync/semaphore: a weight of 2 for requests of 1, held over a sleep", Proto: "http1", Load: slowOnlyLoad(6),
			Truth: Truth{Kind: "http1", Group: "(*weighted).use", Cause: "sleep", Via: []string{"select"},
				Injected: "10 ms sleep in the semaphore, 6 clients for 2 places", LeastNS: 10e6, InjectedNS: 10e6, Share: 0.98},
			Fix: "2 places -> 8", FixAtMost: 0.6, start: startWeighted},
		{Name: "pubsub", Doc: "opening and closing a consumer waits for its goroutine, which dwells 100 ms and 200 ms in library code", Proto: "http1",
			Load: Load{Conns: 3, Rest: 2 * time.Millisecond, Paths: []Path{{Path: "/slow", Weight: 1, Slow: true}}},
			Truth: Truth{Kind: "http1", Group: "(*subscriber).sub", Cause: "sleep", Via: []string{"chan"},
				Injected: "200 ms before the offset fetch, 100 ms at release, both on the consumer's goroutine", LeastNS: 300e6, InjectedNS: 200e6, Share: 0.66},
			Fix: "both 5 ms", FixAtMost: 0.2, start: startSubscriber},
	}
}

type waitGroup struct{ d time.Duration }

func startWaitGroup(e *Env) (*Parts, error) {
	s := &waitGroup{e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.report)}, nil
}

func (s *waitGroup) report(w http.ResponseWriter, _ *http.Request) {
	var wg sync.WaitGroup
	var blamed time.Duration
	wg.Go(func() { blamed = s.prices() })
	wg.Go(func() { time.Sleep(time.Millisecond) })
	wg.Go(func() {})
	wg.Wait()
	answer(w, blamed)
}

func (s *waitGroup) prices() time.Duration {
	t := time.Now()
	time.Sleep(s.d) // truth: site waitgroup
	return time.Since(t)
}

type errGroup struct{ d time.Duration }

func startErrGroup(e *Env) (*Parts, error) {
	s := &errGroup{e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.report)}, nil
}

func (s *errGroup) report(w http.ResponseWriter, r *http.Request) {
	g, ctx := errgroup.WithContext(r.Context())
	g.SetLimit(4)
	var blamed time.Duration
	for i := range 4 {
		g.Go(func() error {
			if i == 2 {
				blamed = s.member()
			} else {
				time.Sleep(500 * time.Microsecond)
			}
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, blamed)
}

func (s *errGroup) member() time.Duration {
	t := time.Now()
	time.Sleep(s.d) // truth: site errgroup
	return time.Since(t)
}

// calls makes more calls for a request than it lets go at a time.
type calls struct{ limit int }

func startCalls(e *Env) (*Parts, error) {
	s := &calls{e.pickNumber(2, 8)}
	return &Parts{HTTP: withFast(s.report)}, nil
}

func (s *calls) report(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	var g errgroup.Group
	g.SetLimit(s.limit)
	for range 8 {
		g.Go(s.fetch)
	}
	if err := g.Wait(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, time.Since(t))
}

func (s *calls) fetch() error {
	time.Sleep(5 * time.Millisecond) // truth: site errgroup-limit
	return nil
}

type deadline struct{ d time.Duration }

func startDeadline(e *Env) (*Parts, error) {
	s := &deadline{e.pickDuration(25*time.Millisecond, 3*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

// ask answers when the deadline comes.
func (s *deadline) ask(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.d)
	defer cancel()
	var reply chan string // without a sender
	t := time.Now()
	select { // truth: site deadline
	case <-reply:
	case <-ctx.Done():
	}
	answer(w, time.Since(t))
}

type batcher struct {
	in       chan chan struct{}
	interval time.Duration
}

func startBatcher(e *Env) (*Parts, error) {
	s := &batcher{make(chan chan struct{}), e.pickDuration(50*time.Millisecond, 5*time.Millisecond)}
	go s.flush()
	return &Parts{HTTP: withFast(s.append)}, nil
}

func (s *batcher) append(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	ack := make(chan struct{})
	s.in <- ack
	<-ack
	answer(w, time.Since(t))
}

func (s *batcher) flush() {
	t := time.NewTicker(s.interval)
	defer t.Stop()
	var batch []chan struct{}
	for {
		select { // truth: site ticker-flush
		case ack := <-s.in:
			batch = append(batch, ack)
		case <-t.C:
			for _, ack := range batch {
				close(ack)
			}
			batch = batch[:0]
		}
	}
}

// batches gathers requests until the timer that the first one set.
type batches struct {
	mu    sync.Mutex
	acks  []chan struct{}
	after time.Duration
}

func startBatches(e *Env) (*Parts, error) {
	s := &batches{after: e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.add)}, nil
}

func (s *batches) add(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	ack := make(chan struct{})
	s.mu.Lock()
	if s.acks = append(s.acks, ack); len(s.acks) == 1 {
		time.AfterFunc(s.after, s.flush)
	}
	s.mu.Unlock()
	<-ack
	answer(w, time.Since(t))
}

func (s *batches) flush() {
	s.mu.Lock()
	acks := s.acks
	s.acks = nil
	s.mu.Unlock()
	for _, ack := range acks {
		close(ack)
	}
}

type limited struct{ lim *rate.Limiter }

func startLimited(e *Env) (*Parts, error) {
	s := &limited{rate.NewLimiter(rate.Limit(e.pickNumber(100, 2000)), 1)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *limited) ask(w http.ResponseWriter, r *http.Request) {
	t := time.Now()
	if err := s.lim.Wait(r.Context()); err != nil { // truth: site rate-limiter
		http.Error(w, err.Error(), http.StatusTooManyRequests)
		return
	}
	answer(w, time.Since(t))
}

type shared struct {
	group singleflight.Group
	d     time.Duration
}

func startShared(e *Env) (*Parts, error) {
	s := &shared{d: e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *shared) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.group.Do("config", s.load)
	answer(w, time.Since(t))
}

func (s *shared) load() (any, error) {
	time.Sleep(s.d) // truth: site singleflight
	return nil, nil
}

type tenants struct {
	mu       sync.Mutex
	requests int
	current  *tenant
	d        time.Duration
}

type tenant struct{ init sync.Once }

func startTenants(e *Env) (*Parts, error) {
	s := &tenants{d: e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

// ask serves a tenant; every eighth request changes the tenant.
func (s *tenants) ask(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	if s.requests%8 == 0 {
		s.current = new(tenant)
	}
	s.requests++
	t := s.current
	s.mu.Unlock()
	begin := time.Now()
	t.init.Do(s.open)
	answer(w, time.Since(begin))
}

func (s *tenants) open() {
	time.Sleep(s.d) // truth: site once
}

type retry struct{ first time.Duration }

func startRetry(e *Env) (*Parts, error) {
	s := &retry{e.pickDuration(8*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *retry) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	for try, wait := 0, s.first; try < 2; try, wait = try+1, 2*wait {
		time.Sleep(wait) // truth: site retry
	}
	answer(w, time.Since(t))
}

type pollLoop struct{ d time.Duration }

func startPollLoop(e *Env) (*Parts, error) {
	s := &pollLoop{e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *pollLoop) ask(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	for time.Since(t) < s.d {
		time.Sleep(2 * time.Millisecond) // truth: site poll-loop
	}
	answer(w, time.Since(t))
}

type polledFlag struct{ d time.Duration }

func startPolledFlag(e *Env) (*Parts, error) {
	s := &polledFlag{e.pickDuration(30*time.Millisecond, 3*time.Millisecond)}
	return &Parts{HTTP: withFast(s.wait)}, nil
}

func (s *polledFlag) wait(w http.ResponseWriter, _ *http.Request) {
	var done atomic.Bool
	time.AfterFunc(s.d, func() { done.Store(true) })
	t := time.Now()
	for !done.Load() {
		time.Sleep(time.Millisecond) // truth: site polled-flag
	}
	answer(w, time.Since(t))
}

type subscriber struct{ fetch, release time.Duration }

func startSubscriber(e *Env) (*Parts, error) {
	s := &subscriber{e.pickDuration(200*time.Millisecond, 5*time.Millisecond), e.pickDuration(100*time.Millisecond, 5*time.Millisecond)}
	return &Parts{HTTP: withFast(s.sub)}, nil
}

// sub is a short-lived subscription: open a consumer, take a message, close it.
func (s *subscriber) sub(w http.ResponseWriter, _ *http.Request) {
	c := consumer.Open(s.fetch, s.release)
	msg := <-c.Messages()
	c.Close()
	blame(w, c.FetchWait())
	fmt.Fprintln(w, msg)
}

type hedge struct{ after time.Duration }

func startHedge(e *Env) (*Parts, error) {
	s := &hedge{e.pickDuration(15*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *hedge) ask(w http.ResponseWriter, _ *http.Request) {
	answers := make(chan int, 2)
	blamed := s.first(answers)
	go func() { answers <- 2 }()
	<-answers
	answer(w, blamed)
}

// first waits for the first try, whose server is gone, as long as it may.
func (s *hedge) first(answers <-chan int) time.Duration {
	t := time.Now()
	select { // truth: site hedge
	case <-answers:
	case <-time.After(s.after):
	}
	return time.Since(t)
}

type nested struct{ d time.Duration }

func startNested(e *Env) (*Parts, error) {
	s := &nested{e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

func (s *nested) ask(w http.ResponseWriter, _ *http.Request) {
	c := make(chan time.Duration)
	go s.outer(c)
	answer(w, <-c)
}

func (s *nested) outer(c chan<- time.Duration) {
	var wg sync.WaitGroup
	var blamed time.Duration
	wg.Go(func() {
		inner := make(chan time.Duration)
		go s.inner(inner)
		blamed = <-inner
	})
	wg.Wait()
	c <- blamed
}

func (s *nested) inner(c chan<- time.Duration) {
	t := time.Now()
	time.Sleep(s.d) // truth: site nested
	c <- time.Since(t)
}

type weighted struct {
	sem *semaphorex.Weighted
	d   time.Duration
}

func startWeighted(e *Env) (*Parts, error) {
	s := &weighted{semaphorex.NewWeighted(int64(e.pickNumber(2, 8))), 10 * time.Millisecond}
	return &Parts{HTTP: withFast(s.use)}, nil
}

func (s *weighted) use(w http.ResponseWriter, r *http.Request) {
	t := time.Now()
	if err := s.sem.Acquire(r.Context(), 1); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	time.Sleep(s.d) // truth: site weighted
	s.sem.Release(1)
	answer(w, time.Since(t))
}
