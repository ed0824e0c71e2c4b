package tune

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/service/internal/check"
	"github.com/whylate/whylate/service/internal/must"
	"github.com/whylate/whylate/service/internal/quotatest"
)

// A load is the work of a child process in a group with a memory limit.
type load struct {
	// Memory and GC are the tuner's modes.
	Memory, GC Mode
	// NoLimit decides about GOMEMLIMIT but does not set it. After Warm the tuner stops
	// polling, with the highest GOGC.
	NoLimit bool
	// FileMiB is the size of a file that is read repeatedly, by read(2), so
	// that the page cache counts it as active.
	FileMiB int
	// Unmanaged is memory outside of Go, in MiB.
	Unmanaged int
	// From and To are the live heap in MiB: From during Warm, To during Run.
	From, To int
	// Ramp is the time of the growth from From to To.
	Ramp, Warm, Run time.Duration
	// Rate is the number of MiB allocated a second.
	Rate int
}

// A loadResult is a child's output.
type loadResult struct {
	GOGC        int     // the highest
	Limit       int64   // the lowest
	Footprint   int64   // the highest that the group was charged for without cache that can be dropped, after Warm
	Collections float64 // for each GiB allocated in Run
	Changes     int     // of GOGC
}

// A node contains a pointer, so that the collector has to mark it.
type node struct {
	next *node
	_    [1000]byte
}

// runLoad runs a load in this process.
func runLoad(l load) loadResult {
	var result loadResult
	var mu sync.Mutex
	result.Limit = noMemoryLimit
	k := realRuntime()
	if l.NoLimit {
		set := int64(noMemoryLimit)
		k.setMemory = func(n int64) { set = n }
		k.observe = func(s goStats) goStats {
			s.memoryLimit = set
			return s
		}
	}
	t := newTuner(Options{
		Procs: ModeOff, Memory: l.Memory, GC: l.GC, Logger: slog.New(slog.DiscardHandler),
		OnEvent: func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			if e.Action != ActionSet {
				return
			}
			switch e.Knob {
			case KnobGOGC:
				result.GOGC = max(result.GOGC, int(e.To))
				result.Changes++
			case KnobGOMEMLIMIT:
				result.Limit = min(result.Limit, e.To)
			}
		},
	}, k, environment{})
	if l.NoLimit {
		t.poll()
		go t.run() // without polls after collections
	} else {
		t.start()
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	if l.FileMiB > 0 {
		name := createFile(l.FileMiB)
		wg.Add(1)
		go func() {
			defer wg.Done()
			reread(name, stop)
			os.Remove(name)
		}()
	}
	if l.Unmanaged > 0 {
		defer runtime.KeepAlive(mapMemory(l.Unmanaged))
	}
	var heads [64]*node
	held, total := 0, 0
	hold := func(mib int) {
		for ; held < mib<<10; held++ {
			heads[held%64] = &node{next: heads[held%64]}
			total += 1024
		}
	}
	churn := func(d time.Duration, to int) {
		start, from, churnStart := total, held>>10, time.Now()
		for {
			passed := time.Since(churnStart)
			if passed >= d {
				return
			}
			if ramp := l.Ramp; to > from && ramp > 0 {
				hold(min(to, from+int(float64(to-from)*float64(passed)/float64(ramp))))
			} else {
				hold(to)
			}
			if total > start+int(passed.Seconds()*float64(l.Rate<<20)) {
				time.Sleep(time.Millisecond)
				continue
			}
			for range 64 {
				garbage = make([]byte, 16<<10)
				total += 16 << 10
			}
			if s := t.State(); passed > d/2 && s.MemoryUsed > 0 {
				result.Footprint = max(result.Footprint, s.MemoryUsed)
			}
		}
	}
	churn(l.Warm, l.From)
	if l.NoLimit {
		close(t.stop) // a poll that comes too late has no effect
		<-t.done
		if l.GC == ModeApply {
			debug.SetGCPercent(maxGOGC)
		}
	}
	result.Footprint = 0
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	before, n := total, gc.NumGC
	churn(l.Run, l.To)
	debug.ReadGCStats(&gc)
	result.Collections = float64(gc.NumGC-n) / (float64(total-before) / (1 << 30))
	close(stop)
	wg.Wait()
	if !l.NoLimit {
		t.Stop()
	}
	runtime.KeepAlive(heads)
	return result
}

// runLoadInGroup runs a load in a group with a limit in MiB.
func runLoadInGroup(t *testing.T, limit int64, l load) (r loadResult, killed bool) {
	t.Helper()
	g := quotatest.NewMemory(t, limit*mib)
	if l.Rate == 0 {
		l.Rate = 400
	}
	b := must.Have(json.Marshal(l))(t)
	exe, err := os.Executable()
	must.Do(t, err)
	cmd := g.Command(exe)
	cmd.Env = append(os.Environ(), childVariable+"=endure", "WHYLATE_TUNE_TEST_LOAD="+string(b), "GOGC=", "GOMEMLIMIT=", "GOMAXPROCS=2")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if errs.Len() > 0 {
		t.Logf("%s", errs.Bytes())
	}
	kills := g.Kills(t)
	if quotatest.Killed(err) && kills > 0 {
		return r, true
	}
	must.Do(t, err, "child")
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("child said %q: %v", out.Bytes(), err)
	}
	return r, false
}

