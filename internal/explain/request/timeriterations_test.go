package request

import (
	"bytes"
	"slices"
	"testing"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/internal/testing/must"
	"github.com/whylate/whylate/internal/trace/timeline"
	"github.com/whylate/whylate/internal/trace/tracefmt"
	"github.com/whylate/whylate/internal/trace/tracefmt/tracetext"
)

// TestTimerIterations: iterations that a timer begins and that do nothing are observed in bulk, until one does something, and are the same
// as one by one.
func TestTimerIterations(t *testing.T) {
	const n = 3 * chunkSize
	for _, other := range []int{-1, n / 2, n - 1} {
		builder := tracetext.New(26)
		worker, waker := builder.Thread(), builder.ThreadWithoutP()
		builder.Waiting(1)
		var want []Unit
		for i := range n {
			wake := int64(1000 + 10_000*i)
			end := wake + 200 + int64(i%7)*50
			waker.Unblock(wake, 1)
			worker.Start(wake+100, 1)
			if i == other {
				worker.Syscall(wake+120, "syscall.write", "main.work", "main.loop")
				worker.SyscallEnd(wake + 150)
			}
			if worker.Block(end, "chan receive", "runtime.chanrecv1", "main.loop"); i > 0 {
				want = append(want, Unit{wake, end, 1})
			}
		}
		reader := must.Have(tracefmt.NewReader(bytes.NewReader(must.Have(builder.Bytes())(t)), tracefmt.Options{}))(t)
		decoder := timeline.NewDecoder(reader, 1)
		defer decoder.Close()
		var window timeline.Window
		finder := NewFinder(decoder.Symbols, &window, Options{})
		g := must.Have(decoder.Next(t.Context()))(t)
		window.Gens = append(window.Gens, g)
		finder.Add(g)
		var units []Unit
		for _, s := range finder.Series() {
			for _, chunk := range s.Chunks {
				for _, unit := range chunk {
					units = append(units, Unit{unit.Start - g.Base, unit.End - g.Base, unit.G})
				}
			}
		}
		check.True(t, slices.Equal(units, want), "%d is another: %d units, want %d", other, len(units), len(want))
		observed := len(finder.loops.collectors[0].states.chunks)
		check.True(t, other == n/2 || observed == 1, "%d is another: %d chunks of observations", other, observed)
	}
}
