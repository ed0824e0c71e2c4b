package worstcase

import (
	"bytes"
	"context"
	"math"
	"regexp"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/explain"
	"github.com/whylate/whylate/internal/explain/pass"
	"github.com/whylate/whylate/internal/output/export"
	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/testing/testfull"
)

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must.Do(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCPUIsLinear: explain and every export need at most maxGrowth times the CPU time and allocations
// for a trace of twice the length.
func TestCPUIsLinear(t *testing.T) {
	testfull.Need(t, "minutes, and measures CPU time")
	for _, s := range append(slices.Clone(requestShapes), volumeShapes...) {
		t.Run(s.name, func(t *testing.T) {
			n := 8000
			if s.name == "relay" {
				n = 1000 // this shape has long paths, and exports write all of them
			}
			small, large := build(t, s.make, n), build(t, s.make, 2*n)
			run := func(name string, do func(data []byte) error) {
				measure := func(data []byte) (time.Duration, uint64) {
					best, bytes := time.Duration(math.MaxInt64), uint64(math.MaxUint64)
					for range 3 { // the minimum, because other processes use the machine, too
						runtime.GC()
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						start := cpuTime(t)
						must.Do(t, do(data), name)
						best = min(best, cpuTime(t)-start)
						runtime.ReadMemStats(&after)
						bytes = min(bytes, after.TotalAlloc-before.TotalAlloc)
					}
					return best, bytes
				}
				smallTime, smallBytes := measure(small)
				largeTime, largeBytes := measure(large)
				growth := func() (times, memory float64) {
					return float64(largeTime) / float64(smallTime), float64(largeBytes) / float64(smallBytes)
				}
				times, memory := growth()
				// The result depends on which worker walks a long request, whose buffers then grow: 239 or 312 MB for pingpong.
				// Nonlinear growth occurs in every attempt.
				for attempt := 0; attempt < 4 && (times > maxGrowth || memory > maxGrowth); attempt++ {
					t1, b1 := measure(small)
					t2, b2 := measure(large)
					smallTime, smallBytes, largeTime, largeBytes = min(smallTime, t1), min(smallBytes, b1), min(largeTime, t2), min(largeBytes, b2)
					times, memory = growth()
				}
				t.Logf("%s: %v and %v (%.2f times), %d and %d MB allocated (%.2f times)", name, smallTime, largeTime, times, smallBytes>>20, largeBytes>>20, memory)
				check.False(t, times > maxGrowth && largeTime > 500*time.Millisecond,
					"%s of twice as much takes %.1f times the CPU", name, times)
				check.True(t, memory <= maxGrowth, "%s of twice as much allocates %.1f times the memory", name, memory)
			}
			run("explain", func(data []byte) error {
				_, err := explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{})
				return err
			})
			run("explain --request .", func(data []byte) error {
				_, err := explain.Explain(context.Background(), bytes.NewReader(data), explain.Options{Selection: pass.Selection{Request: regexp.MustCompile(".")}})
				return err
			})
			for _, f := range export.Formats() {
				run("export "+f.Name, func(data []byte) error { return exportTrace(f, data) })
			}
		})
	}
}
