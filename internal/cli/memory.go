package cli

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/whylate/whylate/internal/output/words"
	"github.com/whylate/whylate/report"
)

// defaultMemoryLimit limits the heap as long as its live data allow it: with the collector's default pace it would grow to
// twice the live data. Nearly all live data are columns without pointers, so a collection costs little: on a trace of 30 MB
// with 110 MB of live data, 164 MB were resident instead of 205 with a limit of 240 MB, for 12 collections instead of 9.
const defaultMemoryLimit = 160 << 20

// initialPace is the collector's pace (GOGC) until the heap reaches the limit. With 100, a trace of 6 MB took ten collections, six of them of less
// than 20 MB of live data, and 6 to 10 % more time.
const initialPace = 200

// limitMemory limits the process's memory until restore is called. max is in bytes, 0 for no limit of the user. adjust must be called at intervals:
// the limit follows the live data, because the collector runs without pause if they nearly reach the limit (150 cycles and a quarter of the CPU on a
// trace of 84 MB with 305 MB of live data, to save 60 MB). A limit of the user (max above 0, or GOMEMLIMIT in the environment) is kept, unless live
// data alone exceed max: then the collector cannot keep it (29 s of CPU instead of 3 on a million goroutines), and restore returns by how many bytes
// it was exceeded.
func limitMemory(max int64) (adjust func(), restore func() (excess int64)) {
	if max == 0 && os.Getenv("GOMEMLIMIT") != "" {
		return func() {}, func() int64 { return 0 }
	}
	limit := int64(defaultMemoryLimit)
	needed := func(m *heap) int64 { return comfortableLimit(m.live) }
	pace := -1
	if max == 0 {
		useHugePages()
		if os.Getenv("GOGC") == "" {
			pace = debug.SetGCPercent(initialPace)
		}
	} else {
		needed = (*heap).lowestLimit
		// The rest is the program's text, threads' stacks and memory that the runtime does not count.
		limit = max - max/8
	}
	before := debug.SetMemoryLimit(limit)
	var mu sync.Mutex
	m := newHeap()
	adjust = func() {
		mu.Lock()
		defer mu.Unlock()
		m.read()
		if n := needed(m); n > limit {
			limit = n
			debug.SetMemoryLimit(limit)
		}
	}
	// Allocations after the last byte was read count, too: with 32,000 groups of one request, the report has most of the live data, and
	// with the limit before it the collector took two thirds of the CPU.
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(adjustEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				adjust()
			case <-stop:
				return
			}
		}
	})
	return adjust, func() int64 {
		close(stop)
		ended.Wait()
		debug.SetMemoryLimit(before)
		if pace >= 0 {
			debug.SetGCPercent(pace)
		}
		if max == 0 {
			return 0
		}
		return limit - max
	}
}

// adjustEvery is the interval at which the limit is compared with the live data if nothing calls adjust.
const adjustEvery = 20 * time.Millisecond

// heap is the runtime's statistics of memory.
type heap struct {
	live    int64 // live data found by the last collection
	rest    int64 // memory within the limit that is not the heap: the collector's tables, stacks
	samples []metrics.Sample
}

// newHeap returns a reader of this process's heap metrics. The values are 0 until read is called.
func newHeap() *heap {
	m := &heap{}
	// Unused memory in the heap's spans is no part of the rest: the next allocations use it.
	for _, name := range [...]string{"/gc/heap/live:bytes", "/memory/classes/total:bytes", "/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/released:bytes"} {
		m.samples = append(m.samples, metrics.Sample{Name: name})
	}
	return m
}

// read sets live, the bytes that survived the last garbage collection, and rest, the bytes of the runtime's memory outside of
// the heap.
func (m *heap) read() {
	metrics.Read(m.samples)
	sample := func(i int) int64 {
		if v := m.samples[i].Value; v.Kind() == metrics.KindUint64 {
			return int64(v.Uint64())
		}
		return 0 // the runtime does not report it
	}
	m.live = sample(0)
	m.rest = max(sample(1)-sample(2)-sample(3)-sample(4)-sample(5), 0)
}

// lowestLimit returns the lowest limit with which the collector can work: a sixteenth of the live data may be allocated
// between two collections. The runtime subtracts from a limit the memory that is not the heap, and then 3 %
// (runtime/mgcpacer.go, memoryLimitHeapGoal). A limit of a sixteenth above live data left nothing after that, and 200,000
// requests open at the same time took 254 collections instead of 34.
func (m *heap) lowestLimit() int64 {
	goal := m.live + m.live/16
	return goal + goal/32 + m.rest
}

// comfortableLimit returns the limit with which the collector works at a tolerable pace over this much live data. Half of the
// additional memory was measured to save 30 MB of 265 for twice as many collections, which cost a tenth of the CPU if other
// programs need it, too.
func comfortableLimit(live int64) int64 { return live + live/3 }

// warnOfExcess adds a warning to a report that --max-memory was exceeded.
func warnOfExcess(rep *report.Report, excess int64) {
	if rep != nil && excess > 0 {
		rep.Input.Warnings = append(rep.Input.Warnings, report.Warning{Code: "max-memory", Text: fmt.Sprintf(
			"the limit was raised by %s above --max-memory, because the trace needs that much at one time; a shorter trace, or --from and --to, need less", words.Bytes(excess))})
	}
}
