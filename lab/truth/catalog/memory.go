package catalog

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// memoryServices are late through garbage, its collector, or the disk.
func memoryServices() []*Service {
	return []*Service{
		{Name: "debug-logs", Doc: "health checks format debug logs that nobody wants: 20 collections a second of a heap that is small", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*checker).check", Cause: "cpu", OrCauses: []string{"gc-assist", "gc-wait", "sched"},
				OrSites:  []Site{{Func: packagePath + ".debugf"}, {Func: packagePath + ".(*target).String"}, {Func: packagePath + ".(*checker).check"}},
				Injected: "formatting for a level that is off, over 10,000 live targets", Unmeasured: true, ShareMin: 0.1,
				Doubt: "formatting, helping to mark and waiting for a P behind mark workers share the time by the machine's speed"},
			Fix: "the level is asked first", FixAtMost: 0.5, start: startChecker},
		{Name: "gc-churn", Doc: "handlers replace parts of a cache of 100 MiB: more garbage than the collector keeps up with, at the usual GOGC", Proto: "http1", Load: slowOnlyLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*churned).fill", Cause: "gc-assist", OrCauses: []string{"gc-wait", "sched", "cpu"},
				OrSites:  []Site{{Func: packagePath + ".list"}},
				Injected: "8 MiB of garbage a request beside 1.6 million live objects", Unmeasured: true, ShareMin: 0.1,
				Doubt: "as gc-assist"},
			Fix: "existing buffers are refilled, nothing is allocated", FixAtMost: 0.6, start: startChurned},
		{Name: "gc-workers", Doc: "handlers only compute, on one P; marking a large cache takes a quarter of it, in turns of its own", Proto: "http1", Load: slowOnlyLoad(1), Procs: 1,
			Truth: Truth{Kind: "http1", Group: "(*bystander).compute", Cause: "cpu", OrCauses: []string{"sched"},
				OrSites:  []Site{{Func: packagePath + ".work"}, {Func: packagePath + ".(*bystander).compute"}, connServeSite()},
				Injected: "a mark worker on the only P, for a part of every 100 ms", Unmeasured: true, ShareMin: 0.1,
				Doubt: "how long a turn of the worker lasts is the runtime's affair"},
			Fix: "a cache without pointers", start: startBystander},
		{Name: "gc-forced-beside", Doc: "as gc-workers, but nothing is allocated: another goroutine forces collections again and again", Proto: "http1", Load: slowOnlyLoad(1), Procs: 1,
			Truth: Truth{Kind: "http1", Group: "(*trimmed).compute", Cause: "cpu", OrCauses: []string{"sched"}, Site: Site{Func: packagePath + ".(*trimmed).compute"},
				OrSites:  []Site{{Func: packagePath + ".work"}, connServeSite()},
				Injected: "marking a million objects, 20 ms after the last time, by order", Unmeasured: true, ShareMin: 0.1,
				Doubt: "how long a turn of the worker lasts is the runtime's affair"},
			Fix: "no forced collections", start: startTrimmed},
		{Name: "fsync", Doc: "each request syncs a file of its own to disk", Proto: "http1", Load: mixedLoad(2),
			Truth: Truth{Kind: "http1", Group: "(*files).save", Cause: "syscall", Injected: "syncs until 8 ms have passed", LeastNS: 8e6, InjectedNS: 8e6, Share: 0.97},
			Fix:   "no sync", FixAtMost: 0.5, start: startFiles},
	}
}

func connServeSite() Site { return Site{Func: "net/http.(*conn).serve"} }

// A target is a health checker's state of one target.
type target struct {
	name    string
	addr    *string
	results [8]*result
}

type result struct {
	time time.Time
	took time.Duration
	err  error
}

func (t *target) String() string {
	s := t.name + " " + *t.addr
	for _, r := range t.results {
		if r != nil {
			s += fmt.Sprintf(" %v:%v/%v", r.time.UnixMilli(), r.took, r.err)
		}
	}
	return s
}

type checker struct {
	targets     []*target
	next        atomic.Int64
	debug       bool
	checksLevel bool // check the level before formatting a line
	out         io.Writer
}

func startChecker(e *Env) (*Parts, error) {
	s := &checker{checksLevel: e.Fixed, out: io.Discard}
	for i := range 10_000 {
		addr := fmt.Sprintf("10.0.%d.%d:80", i/250, i%250)
		t := &target{name: fmt.Sprintf("backend-%d", i), addr: &addr}
		for k := range t.results {
			t.results[k] = &result{time: time.Now(), took: time.Duration(k) * time.Millisecond}
		}
		s.targets = append(s.targets, t)
	}
	return &Parts{HTTP: withFast(s.check)}, nil
}

