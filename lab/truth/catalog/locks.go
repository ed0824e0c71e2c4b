package catalog

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

func lockServices() []*Service {
	return []*Service{
		{Name: "fsync-lock", Doc: "a mutex is held while a journal is synced to disk", Proto: "http1", Load: mixedLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*journal).commit", Cause: "syscall", Via: []string{"lock"},
				Injected: "syncs of a file until 8 ms have passed, under the mutex", LeastNS: 8e6, InjectedNS: 8e6, ShareMin: 0.6,
				Doubt: "where a sync costs next to nothing (memory file systems) much of the loop is the service's own code, and the machine's own disk decides"},
			Fix: "one sync a commit", FixAtMost: 0.9, start: startJournal},
		{Name: "rwmutex-writer", Doc: "readers wait for a writer that computes with the lock held", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*index).lookup", Cause: "cpu", Via: []string{"lock"},
				Injected: "15 ms of computing under the write lock, every 30 ms", InjectedNS: 15e6, Share: 0.94},
			Fix: "compute outside the lock", FixAtMost: 0.5, FixInTail: true, start: startIndex},
		{Name: "rwmutex-reader", Doc: "readers wait for a writer that has next to nothing to do, but waits for a reader that computes", Proto: "http1", Load: mixedLoad(3),
			Truth: Truth{Kind: "http1", Group: "(*board).show", Cause: "cpu", Via: []string{"lock", "lock"},
				Injected: "15 ms of computing under the read lock, every 30 ms; a write each 2 ms", InjectedNS: 15e6, Share: 0.94},
			Fix: "compute outside the lock", FixAtMost: 0.5, FixInTail: true, start: startBoard},
		{Name: "mutex-cpu", Doc: "each request computes for 4 ms under one mutex", Proto: "http1", Load: slowOnlyLoad(4),
			Truth: Truth{Kind: "http1", Group: "(*ledger).post", Cause: "cpu", Via: []string{"lock"},
				Injected: "4 ms of computing under the mutex, 4 clients", LeastNS: 4e6, InjectedNS: 4e6, Share: 0.95},
			Fix: "4 ms -> 1 ms", FixAtMost: 0.6, start: startLedger},
		{Name: "h2-lock", Doc: "HTTP/2: six streams of one connection queue for a mutex held over a sleep", Proto: "h2", Load: slowOnlyLoad(6),
			Truth: Truth{Kind: "http2", Group: "(*register).entry", Cause: "sleep", Via: []string{"lock"},
				Injected: "5 ms sleep under the mutex, 6 streams", LeastNS: 5e6, InjectedNS: 5e6, Share: 0.98},
			Fix: "5 ms -> 1 ms", FixAtMost: 0.6, start: startRegister},
		{Name: "lock-chain", Doc: "the handler waits for lock A, whose holder waits for lock B, whose holder sleeps", Proto: "http1", Load: mixedLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*chain).ask", Cause: "sleep", Via: []string{"lock", "lock"},
				Injected: "20 ms sleep under lock B", LeastNS: 20e6, InjectedNS: 20e6, Share: 0.98},
			Fix: "20 ms -> 2 ms", FixAtMost: 0.5, start: startChain},
	}
}

// spin computes until d of wall time has passed, so that its length is known.
// It is inlined nowhere and calls nothing but the clock.
//
//go:noinline
func spin(d time.Duration) {
	var x uint64 = 88172645463325252
	for end := time.Now().Add(d); time.Now().Before(end); {
		for range 500 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
	}
	runtime.KeepAlive(x)
}

type journal struct {
	mu      sync.Mutex
	f       *os.File
	minSync time.Duration
}

func startJournal(e *Env) (*Parts, error) {
	f, err := os.Create(filepath.Join(e.Dir, "journal"))
	if err != nil {
		return nil, fmt.Errorf("creating the journal: %w", err)
	}
	s := &journal{f: f, minSync: e.pickDuration(8*time.Millisecond, 0)}
	return &Parts{HTTP: withFast(s.commit)}, nil
}

func (s *journal) commit(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.Lock()
	err := s.sync()
	s.mu.Unlock()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, time.Since(t))
}

// sync repeats until the injected time has passed, because the duration of one sync depends on the
// machine.
func (s *journal) sync() error {
	block := make([]byte, 4096)
	if _, err := s.f.WriteAt(block, 0); err != nil {
		return err
	}
	for t := time.Now(); ; {
		if err := s.f.Sync(); err != nil { // truth: site fsync-lock
			return err
		}
		if time.Since(t) >= s.minSync {
			return nil
		}
	}
}