// TestServicesSurvive runs services in real groups: each survives with the policy
// applied. The kernel kills each if the limit is decided but not set, and there are
// no polls after collections.
func TestServicesSurvive(t *testing.T) {
	if os.Getenv("WHYLATE_FULL") == "" {
		t.Skip("takes a minute and kills processes: WHYLATE_FULL=1 runs it")
	}
	const s = time.Second
	for _, c := range []struct {
		name  string
		limit int64
		load
		// check checks more than the survival.
		check func(loadResult) string
	}{{
		"page cache in use is not other memory", 256,
		load{Memory: ModeApply, GC: ModeOff, FileMiB: 157, From: 30, To: 146, Warm: 2 * s, Run: 4 * s, Ramp: 3 * s},
		func(r loadResult) string { return atLeast("the lowest limit in MiB", float64(r.Limit/mib), 200) },
	}, {
		"a small container has a limit", 64,
		load{Memory: ModeApply, GC: ModeOff, From: 30, To: 30, Warm: s, Run: 2 * s},
		func(r loadResult) string { return atLeast("the lowest limit in MiB", float64(r.Limit/mib), 40) },
	}, {
		"a live heap that grows by a step while GOGC is raised", 512,
		load{Memory: ModeObserve, GC: ModeApply, From: 60, To: 190, Warm: 6500 * time.Millisecond, Run: 6 * s, Rate: 400},
		func(r loadResult) string { return atLeast("the highest GOGC", float64(r.GOGC), 200) },
	}, {
		"C memory is left room for", 256,
		load{Memory: ModeApply, GC: ModeOff, Unmanaged: 96, From: 30, To: 90, Warm: s, Run: 4 * s, Ramp: 2 * s},
		func(r loadResult) string { return atMost("the footprint in MiB", float64(r.Footprint/mib), 245) },
	}} {
		t.Run(c.name, func(t *testing.T) {
			r, killed := runLoadInGroup(t, c.limit, c.load)
			must.False(t, killed, "killed")
			t.Logf("lowest limit %s, highest GOGC %d (%d changes), footprint %s, %.0f collections a GiB", bytesText(r.Limit), r.GOGC, r.Changes, bytesText(r.Footprint), r.Collections)
			if problem := c.check(r); problem != "" {
				t.Error(problem)
			}
			c.load.NoLimit = true
			// Whether it dies depends on where in a collection's cycle the heap
			// grows: one death of three shows the danger.
			for range 3 {
				if _, killed := runLoadInGroup(t, c.limit, c.load); killed {
					return
				}
			}
			t.Error("survives three times without a limit as well: this test proves nothing")
		})
	}
}

// TestTheShareOfMemoryIsKept tests that a service with a raised GOGC stays within its
// share of the memory.
func TestTheShareOfMemoryIsKept(t *testing.T) {
	if os.Getenv("WHYLATE_FULL") == "" {
		t.Skip("takes some seconds in a real group: WHYLATE_FULL=1 runs it")
	}
	r, killed := runLoadInGroup(t, 512, load{Memory: ModeApply, GC: ModeApply, From: 60, To: 60, Warm: 4 * time.Second, Run: 4 * time.Second})
	t.Logf("highest GOGC %d, footprint %s of 512 MiB", r.GOGC, bytesText(r.Footprint))
	check.True(t, !killed && r.GOGC >= 300 && r.Footprint <= 370*mib && r.Footprint >= 250*mib,
		"killed %v, highest GOGC %d, footprint %s; want 300 or more, and about 358 MiB, 70 %%", killed, r.GOGC, bytesText(r.Footprint))
}

func atLeast(name string, got, want float64) string {
	if got >= want {
		return ""
	}
	return fmt.Sprintf("%s is %.0f, want at least %.0f", name, got, want)
}

func atMost(name string, got, want float64) string {
	if got <= want {
		return ""
	}
	return fmt.Sprintf("%s is %.0f, want at most %.0f", name, got, want)
}

// createFile creates a file of this size in MiB.
func createFile(mib int) string {
	f, err := os.CreateTemp("", "whylate-tune-")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for range mib {
		if _, err := f.Write(block); err != nil {
			panic(err)
		}
	}
	if err := f.Sync(); err != nil { // dirty pages cannot be dropped at once
		panic(err)
	}
	return f.Name()
}

// reread reads a file repeatedly until stop is closed.
func reread(name string, stop <-chan struct{}) {
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	block := make([]byte, 64<<10)
	for {
		select {
		case <-stop:
			return
		default:
		}
		if n, err := f.Read(block); n == 0 || err != nil {
			if _, err := f.Seek(0, 0); err != nil {
				panic(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// mapMemory maps and touches memory outside of Go, as C code does. mib is its size
// in MiB.
func mapMemory(mib int) []byte {
	b, err := syscall.Mmap(-1, 0, mib<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return b
}
