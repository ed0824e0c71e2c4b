package request

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestTimerIterations: iterations that a timer begins and that do nothing are observed in bulk, until one does something, and are the same
// as one by one. If a goroutine does nothing else in a generation, none of its events is visited.
func TestTimerIterations(t *testing.T) {
	const n = 3 * chunkSize
	for _, other := range []int{-1, n / 2, n - 1} {
		builder := tracetext.New(26)
		worker, waker := builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(7)
		var want []Unit
		for i := range n {
			wake := int64(1000 + 10_000*i)
			if i == n/3 {
				builder.NextGeneration(wake - 1000)
			}
			end := wake + 200 + int64(i%7)*50
			waker.Unblock(wake, 7)
			worker.Start(wake+100, 7)
			if i == other {
				worker.Syscall(wake+120, "syscall.write", "main.work", "main.loop")
				worker.SyscallEnd(wake + 150)
			}
			if worker.Block(end, "chan receive", "runtime.chanrecv1", "main.loop"); i > 0 {
				want = append(want, Unit{wake, end, 7})
			}
		}
		reader := must.Have(tracefmt.NewReader(bytes.NewReader(must.Have(builder.Bytes())(t)), tracefmt.Options{}))(t)
		decoder := timeline.NewDecoder(reader, 1)
		defer decoder.Close()
		window := timeline.Window{Passed: new(atomic.Int64)}
		finder := NewFinder(decoder.Symbols, &window, Options{})
		var units []Unit
		observed := 0
		for range 2 {
			window.Passed.Store(0)
			window.Gens = append(window.Gens, must.Have(decoder.Next(t.Context()))(t))
			finder.Add(window.Gens[len(window.Gens)-1])
			observed = max(observed, finder.loops.candidates[0].endObservation)
			for _, r := range AppendUnits(nil, finder.Series()...) {
				units = append(units, Unit{r.Start - window.Start(), r.End - window.Start(), r.G})
			}
		}
		check.True(t, slices.Equal(units, want), "%d is another: %d units, want %d", other, len(units), len(want))
		check.True(t, other == n/2 || observed < n/10, "%d is another: %d observations", other, observed)
		check.True(t, (window.Passed.Load() == 0) == (other < 0), "%d is another: %d events were visited", other, window.Passed.Load())
	}
}