type index struct {
	mu      sync.RWMutex
	words   map[string]int
	outside bool
}

func startIndex(e *Env) (*Parts, error) {
	s := &index{words: map[string]int{"word": 1}, outside: e.Fixed}
	go s.maintain()
	return &Parts{HTTP: withFast(s.lookup)}, nil
}

func (s *index) lookup(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.RLock()
	blamed := time.Since(t)
	n := s.words["word"]
	s.mu.RUnlock()
	blame(w, blamed)
	fmt.Fprintln(w, n)
}

func (s *index) maintain() {
	for range time.Tick(30 * time.Millisecond) {
		s.rebuild()
	}
}

func (s *index) rebuild() {
	if s.outside {
		spin(15 * time.Millisecond)
		s.mu.Lock()
		s.words["word"]++
		s.mu.Unlock()
		return
	}
	s.mu.Lock()
	spin(15 * time.Millisecond) // truth: site rwmutex-writer
	s.words["word"]++
	s.mu.Unlock()
}

// board is read by requests and by a report that takes long, and written often.
type board struct {
	mu      sync.RWMutex
	scores  map[string]int
	outside bool
}

func startBoard(e *Env) (*Parts, error) {
	s := &board{scores: map[string]int{"us": 1}, outside: e.Fixed}
	go s.reports()
	go s.writes()
	return &Parts{HTTP: withFast(s.show)}, nil
}

func (s *board) show(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.RLock()
	blamed := time.Since(t)
	n := s.scores["us"]
	s.mu.RUnlock()
	blame(w, blamed)
	fmt.Fprintln(w, n)
}

func (s *board) writes() {
	for range time.Tick(2 * time.Millisecond) {
		s.mu.Lock()
		s.scores["us"]++
		s.mu.Unlock()
	}
}

func (s *board) reports() {
	for range time.Tick(30 * time.Millisecond) {
		s.report()
	}
}

func (s *board) report() {
	if s.outside {
		s.mu.RLock()
		runtime.KeepAlive(s.scores["us"])
		s.mu.RUnlock()
		spin(15 * time.Millisecond)
		return
	}
	s.mu.RLock()
	spin(15 * time.Millisecond) // truth: site rwmutex-reader
	runtime.KeepAlive(s.scores["us"])
	s.mu.RUnlock()
}

type ledger struct {
	mu sync.Mutex
	d  time.Duration
}

func startLedger(e *Env) (*Parts, error) {
	s := &ledger{d: e.pickDuration(4*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.post)}, nil
}

func (s *ledger) post(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.Lock()
	spin(s.d) // truth: site mutex-cpu
	s.mu.Unlock()
	answer(w, time.Since(t))
}

type register struct {
	mu sync.Mutex
	d  time.Duration
}

func startRegister(e *Env) (*Parts, error) {
	s := &register{d: e.pickDuration(5*time.Millisecond, time.Millisecond)}
	return &Parts{HTTP: withFast(s.entry)}, nil
}

func (s *register) entry(w http.ResponseWriter, _ *http.Request) {
	t := time.Now()
	s.mu.Lock()
	time.Sleep(s.d) // truth: site h2-lock
	s.mu.Unlock()
	answer(w, time.Since(t))
}

type chain struct{ d time.Duration }

func startChain(e *Env) (*Parts, error) {
	s := &chain{e.pickDuration(20*time.Millisecond, 2*time.Millisecond)}
	return &Parts{HTTP: withFast(s.ask)}, nil
}

// ask makes its own locks and holders, one after the other, so that it always
// meets the whole chain.
func (s *chain) ask(w http.ResponseWriter, _ *http.Request) {
	l := &links{d: s.d}
	t := time.Now()
	holding := make(chan struct{})
	go l.holdB(holding)
	<-holding
	go l.holdA(holding)
	<-holding
	l.a.Lock()
	blamed := time.Since(t)
	l.a.Unlock()
	answer(w, blamed)
}

type links struct {
	a, b sync.Mutex
	past time.Time // when holder A had both
	d    time.Duration
}

func (l *links) holdB(holding chan<- struct{}) {
	l.b.Lock()
	holding <- struct{}{}
	time.Sleep(l.d) // truth: site lock-chain
	l.b.Unlock()
}

func (l *links) holdA(holding chan<- struct{}) {
	l.a.Lock()
	holding <- struct{}{}
	l.b.Lock()
	l.past = time.Now()
	l.b.Unlock()
	l.a.Unlock()
}