// check checks a hundred targets.
func (s *checker) check(w http.ResponseWriter, _ *http.Request) {
	from := s.next.Add(100)
	for i := range int64(100) {
		t := s.targets[(from+i)%int64(len(s.targets))]
		if s.checksLevel && !s.debug {
			continue
		}
		debugf(s.out, s.debug, "checked %v in %v", t, t.results[0].took)
	}
	answer(w, 0)
}

// debugf formats first and asks for the level then.
func debugf(w io.Writer, on bool, format string, args ...any) {
	line := fmt.Sprintf(format, args...) // truth: site debug-logs
	if on {
		io.WriteString(w, line)
	}
}

type churned struct {
	live  [][]*object
	next  atomic.Int64
	fixed bool
}

func startChurned(e *Env) (*Parts, error) {
	debug.SetGCPercent(100)
	s := &churned{fixed: e.Fixed}
	for range 16 {
		var part []*object
		for range 50 {
			part = append(part, list(2000))
		}
		s.live = append(s.live, part)
	}
	return &Parts{HTTP: withFast(s.fill)}, nil
}

// fill replaces one part of the cache, or uses it again. Requests that fill
// the same part at once only lose the other's.
func (s *churned) fill(w http.ResponseWriter, _ *http.Request) {
	part := s.live[s.next.Add(1)%int64(len(s.live))]
	for i := range part {
		if i%2 == 0 {
			continue
		}
		if s.fixed {
			refill(part[i])
		} else {
			part[i] = churn()
		}
	}
	answer(w, 0)
}

//go:noinline
func churn() *object {
	var head *object
	for range 2000 {
		head = &object{next: head} // truth: site gc-churn
	}
	return head
}

func refill(o *object) {
	for ; o != nil; o = o.next {
		runtime.KeepAlive(o)
	}
}

type bystander struct {
	live  []*object
	plain []object
	buf   []byte
}

func startBystander(e *Env) (*Parts, error) {
	s := new(bystander)
	if e.Fixed {
		s.plain = make([]object, 1000)
	} else {
		for range 500 {
			s.live = append(s.live, list(2000))
		}
	}
	go s.refresh()
	return &Parts{HTTP: withFast(s.compute)}, nil
}

// refresh reads 250 MiB a second into fresh buffers: that costs it little, but a
// cycle begins several times a second.
func (s *bystander) refresh() {
	for {
		s.buf = make([]byte, 256<<10) // garbage at the next turn
		time.Sleep(time.Millisecond)
	}
}

// compute computes a few milliseconds and yields on its way.
func (s *bystander) compute(w http.ResponseWriter, _ *http.Request) {
	for range 40 {
		work() // truth: site gc-workers
		runtime.Gosched()
	}
	answer(w, 0)
}

// trimmed gives memory back to the system all the time.
type trimmed struct{ live []*object }

func startTrimmed(e *Env) (*Parts, error) {
	s := new(trimmed)
	for range 500 {
		s.live = append(s.live, list(2000))
	}
	if !e.Fixed {
		go s.trim()
	}
	return &Parts{HTTP: withFast(s.compute)}, nil
}

func (s *trimmed) trim() {
	for range time.Tick(20 * time.Millisecond) {
		debug.FreeOSMemory()
	}
}

func (s *trimmed) compute(w http.ResponseWriter, _ *http.Request) {
	for range 40 {
		work()
		runtime.Gosched()
	}
	answer(w, 0)
}

type files struct {
	dir     string
	next    atomic.Int64
	minSync time.Duration
	sync    bool
}

func startFiles(e *Env) (*Parts, error) {
	s := &files{dir: e.Dir, minSync: e.pickDuration(8*time.Millisecond, 0), sync: !e.Fixed}
	return &Parts{HTTP: withFast(s.save)}, nil
}

func (s *files) save(w http.ResponseWriter, _ *http.Request) {
	f, err := os.Create(filepath.Join(s.dir, fmt.Sprint(s.next.Add(1)%8)))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 4096)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	t := time.Now()
	if s.sync {
		err = s.syncs(f)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, time.Since(t))
}

// syncs repeats until the injected time has passed, because the duration of one sync depends on the
// machine.
func (s *files) syncs(f *os.File) error {
	for t := time.Now(); ; {
		if err := f.Sync(); err != nil { // truth: site fsync
			return err
		}
		if time.Since(t) >= s.minSync {
			return nil
		}
	}
}
